# SPDX-License-Identifier: Apache-2.0
"""FedDAG's clusters under joins, leaves, drifts and storms: a machine that tries sequences of them."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from feddag.algorithms.feddag import FedDAG, State
from feddag.clustering.again import of_items, renumbered, separation
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.tree import KeptTree
from feddag.core.clusters import Clusters
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.following import (
    active_sources,
    answer_drift,
    forget,
    settle,
    take_in,
    who_is_there,
)
from feddag.learning.reclustering import FollowOptions, model_of
from feddag.learning.signature import DATA_VIEWS, Signature, items_of

CLASSES, WIDTH, SKETCH = 4, 12, 10
METHOD = FedDAG(follow=FollowOptions(least_changed=3, rest=10))


@dataclass
class ToyServer:
    """The little of a server that the responses need."""

    round: int
    clients: tuple[str, ...]
    seed: Seed = field(default_factory=lambda: Seed(1))
    notes: dict[str, Any] = field(default_factory=dict)

    def note(self, **more: Any) -> None:
        self.notes.update(more)


@cache
def signature(client: str, group: int, again: int = 0) -> Signature:
    """What a client of a group would send: its group's classes and directions, with a little noise."""
    noise = (Seed(7) / client / again).numpy()
    directions = (Seed(3) / "group" / group).numpy().normal(size=(CLASSES, WIDTH))
    vectors = directions + 0.05 * noise.normal(size=(CLASSES, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    update = (Seed(4) / "group" / group).numpy().normal(size=SKETCH) + 0.05 * noise.normal(size=SKETCH)
    nothing = np.zeros(0, dtype=np.float32)
    fields = {
        "gradient": update.astype(np.float32),
        **{view: vectors.astype(np.float32) for view in DATA_VIEWS},
        **{f"{view}_of": np.arange(CLASSES) for view in DATA_VIEWS},
        **{f"{view}_errors": nothing for view in DATA_VIEWS},
        "counts": np.full(CLASSES, 40) + noise.integers(0, 5, size=CLASSES),
        "withheld": 0,
    }
    return Signature(**fields)


def model(z: int) -> Params:
    return Params.of({"head.bias": torch.full((2,), float(z))})


def started(groups: dict[str, int], method: FedDAG = METHOD) -> State:
    """The state after the first clustering."""
    signatures = {client: signature(client, group) for client, group in groups.items()}
    found = cluster_signatures(items_of(signatures), method.clustering_options, method.graph, seed=5)
    clusters = Clusters.from_labels(list(signatures), found.labels_N)
    number = {int(raw): clusters.of(c) for c, raw in zip(signatures, found.labels_N, strict=True)}
    sources: list[tuple[int, ...]] = [(z,) for z in range(found.count)]
    for z, learned in enumerate(found.sources()):
        sources[number[z]] = tuple(number[s] for s in learned)
    return State(
        clusters=clusters,
        models=tuple(model(z) for z in range(found.count)),
        sources=tuple(sources),
        signatures=signatures,
        start=model(0),
        mask=5,
        frame=found.frame,
        tree=KeptTree.of(signatures, found),
    )


def check(state: State) -> None:
    """What must hold at any time."""
    labels = state.clusters.labels()
    assert set(labels) == set(state.signatures)
    assert len(state.models) == len(state.clusters) == len(state.sources)
    assert all(sources and 0 <= min(sources) <= max(sources) < len(state.models) for sources in state.sources)
    assert len(state.frame.weights_N) == len(state.signatures)
    reliable = state.frame.reliable
    if reliable is not None and len(reliable.levels_NC):
        assert len(reliable.levels_NC) == len(state.signatures)
    assert set(state.changed) <= set(state.signatures)
    assert {int(z) for z in state.empty or {}} <= set(range(len(state.models)))


def together(state: State, clients: list[str]) -> list[tuple[str, ...]]:
    """Which of these clients are in one cluster, whatever its number."""
    return sorted(
        tuple(c for c in members if c in clients)
        for members in state.clusters.members
        if {*members} & {*clients}
    )


GROUPS = {f"c{i}": i % 2 for i in range(10)}


def test_the_toy_has_its_two_groups() -> None:
    assert together(started(GROUPS), [*GROUPS]) == sorted(
        [tuple(c for c in GROUPS if GROUPS[c] == g) for g in (0, 1)]
    )


def test_a_newcomer_joins_its_group_and_nobody_else_moves() -> None:
    state = started(GROUPS)
    server = ToyServer(3, tuple(GROUPS))
    after = take_in(state, {"new": signature("new", 1)}, METHOD, server)
    check(after)
    assert after.clusters.of("new") == after.clusters.of("c1")
    assert together(after, [*GROUPS]) == together(state, [*GROUPS])
    assert after.changed == ("new",)


def test_a_client_whose_data_changed_moves_and_takes_nobody_along() -> None:
    state = started(GROUPS)
    after = answer_drift(state, {"c0": signature("c0", 1, again=1)}, METHOD, ToyServer(3, tuple(GROUPS)))
    check(after)
    assert after.clusters.of("c0") == after.clusters.of("c1")
    others = [c for c in GROUPS if c != "c0"]
    assert together(after, others) == together(state, others)


def test_a_false_alarm_changes_no_cluster() -> None:
    state = started(GROUPS)
    after = answer_drift(state, {"c0": signature("c0", 0, again=1)}, METHOD, ToyServer(3, tuple(GROUPS)))
    check(after)
    assert after.clusters == state.clusters
    assert after.models == state.models


def test_a_client_that_is_of_no_known_kind_gets_a_cluster_which_the_next_of_its_kind_joins() -> None:
    state = started(GROUPS)
    server = ToyServer(3, tuple(GROUPS))
    alone = answer_drift(state, {"c0": signature("c0", 2, again=1)}, METHOD, server)
    check(alone)
    others = [c for c in GROUPS if c != "c0"]
    assert alone.clusters.members[alone.clusters.of("c0")] == ("c0",)
    assert together(alone, others) == together(state, others)
    assert alone.models[alone.clusters.of("c0")] is state.models[state.clusters.of("c0")], (
        "it goes on with it"
    )
    second = answer_drift(alone, {"c1": signature("c1", 2, again=1)}, METHOD, ToyServer(4, tuple(GROUPS)))
    check(second)
    assert second.clusters.members[second.clusters.of("c0")] == ("c0", "c1")
    back = answer_drift(second, {"c0": signature("c0", 0, again=2)}, METHOD, ToyServer(5, tuple(GROUPS)))
    assert back.clusters.of("c0") == back.clusters.of("c2")
    assert back.clusters.members[back.clusters.of("c1")] == ("c1",)


def test_a_newcomer_that_is_of_no_known_kind_joins_the_nearest_cluster() -> None:
    after = take_in(started(GROUPS), {"new": signature("new", 2)}, METHOD, ToyServer(3, tuple(GROUPS)))
    assert len(after.clusters) == 2


def test_a_storm_does_not_bring_a_client_to_those_of_another_kind() -> None:
    state = started(dict.fromkeys(GROUPS, 0))
    to = {"c0": 1, "c1": 1, "c2": 1, "c3": 1, "c4": 2}  # clusters of one are none for a clustering
    fresh = {c: signature(c, g, again=1) for c, g in to.items()}
    server = ToyServer(30, tuple(GROUPS))
    after = answer_drift(state, fresh, METHOD, server)
    check(after)
    assert together(after, [*GROUPS]) == [("c0", "c1", "c2", "c3"), ("c4",), ("c5", "c6", "c7", "c8", "c9")]
    assert not server.notes["recluster"]["accepted"]


def test_clusters_that_a_new_look_confirms_are_measured_anew() -> None:
    everyone = {f"c{i:02d}": 0 for i in range(16)}
    state, calm = started(everyone), FedDAG(follow=FollowOptions(storm=1.0))
    for number in range(3):
        fresh = {f"c{number:02d}": signature(f"c{number:02d}", 1, again=1)}
        state = replace(
            answer_drift(state, fresh, calm, ToyServer(3 + number, tuple(everyone))), sharing=(0,)
        )
        assert len(state.changed) == (number + 1) % 3, "three are a group, which is looked at"
    check(state)
    assert len(state.tree.splits) == 1, "newcomers are placed by what tells the two groups apart"
    assert (len(state.models), state.sharing, state.settled) == (2, (0,), 0)


def test_a_cluster_whose_members_all_drift_away_is_gone_and_can_be_filled_again() -> None:
    groups = {f"c{i}": int(i > 6) for i in range(9)}  # two clients in the second group
    state = started(groups)
    server = ToyServer(3, tuple(groups))
    fresh = {c: signature(c, 0, again=1) for c in ("c7", "c8")}
    emptied = take_in(state, fresh, METHOD, server)
    check(emptied)
    assert len(emptied.clusters) == 1
    back = take_in(emptied, {f"n{i}": signature(f"n{i}", 1) for i in range(3)}, METHOD, server)
    check(back)
    assert len(back.clusters) == 2, "three newcomers of one kind open a cluster"
    assert together(back, [*groups]) == [tuple(groups)]


def test_a_storm_of_everybody_is_one_reclustering() -> None:
    state = started(dict.fromkeys(GROUPS, 0))
    assert len(state.clusters) == 1
    server = ToyServer(30, tuple(GROUPS))
    fresh = {c: signature(c, g, again=1) for c, g in GROUPS.items()}
    after = answer_drift(state, fresh, METHOD, server)
    check(after)
    assert server.notes["recluster"]["accepted"]
    assert together(after, [*GROUPS]) == together(started(GROUPS), [*GROUPS])
    assert after.models == (state.models[0],) * 2, "both go on with the model that they had"


def test_a_storm_without_a_better_clustering_moves_nobody() -> None:
    state = started(GROUPS)
    fresh = {c: signature(c, g, again=1) for c, g in GROUPS.items()}
    after = answer_drift(state, fresh, METHOD, ToyServer(30, tuple(GROUPS)))
    check(after)
    assert after.clusters == state.clusters


def test_few_alarms_are_remembered_until_they_are_a_group() -> None:
    everyone = {f"c{i:02d}": 0 for i in range(16)}
    state = started(everyone)
    calm = FedDAG(follow=FollowOptions(storm=1.0))  # so that only the number of changed clients counts
    for number, client in enumerate([*everyone][:4]):
        server = ToyServer(3 + number, tuple(everyone))
        state = answer_drift(state, {client: signature(client, 1, again=1)}, calm, server)
        check(state)
        assert ("recluster" in server.notes) is (number == 2), "one or two are no group, the fourth has one"
    assert together(state, [*everyone]) == [tuple([*everyone][:4]), tuple([*everyone][4:])]


def test_groups_that_are_not_to_be_seen_any_more_are_one_cluster_again() -> None:
    state = started(GROUPS)
    server = ToyServer(30, tuple(GROUPS))
    fresh = {c: signature(c, 0, again=1) for c in GROUPS}
    strict = FedDAG(follow=FollowOptions(gain=0.3))  # no silhouette of one cluster can reach this
    after = answer_drift(state, fresh, strict, server)
    check(after)
    assert server.notes["recluster"]["accepted"]
    assert together(after, [*GROUPS]) == [tuple(GROUPS)]


def test_settling_needs_enough_change_evidence_and_rest() -> None:
    state = started(dict.fromkeys(GROUPS, 0))
    signatures = {c: signature(c, g, again=1) for c, g in GROUPS.items()}
    state = replace(state, signatures=signatures)
    assert settle(state, METHOD, ToyServer(30, tuple(GROUPS))) is state, "nothing has changed"
    state = replace(state, changed=tuple(GROUPS))
    assert settle(state, METHOD, ToyServer(9, tuple(GROUPS))) is state, "too early"
    after = settle(state, METHOD, ToyServer(30, tuple(GROUPS)))
    check(after)
    assert len(after.clusters) == 2
    assert (after.changed, after.settled) == ((), 30)
    again = replace(after, changed=tuple(GROUPS))
    assert settle(again, METHOD, ToyServer(60, tuple(GROUPS))).clusters == after.clusters, "no flapping"


def test_new_clusters_have_the_numbers_of_those_they_come_from() -> None:
    old, new = np.array([0, 0, 1, 1, 2]), np.array([2, 2, 0, 0, 1])
    assert renumbered(new, old, np.ones(5)).tolist() == [0, 0, 1, 1, 2]
    assert renumbered(np.array([0, 1, 1, 1, 1]), old, np.ones(5)).tolist() == [0, 1, 1, 1, 1]
    assert renumbered(np.array([0, 1, 2, 3, 4]), old, np.array([1.0, 5, 1, 5, 1])).tolist() == [3, 0, 4, 1, 2]


def test_forgotten_clients_leave_no_row_behind() -> None:
    state = started(GROUPS)
    after = forget(state, ["c0", "c3"])
    check(after)
    assert "c0" not in after.signatures
    alone = started({"a": 0, "b": 0, "c": 1, "d": 1, "e": 1})
    check(forget(alone, ["a", "b"]))


def gone(client: str, state: State) -> tuple[str, ...]:
    """Who is there when everybody of this client's cluster is away."""
    labels = state.clusters.labels()
    return tuple(c for c in labels if labels[c] != labels[client])


def test_a_cluster_without_anybody_learns_nothing_and_teaches_nobody_after_a_while() -> None:
    state = replace(started(GROUPS), sources=((1,), (0, 1)))
    away = state.clusters.of("c0")
    other, there = 1 - away, gone("c0", state)
    assert active_sources(who_is_there(state, ToyServer(4, tuple(GROUPS))), 50, 4) == state.sources
    emptied = who_is_there(state, ToyServer(5, there))
    assert emptied.empty == {str(away): 5}
    learned = {r: active_sources(who_is_there(emptied, ToyServer(r, there)), 50, r) for r in (5, 54, 55)}
    assert [learned[r][away] for r in learned] == [(), (), ()]
    assert learned[5][other] == learned[54][other] == state.sources[other]
    assert learned[55][other] == (other,), "nobody else teaches it"
    back = who_is_there(emptied, ToyServer(80, tuple(GROUPS)))
    assert back.empty is None
    assert active_sources(back, 50, 80) == state.sources


def test_a_note_of_an_empty_cluster_follows_its_number() -> None:
    groups = {f"c{i}": i % 3 for i in range(12)}
    state = started(groups)
    last = len(state.clusters) - 1
    assert last == 2
    member = state.clusters.members[last][0]
    emptied = who_is_there(state, ToyServer(5, gone(member, state)))
    first = state.clusters.members[0]
    away = groups[state.clusters.members[1][0]]
    moved = take_in(emptied, {c: signature(c, away, again=1) for c in first}, METHOD, ToyServer(6, ()))
    check(moved)
    assert moved.empty == {str(moved.clusters.of(member)): 5}


def test_an_heir_needs_the_majority_of_the_samples_else_models_are_averaged() -> None:
    models = tuple(model(z) for z in (0, 10, 40))
    assert model_of(models, np.array([1.0, 6.0, 3.0]), 0.6) is models[1]
    found = model_of(models, np.array([1.0, 5.0, 4.0]), 0.6)["head.bias"]
    assert found.tolist() == pytest.approx([0.1 * 0 + 0.5 * 10 + 0.4 * 40] * 2)


def test_rows_of_a_frame_follow_the_items() -> None:
    frame = started(GROUPS).frame
    some = of_items(frame, [3, 1])
    assert np.array_equal(some.weights_N, frame.weights_N[[3, 1]])


def test_one_cluster_separates_nothing() -> None:
    assert separation(np.ones((3, 3)), np.zeros(3, dtype=int)) == 0.0


class Lifecycle(RuleBasedStateMachine):
    """Joins, duplicates, leaves, returns, drifts and storms in any order."""

    @initialize(sizes=st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 4)))
    def start(self, sizes: tuple[int, int, int]) -> None:
        groups = [g for g, n in enumerate(sizes) for _ in range(n)]
        self.groups = {f"c{i:02d}": g for i, g in enumerate(groups)}
        self.state = started(self.groups)
        self.round, self.count, self.looks = 0, 0, [-100]
        self.gone: set[str] = set()

    def server(self) -> ToyServer:
        return ToyServer(self.round, tuple(c for c in self.state.signatures if c not in self.gone))

    def apply(self, change: Any, touched: set[str]) -> None:
        """Nobody moves unasked, unless everybody is clustered again, which happens rarely."""
        server, before = self.server(), self.state
        self.state = change(server)
        check(self.state)
        if server.notes.get("recluster", {}).get("accepted"):
            return
        others = [c for c in before.signatures if c not in touched and c in self.state.signatures]
        assert together(self.state, others) == together(before, others)

    @rule(group=st.integers(0, 3), number=st.integers(1, 4))
    def join(self, group: int, number: int) -> None:
        names = [f"n{self.count + i:03d}" for i in range(number)]
        self.count += number
        self.groups |= dict.fromkeys(names, group)
        fresh = {c: signature(c, group) for c in names}
        self.apply(lambda server: take_in(self.state, fresh, METHOD, server), set(names))

    @rule(pick=st.integers(0, 99))
    def duplicate(self, pick: int) -> None:
        client = sorted(self.state.signatures)[pick % len(self.state.signatures)]
        before = self.state
        assert METHOD.onboard(before, (client,), Silent()) is before  # type: ignore[arg-type]

    @rule(pick=st.integers(0, 99))
    def leave(self, pick: int) -> None:
        client = sorted(self.state.signatures)[pick % len(self.state.signatures)]
        self.gone ^= {client}  # or it returns
        self.apply(lambda server: METHOD.depart(self.state, (client,), server), set())

    @rule(pick=st.integers(0, 99))
    @precondition(lambda self: len(self.state.signatures) > 2)
    def forgotten(self, pick: int) -> None:
        client = sorted(self.state.signatures)[pick % len(self.state.signatures)]
        self.apply(lambda server: forget(self.state, [client]), {client})
        if client not in self.state.signatures:
            self.gone.discard(client)

    @rule(share=st.sampled_from([0.1, 0.25, 0.5, 1.0]), group=st.integers(0, 3), split=st.booleans())
    def drift(self, share: float, group: int, split: bool) -> None:
        clients = sorted(self.state.signatures)[: max(1, int(share * len(self.state.signatures)))]
        self.count += 1
        to = {c: (group + (i % 2 if split else 0)) % 4 for i, c in enumerate(clients)}
        then = dict(self.groups)
        self.groups |= to
        fresh = {c: signature(c, g, again=self.count) for c, g in to.items()}
        # Where clusters were mixed before, a stranger is not farther away than their members are.
        pure = all(len({then[c] for c in group}) == 1 for group in self.state.clusters.members)
        known = {g for c, g in then.items() if c in self.state.signatures and c not in to}
        self.apply(lambda server: answer_drift(self.state, fresh, METHOD, server), set(clients))
        for group in self.state.clusters.members:
            strangers = {self.groups[c] for c in group if c in to} - known
            assert (
                not pure or len(group) == 1 or not strangers or {self.groups[c] for c in group} == strangers
            )

    @rule(rounds=st.integers(1, 40))
    def notice(self, rounds: int) -> None:
        self.round += rounds
        self.apply(lambda server: who_is_there(self.state, server), set())
        sources = active_sources(self.state, METHOD.follow.idle, self.round)
        labels = self.state.clusters.labels()
        there = {labels[c] for c in self.server().clients}
        assert {z for z, of_z in enumerate(sources) if of_z} == there

    @rule(rounds=st.integers(1, 15))
    def settle(self, rounds: int) -> None:
        self.round += rounds
        before = self.state.settled
        self.apply(lambda server: settle(self.state, METHOD, server), set())
        if self.state.settled != before:
            assert self.state.settled - before >= METHOD.follow.rest or before == 0

    @invariant()
    def is_valid(self) -> None:
        if hasattr(self, "state"):
            check(self.state)


class Silent:
    """A server that nobody may ask."""

    def ask(self, task: Any, requests: Any, quorum: float) -> dict:
        assert not requests
        return {}


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(
    max_examples=6, stateful_step_count=6, deadline=None, suppress_health_check=QUIET
)


@pytest.mark.hard
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_sequences(part: int, counted: Any) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    class Part(Lifecycle):
        """Other sequences than those of the other parts."""

    run_state_machine_as_test(
        seed(100 + part)(Part),
        settings=settings(
            max_examples=250, stateful_step_count=10, deadline=None, suppress_health_check=QUIET
        ),
    )
    counted("sequences of joins, leaves and drifts", 250)
