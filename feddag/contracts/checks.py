# SPDX-License-Identifier: Apache-2.0
"""What every algorithm promises, as checks that anybody can run: `feddag check-algorithm my_module:MyMethod`.

Each check takes the name of a method (of the table, or module:Class) and raises ContractBroken with a
sentence. `CHECKS` has them all; the tests of feddag run the same functions on its own methods.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddag.algorithms import ALGORITHMS
from feddag.contracts.form import (
    every_task_is_listed_and_importable,
    it_goes_on_from_a_decoded_state,
    it_is_a_frozen_value,
    it_tells_in_one_line_what_it_is,
    messages_and_states_survive_a_journey,
    no_tensor_leaves_a_client_undeclared,
    require,
)
from feddag.contracts.manners import (
    a_client_that_fails_is_done_without,
    a_newcomer_without_samples_is_survived,
    a_round_with_too_few_answers_is_refused,
    a_single_client_is_enough,
    held_out_samples_decide_nothing,
    nothing_is_changed_in_place,
)
from feddag.contracts.toys import experiment, play, reference, toy, toy_site
from feddag.core import codec
from feddag.core.engine import Engine
from feddag.core.errors import FederationError
from feddag.engines.process import ProcessEngine
from feddag.runs.simulate import build, resume, run

CHANCE = 1 / 4  # of the toy federation
ROUNDS = 8


def it_learns(name: str, rounds: int = ROUNDS) -> None:
    """After some rounds clients and newcomers are served better than by chance."""
    prepared = toy(name)
    trace = play(prepared, rounds=rounds)
    for who, clients in (("clients", prepared.clients), ("newcomers", prepared.federation.newcomers)):
        accuracy = trace.accuracy(clients)
        require(accuracy > CHANCE + 0.2, f"{who} are right in {accuracy:.0%}; chance is {CHANCE:.0%}")


def worker_processes_give_the_same_bits(name: str) -> None:
    """States, memories, scores and bytes are those of the inline engine."""
    engine = ProcessEngine(toy_site(), "mlp", 2)
    try:
        same_as_inline(name, engine)
    finally:
        engine.close()


def same_as_inline(name: str, engine: Engine) -> None:
    """Play on this engine and compare."""
    trace, expected = play(toy(name), engine), reference(name)
    require(trace.digests == expected.digests, "states or memories differ from the inline engine's")
    for client, scores in expected.scores.items():
        require(codec.digest(trace.scores[client]) == codec.digest(scores), f"scores of {client} differ")
    one, other = (
        [(q.task, c, a.bytes_down, a.bytes_up) for q in t.asked for c, a in q.answers.items()]
        for t in (trace, expected)
    )
    require(one == other, "the bytes that were sent differ")


class _Killed(BaseException):
    """Stands for a power cut: nobody handles it, nothing is saved because of it."""


def it_resumes_and_predicts_to_the_bit(name: str) -> None:
    """A run that was killed goes on to the same result, and its saved models predict what was scored."""

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "exchange" and event["round"] == 2:
            raise _Killed

    with tempfile.TemporaryDirectory() as place:
        whole = run(experiment(name), folder=Path(place) / "whole")
        try:
            run(experiment(name), folder=Path(place) / "cut", watch=kill)
        except _Killed:
            resume(Path(place) / "cut")
        cut = type(whole)(Path(place) / "cut")
        same = whole.result["state_digest"] == cut.result["state_digest"]
        require(same and whole.client_rows == cut.client_rows, "a resumed run has another result")
        federation = build(experiment(name)).federation
        for row in whole.client_rows:
            model, examples = whole.model(row["client"]), federation.examples(row["client"], "test")
            right = np.mean(model.predict(examples.x) == np.array(model.classes)[examples.y])
            require(float(right) == float(row["accuracy"]), f"the saved model of {row['client']} differs")


CHECKS: tuple[Callable[[str], None], ...] = (
    it_is_a_frozen_value,
    it_tells_in_one_line_what_it_is,
    every_task_is_listed_and_importable,
    no_tensor_leaves_a_client_undeclared,
    messages_and_states_survive_a_journey,
    it_goes_on_from_a_decoded_state,
    nothing_is_changed_in_place,
    held_out_samples_decide_nothing,
    a_single_client_is_enough,
    a_client_that_fails_is_done_without,
    a_round_with_too_few_answers_is_refused,
    a_newcomer_without_samples_is_survived,
    it_learns,
    worker_processes_give_the_same_bits,
    it_resumes_and_predicts_to_the_bit,
)


@dataclass(frozen=True)
class Verdict:
    """What one check found; `problem` is empty if the promise holds."""

    check: str
    problem: str = ""


def check_algorithm(name: str, watch: Callable[[Verdict], None] = lambda verdict: None) -> list[Verdict]:
    """Run all checks on one method; an error of its own code is a problem too."""
    _ = ALGORITHMS[name]  # a name that is wrong is told once
    found = []
    for check in CHECKS:
        problem = ""
        try:
            check(name)
        except Exception as error:
            problem = str(error) if isinstance(error, FederationError) else f"{type(error).__name__}: {error}"
        found.append(Verdict(check.__name__.replace("_", " "), (problem.splitlines() or [""])[0]))
        watch(found[-1])
    return found
