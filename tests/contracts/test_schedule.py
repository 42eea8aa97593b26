# SPDX-License-Identifier: Apache-2.0
"""The learning rate of a round reaches the local training of every method, in one place for all."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest

from feddag.core.deployment import LocalTraining, requests_at_round
from feddag.core.errors import InvalidInput
from feddag.core.message import is_message
from feddag.engines.inline import InlineEngine
from feddag.learning.evaluation import Evaluate
from feddag.learning.signature import Sign
from tests.contracts.toys import TRAINING, Around, every_algorithm, play, toy

ROUNDS = 3
SCHEDULE = {**TRAINING, "lr_schedule": "step", "lr_decay": 0.5, "lr_step": 1}
RATES = {0: 0.1, 1: 0.1, 2: 0.05, 3: 0.025}


@dataclass
class Scheduling(Around):
    """Does what a server does with its requests, and keeps the rates that clients are told."""

    told: list[tuple[int, str, float]] = field(default_factory=list)

    def ask(self, task: Any, requests: Any, exchange: Any) -> Any:
        requests = requests_at_round(requests, exchange.round, ROUNDS)
        for request in {id(r): r for r in requests.values()}.values():
            kind = type(request).__name__
            self.told += [(exchange.round, kind, local.lr) for local in trainings(request)]
        return super().ask(task, requests, exchange)


def trainings(value: Any) -> Iterator[LocalTraining]:
    """Every LocalTraining inside a message."""
    if isinstance(value, LocalTraining):
        yield value
    elif is_message(value):
        for f in fields(value):
            yield from trainings(getattr(value, f.name))


@every_algorithm
def test_clients_train_with_the_rate_of_the_round(name: str) -> None:
    simulation = toy(name, training=SCHEDULE)
    engine = Scheduling(InlineEngine(simulation.site))
    trace = play(simulation, engine, rounds=ROUNDS)
    told = [
        (round_, lr) for round_, kind, lr in engine.told if kind not in (Sign.__name__, Evaluate.__name__)
    ]
    assert {round_ for round_, _ in told} >= {1, 2, 3}
    assert [lr for _, lr in told] == [RATES[round_] for round_, _ in told]
    # Signatures are compared over rounds, and clients adapt a model after the run too.
    assert {lr for _, kind, lr in engine.told if kind in (Sign.__name__, Evaluate.__name__)} <= {0.1, 0.01}
    assert np.isfinite([scores.loss for scores in trace.scores.values()]).all()


@every_algorithm
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_every_method_trains_with_every_optimiser(name: str, optimiser: str) -> None:
    simulation = toy(name, training={**TRAINING, "lr": 0.003, "optimiser": optimiser})
    if name == "scaffold":
        with pytest.raises(InvalidInput, match=f"optimiser = '{optimiser}': scaffold corrects the steps"):
            play(simulation)
        return
    trace = play(simulation, rounds=2)
    assert not [a.failure for q in trace.asked for a in q.answers.values() if a.failure]
    assert np.isfinite([scores.loss for scores in trace.scores.values()]).all()
