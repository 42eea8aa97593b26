# SPDX-License-Identifier: Apache-2.0
"""A spy between clients and server: whatever the method and the level, no sensitive kind leaves bare."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from feddag.algorithms import ALGORITHMS
from feddag.clustering.subspaces import class_subspaces
from feddag.core.algorithm import Server
from feddag.core.engine import Answer
from feddag.core.errors import InvalidInput
from feddag.core.message import Kind, is_message
from feddag.core.params import Params
from feddag.core.task import ClientTask
from feddag.engines.inline import InlineEngine
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.guard import COUNTS
from feddag.privacy.rules import RULES, check_start, treatment
from feddag.privacy.secagg import hide
from feddag.privacy.sums import averaging_for
from feddag.runs.simulate import Simulation
from tests.contracts.toys import Around, toy
from tests.support.toys import toy_server

LEVELS = ("guarded", "private", "strict")
# Who runs at which level; everybody else is refused in one sentence before anything is asked.
BY_MEANS = {"fedavg", "fedavg_ft", "fedprox", "fedadam", "fedavgm", "pacfl", "feddag"}
PERSONAL = {"ditto", "fedper", "fedrep", "perfedavg", "scaffold", "local"}
RUNS = {"guarded": set(ALGORITHMS), "private": BY_MEANS | PERSONAL | {"ifca"}, "strict": BY_MEANS | {"local"}}


def fields_by_kind(value: Any) -> Iterator[tuple[Kind, str, Any]]:
    """Every sensitive value in a message, with its kind."""
    for f in dataclasses.fields(value):
        item, kind = getattr(value, f.name), f.metadata.get("privacy")
        if kind and item is not None:
            yield Kind(kind), f.name, item
        elif is_message(item):
            yield from fields_by_kind(item)


@dataclass
class Spy(Around):
    """Keeps a copy of everything that leaves a client."""

    seen: list[tuple[ClientTask, str, Any]] = field(default_factory=list)

    def ask(self, task: ClientTask, requests: Mapping[str, Any], exchange: Any) -> Mapping[str, Answer]:
        answers = super().ask(task, requests, exchange)
        self.seen += [(task, c, a.reply) for c, a in answers.items() if not a.failure]
        assert not [a.failure for a in answers.values() if a.failure]
        return answers


def run(name: str, level: str) -> tuple[Simulation, Spy]:
    """Start and two rounds with everybody, under the eyes of the spy."""
    privacy = {"level": level, "budget": 1e6, "update": {"noise": 4.0}}
    # Fifty samples of every class, so that noisy counts are not 0.
    data = {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 1600, "test": 80}}
    changes = {"partition": "iid", "data": data, "training": {"local_epochs": 1, "batch_size": 32}}
    prepared = toy(name, privacy=privacy, **changes)
    spy = Spy(InlineEngine(prepared.site))

    def server(round_: int) -> Server:
        return toy_server(
            prepared.site,
            spy,
            clients=prepared.trainable,
            round=round_,
            quorum=0.5,
            averaging=averaging_for(prepared.experiment.privacy),
        )

    state = prepared.algorithm.start(server(0))
    for round_ in (1, 2):
        state = prepared.algorithm.round(state, server(round_))
    return prepared, spy


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_sensitive_kind_leaves_bare(name: str, level: str) -> None:
    if name not in RUNS[level]:
        with pytest.raises(InvalidInput, match=r"use (a lower level or )?another method") as refused:
            run(name, level)
        assert "\n" not in str(refused.value)
        return
    prepared, spy = run(name, level)
    options = prepared.experiment.privacy
    for task, client, reply in spy.seen:
        data = prepared.federation.examples(client)
        memory = spy.inner.memories.get(client)
        for kind, where, item in fields_by_kind(reply):
            how = treatment(options, kind)
            assert how != "refused", (task.name, where)
            if kind == Kind.COUNTS and how == "noise":
                told = memory[COUNTS]
                same = np.array_equal(item, told) if isinstance(item, np.ndarray) else item == told.sum()
                assert same, (task.name, where)
            elif kind == Kind.SUBSPACES and how == "noise":
                exact = class_subspaces(data.x, data.y, data.num_classes, 1).vectors_PD
                near = np.abs(item @ exact.T).max() if item.ndim == 2 and item.size else 0.0
                assert near < 1 - 1e-6, (task.name, where)
            elif kind == Kind.SUBSPACES:
                assert item.ndim == 1 or len(item) <= (np.bincount(data.y) >= 50).sum()
            elif kind == Kind.UPDATE and options.masks:
                bare = isinstance(item, Params) or task is not hide
                assert not bare or options.dpsgd or _is_zero(item), (task.name, where)
    for client in prepared.trainable:
        kinds = {str(kind) for _, c, r in spy.seen if c == client for kind, _, _ in fields_by_kind(r)}
        noted = {entry.kind for entry in prepared.site.privacy.ledger.of(client).values()}
        assert noted >= kinds, client


def _is_zero(item: Any) -> bool:
    return item.norm() == 0 if isinstance(item, Params) else not np.asarray(item).any()


def test_the_spy_finds_a_guard_that_protects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from feddag.privacy.guard import Guard

    monkeypatch.setattr(Guard, "_message", lambda self, value, client: value)
    monkeypatch.setattr(Guard, "subspaces", lambda self, *arguments, **options: None)
    with pytest.raises(AssertionError):
        test_no_sensitive_kind_leaves_bare("feddag", "private")


@pytest.mark.parametrize("level", LEVELS)
def test_every_kind_has_a_rule_at_every_level(level: str) -> None:
    assert set(RULES[level]) == set(Kind)


def test_a_kind_without_a_rule_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {kind: how for kind, how in RULES["private"].items() if kind != Kind.COUNTS}
    monkeypatch.setitem(RULES, "private", rules)
    algorithm = toy("fedavg").algorithm
    with pytest.raises(InvalidInput, match="kind 'counts' has no privacy rule at level 'private'"):
        check_start("fedavg", algorithm, PrivacyOptions(level="private"))


def test_methods_that_look_at_single_updates_are_told_so() -> None:
    for name in ("cfl", "cfl_gp"):
        with pytest.raises(InvalidInput, match="secure aggregation hides single updates"):
            toy(name, privacy={"level": "guarded", "update": {"mode": "secagg"}})
        with pytest.raises(InvalidInput, match="'central' adds noise to means alone"):
            toy(name, privacy={"level": "guarded", "update": {"mode": "central"}})


def test_drift_alarms_are_refused_where_they_may_not_leave() -> None:
    scenario = {"drift": [{"at": 1, "clients": 0.5, "kind": "feature"}]}
    with pytest.raises(InvalidInput, match=r"lifecycle\.detector = 'client' sends drift alarms"):
        toy("fedavg", privacy="strict", scenario=scenario, num_rounds=2)
    toy("fedavg", privacy="strict", scenario=scenario, num_rounds=2, lifecycle={"detector": "none"})
    toy("fedavg", privacy="private", scenario=scenario, num_rounds=2)


def test_clusters_by_gradients_are_refused_where_updates_are_hidden() -> None:
    with pytest.raises(InvalidInput, match=r"views = \['gradient'\]"):
        toy("feddag", {"signature": {"views": ["gradient"]}}, privacy="private")
