# SPDX-License-Identifier: Apache-2.0
"""One client lies in one field of one reply: the server refuses it by name, or the round goes on with it."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from feddag.core.contract import Known, NormLimit, accept
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import InvalidMessage, QuorumMissed
from feddag.core.message import is_message
from feddag.core.params import Layout, Params
from feddag.core.task import ClientId, ClientTask
from feddag.engines.inline import InlineEngine
from tests.contracts.toys import Around, every_algorithm, play
from tests.contracts.toys import toy as make_toy

NO_LIMIT = NormLimit()
toy = cache(make_toy)


# -- lies ----------------------------------------------------------------------------------------------------


def lies_about(value: Any) -> dict[str, Any]:
    """What a client might send in place of a value of the same kind."""
    if isinstance(value, bool) or value is None:
        return {}
    if isinstance(value, int):
        return {"negative": -5, "zero": 0, "many": 10**11, "huge": 2**62, "out of range": value + 1000}
    if isinstance(value, float):
        return {"negative": -1.0, "zero": 0.0, "huge": 1e301, "nan": math.nan, "infinite": math.inf}
    if isinstance(value, np.ndarray):
        return lies_about_array(value)
    if isinstance(value, Params):
        return lies_about_params(value)
    if isinstance(value, tuple) and value:
        first = {f"first: {name}": (lie, *value[1:]) for name, lie in lies_about(value[0]).items()}
        return {"one less": value[:-1], "one more": (*value, value[0]), **first}
    return {}


def lies_about_array(value: np.ndarray) -> dict[str, np.ndarray]:
    large = value.astype(value.dtype)
    large.reshape(-1)[:1] = 1e30 if value.dtype.kind == "f" else 2**62
    lies = {
        "negative": (-np.abs(value) - 1).astype(value.dtype),
        "zeros": np.zeros_like(value),
        "empty": value[:0],
        "one row more": np.concatenate([value, np.zeros((1, *value.shape[1:]), value.dtype)]),
        "one dimension more": value[None],
        "flat": value.reshape(-1),
        "one number": value.reshape(-1)[:1],
        "huge": large,
        "out of range": value + np.asarray(1000, dtype=value.dtype),
        "another format": value.astype(np.float16 if value.dtype.kind == "f" else np.uint8),
    }
    if value.dtype.kind == "f":
        lies["nan"] = np.full_like(value, np.nan)
    if not value.size:  # without numbers there is no wrong number
        lies = {name: lie for name, lie in lies.items() if name not in ("huge", "out of range", "nan")}
    return lies


def lies_about_params(value: Params) -> dict[str, Any]:
    names, shapes = value.layout.names, value.layout.shapes
    renamed = Layout((*names[:-1], "evil"), shapes)
    turned = Layout(names, tuple(shape[::-1] for shape in shapes))
    spoiled = value.vector.clone()
    spoiled[0] = math.nan
    return {
        "other names": Params(value.vector, renamed),
        "other shapes": Params(value.vector, turned),
        "a tensor less": value.select(*names[:-1]),
        "no tensor": value.select("nothing starts like this"),
        "flat": Params(value.vector, Layout(("all",), ((len(value.vector),),))),
        "zeros": value * 0.0,
        "large": value * 1e4,
        "huge": value.like(torch.full_like(value.vector, 1e30)),
        "nan": value.like(spoiled),
        "nothing": None,
    }


def lies(reply: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """(field, name of the lie, the whole reply with that lie), for every field, in nested messages too."""
    for f in dataclasses.fields(reply):
        value = getattr(reply, f.name)
        if is_message(value):
            for path, name, lie in lies(value, f"{prefix}{f.name}."):
                yield path, name, dataclasses.replace(reply, **{f.name: lie})
        for name, lie in lies_about(value).items():
            yield prefix + f.name, name, dataclasses.replace(reply, **{f.name: lie})


# -- what a method asks and hears ----------------------------------------------------------------------------


@dataclass
class Listening(Around):
    """Keeps the first exchange of every task with one client."""

    victim: str
    heard: dict[str, tuple[ClientTask, Any, Any]] = field(default_factory=dict)

    def ask(self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange) -> Any:
        answers = super().ask(task, requests, exchange)
        if self.victim in answers:
            self.heard.setdefault(task.name, (task, requests[self.victim], answers[self.victim].reply))
        return answers


@dataclass
class Lying(Around):
    """One client replaces its reply to one task."""

    victim: str
    task: str
    lie: Callable[[Any], Any]
    told: int = 0

    def ask(self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange) -> Any:
        answers = dict(super().ask(task, requests, exchange))
        if task.name == self.task and self.victim in answers and not answers[self.victim].failure:
            self.told += 1
            lie = self.lie(answers[self.victim].reply)
            answers[self.victim] = dataclasses.replace(answers[self.victim], reply=lie)
        return answers


@cache
def exchanges(name: str) -> dict[str, tuple[ClientTask, Any, Any]]:
    prepared = toy(name)
    victim = prepared.trainable[0]
    engine = Listening(InlineEngine(prepared.site), victim)
    play(prepared, engine, cohort=lambda round_: prepared.trainable[:4])
    return engine.heard


@cache
def judged(name: str) -> list[tuple[ClientTask, str, str, str]]:
    """(task, field, lie, why it is refused or "" if it is legal), for all lies that a client could tell."""
    found = []
    prepared = toy(name)
    for task, request, reply in exchanges(name).values():
        known = Known(request, prepared.federation.problem, prepared.site.network)
        for path, lie, spoiled in lies(reply):
            try:
                accept(spoiled, task.reply, known, NO_LIMIT)
                found.append((task, path, lie, ""))
            except InvalidMessage as error:
                found.append((task, path, lie, str(error)))
    return found


# Lies that a server can always see through.
ALWAYS_WRONG = {
    "nan", "huge", "infinite", "other names", "other shapes", "a tensor less", "no tensor", "nothing",
    "one dimension more", "another format", "one less", "one more",
}  # fmt: skip


@every_algorithm
def test_honest_replies_fit_their_contract(name: str) -> None:
    prepared = toy(name)
    for task, request, reply in exchanges(name).values():
        known = Known(request, prepared.federation.problem, prepared.site.network)
        assert accept(reply, task.reply, known, NO_LIMIT) == (reply, [])


@every_algorithm
def test_a_lie_that_can_be_seen_is_refused_by_field(name: str) -> None:
    refused = [(path, why) for _, path, _, why in judged(name) if why]
    # Two fields that contradict each other may both be meant: then a neighbour is named.
    assert [why for path, why in refused if f"field '{path.rpartition('.')[0]}" not in why] == []
    passed = [(task.name, path, lie) for task, path, lie, why in judged(name) if not why]
    assert [entry for entry in passed if entry[2].removeprefix("first: ") in ALWAYS_WRONG] == []
    counts = [entry for entry in passed if entry[1] in ("examples", "counts", "cluster", "classes")]
    assert [entry for entry in counts if entry[2] in ("negative", "huge", "one row more")] == []


@every_algorithm
def test_a_lie_that_cannot_be_seen_is_survived(name: str) -> None:
    prepared = toy(name)
    victim = prepared.trainable[0]
    for task, path, lie, why in judged(name):
        if why or task.sees_test:
            continue

        def spoil(reply: Any, path: str = path, lie: str = lie) -> Any:
            return next((r for p, n, r in lies(reply) if (p, n) == (path, lie)), reply)

        engine = Lying(InlineEngine(prepared.site), victim, task.name, spoil)
        try:
            trace = play(prepared, engine, cohort=lambda round_: prepared.trainable[:4])
            assert trace.scores.keys() == set(prepared.federation.ids)
        except QuorumMissed:
            pass
        assert engine.told, f"{task.name} was not asked"


def wrong(reply: Any) -> Any:
    """The first field of a reply that can be wrong beyond doubt."""
    return next((r for _, name, r in lies(reply) if name in ("nan", "huge")), None)


@every_algorithm
def test_a_client_whose_replies_are_refused_is_named_and_done_without(name: str) -> None:
    prepared = toy(name)
    victim = prepared.trainable[0]
    for task, _, reply in exchanges(name).values():
        if task.sees_test or wrong(reply) is None:
            continue
        engine = Lying(InlineEngine(prepared.site), victim, task.name, wrong)
        trace = play(prepared, engine, cohort=lambda round_: prepared.trainable[:4])
        failures = [
            (client, answer.failure)
            for asked in trace.asked
            for client, answer in asked.answers.items()
            if asked.task == task.name and answer.failure
        ]
        assert failures
        assert {client for client, _ in failures} == {victim}
        assert all(why.startswith("field '") and "expected" in why for _, why in failures)
        assert np.isfinite([scores.loss for scores in trace.scores.values()]).all()


# -- the limit on norms --------------------------------------------------------------------------------------


def boost(reply: Any) -> Any:
    return dataclasses.replace(reply, update=reply.update * 1e4)


@pytest.mark.parametrize(("clip", "failed"), [(False, True), (True, False)])
def test_an_update_over_the_norm_limit_is_refused_or_clipped(clip: bool, failed: bool) -> None:
    prepared = toy("fedavg")
    task, request, reply = exchanges("fedavg")["train"]
    known = Known(request, prepared.federation.problem, prepared.site.network)
    limit = NormLimit(2 * reply.update.norm(), clip)
    assert accept(reply, task.reply, known, limit) == (reply, []), "an ordinary update is left alone"
    if failed:
        with pytest.raises(InvalidMessage, match="field 'update': expected an update of norm up to"):
            accept(boost(reply), task.reply, known, limit)
    else:
        short, remarks = accept(boost(reply), task.reply, known, limit)
        assert short.update.norm() == pytest.approx(limit.most, rel=1e-5)
        assert "clipped to" in remarks[0]


def test_an_engine_that_forgets_a_client_costs_only_that_client() -> None:
    class Forgetful(Around):
        def ask(self, task: Any, requests: Any, exchange: Any) -> Any:
            answers = dict(super().ask(task, requests, exchange))
            answers.pop(next(iter(requests)), None)
            return answers | {"a stranger": Answer(failure="who is that?")}

    prepared = toy("ditto")
    engine = Forgetful(InlineEngine(prepared.site))
    with pytest.raises(QuorumMissed, match="there was no answer"):  # only at the scores, which need everyone
        play(prepared, engine)
