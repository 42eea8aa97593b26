# SPDX-License-Identifier: Apache-2.0
"""CFL: when it splits, how, and that nested splits never lose or double a client."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from feddag.algorithms.cfl import CFL, bipartition
from feddag.algorithms.fedavg import FedAvg
from feddag.core.params import Params
from feddag.learning.train import Trained
from tests.algorithms.toys import LOCAL, FailingEngine, Toy, four_groups, two_groups, with_newcomers

EAGER = {"local": LOCAL, "eps1": 1e9, "eps2": 0.0, "min_rounds": 0}  # splits whatever has three members


def params(*values: float) -> Params:
    return Params.of({"w": torch.tensor(values)})


@pytest.mark.parametrize("linkage", ["complete", "single"])
def test_opposite_updates_are_told_apart_by_client_id(linkage: str) -> None:
    updates = {"e": params(1, 0.1), "b": params(-2, 0.2), "d": params(3, 0), "a": params(-1, -0.1)}
    parts = bipartition(updates, linkage)  # type: ignore[arg-type]
    assert sorted(map(sorted, parts)) == [["a", "b"], ["d", "e"]]


def test_statistics_of_batch_normalisation_tell_nobody_apart() -> None:
    def update(weight: float, variance: float) -> Params:
        tensors = {"w": torch.tensor([weight, 0.1]), "var": torch.tensor([variance])}
        return Params.of(tensors, ["var"])

    updates = {"a": update(-1, 50.0), "b": update(-2, -50.0), "d": update(3, 50.0), "e": update(1, -50.0)}
    assert sorted(map(sorted, bipartition(updates, "complete"))) == [["a", "b"], ["d", "e"]]


def test_single_linkage_minimises_the_largest_similarity_across_the_cut() -> None:
    generator = np.random.default_rng(3)
    for _ in range(10):
        vectors = generator.normal(size=(7, 4)).astype(np.float32)
        updates = {str(i): params(*row) for i, row in enumerate(vectors)}
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T

        def across(part: set[str], cosines: np.ndarray = cosines) -> float:
            inside = sorted(int(c) for c in part)
            outside = [i for i in range(7) if i not in inside]
            return float(cosines[np.ix_(inside, outside)].max())

        best = min(across(set(map(str, part))) for size in (1, 2, 3) for part in combinations(range(7), size))
        assert across(bipartition(updates, "single")[0]) == pytest.approx(best, abs=1e-5)


def test_without_a_split_it_is_fedavg_bit_for_bit() -> None:
    clustered, plain = Toy(two_groups(4), fraction=0.5), Toy(two_groups(4), fraction=0.5)
    state = clustered.play(CFL(local=LOCAL, min_rounds=0, eps1=1e9, eps2=1e9), 5)
    assert state.models == (plain.play(FedAvg(local=LOCAL), 5).params,)
    assert state.splits == ()


@pytest.mark.parametrize("linkage", ["complete", "single"])
def test_nested_splits_keep_a_partition_of_the_client_ids(linkage: str) -> None:
    toy = Toy(four_groups(12))
    algorithm = CFL(**EAGER, linkage=linkage)  # type: ignore[arg-type]
    state = algorithm.start(toy.server(0))
    for round_ in range(1, 6):
        state = algorithm.round(state, toy.server(round_))
        assert sorted(c for cluster in state.clusters.members for c in cluster) == sorted(toy.clients)
        assert len(state.models) == len(state.clusters) == len(state.peaks) == len(state.splits) + 1
    assert len({split.cluster for split in state.splits}) > 1  # splits of splits on both sides


def test_two_nested_splits_find_four_groups_exactly() -> None:
    toy = Toy(four_groups(12))
    state = toy.play(CFL(**EAGER), 2)  # type: ignore[arg-type]
    assert len(state.clusters) == 4
    groups = [{toy.federation.groups[c] for c in cluster} for cluster in state.clusters.members]
    assert sorted(map(sorted, groups)) == [[0], [1], [2], [3]]


def test_it_splits_only_when_the_mean_is_small_and_a_member_is_not() -> None:
    toy = Toy(two_groups(4))
    start = CFL(local=LOCAL).start(toy.server(0))
    mean_norm, max_norm = 1.0, 5.0
    for eps1, eps2, splits in [(1.1, 4.9, True), (0.9, 4.9, False), (1.1, 5.1, False)]:
        algorithm = CFL(local=LOCAL, eps1=eps1, eps2=eps2)
        assert algorithm._disagrees(start, 0, 4, mean_norm, max_norm) is splits
    relative = replace(start, peaks=(11.0,))  # eps1 = 1.1, eps2 = 4.4
    assert CFL(local=LOCAL)._disagrees(relative, 0, 4, mean_norm, max_norm)
    assert not CFL(local=LOCAL)._disagrees(relative, 0, 3, mean_norm, max_norm)  # 75% heard, 80% needed


def test_no_split_up_to_the_least_round_or_below_three_members() -> None:
    toy = Toy(two_groups(2))
    assert len(toy.play(CFL(**EAGER), 2).clusters) == 1  # type: ignore[arg-type]
    toy = Toy(two_groups(4))
    assert len(toy.play(CFL(**{**EAGER, "min_rounds": 2}), 2).clusters) == 1  # type: ignore[arg-type]


def test_members_not_heard_lately_are_asked_before_a_split_and_none_is_lost() -> None:
    toy = Toy(two_groups(10))
    algorithm = CFL(**EAGER)  # type: ignore[arg-type]
    state = algorithm.start(toy.server(0))
    early = replace(toy.server(1), cohort=tuple(f"c{i}" for i in range(7)))
    state = algorithm.round(state, early)
    assert len(state.clusters) == 1  # 70% heard
    late = replace(toy.server(2), cohort=("c0", "c7"))
    state = algorithm.round(state, late)
    assert [task for task, _, _ in toy.traffic] == ["train", "train", "train"]
    evens, odds = (tuple(f"c{i}" for i in range(k, 10, 2)) for k in (0, 1))
    assert sorted(state.clusters.members) == sorted([evens, odds])
    assert state.window == {}


def test_a_split_survives_when_the_unheard_do_not_answer() -> None:
    toy = Toy(two_groups(10))
    algorithm = CFL(**EAGER)  # type: ignore[arg-type]
    state = algorithm.start(toy.server(0))
    engine = FailingEngine(toy.engine, {"c9"})
    state = algorithm.round(state, replace(toy.server(1), engine=engine, quorum=0.5))
    assert sorted(c for cluster in state.clusters.members for c in cluster) == sorted(toy.clients)
    assert len(state.clusters) == 2


def test_newcomers_descend_the_tree_to_their_like() -> None:
    toy = Toy(with_newcomers(four_groups(16), "c12", "c13", "c14", "c15"))
    algorithm = CFL(**EAGER)  # type: ignore[arg-type]
    state = algorithm.start(toy.server(0))
    while len(state.clusters) < 4:
        state = algorithm.round(state, toy.server(state.splits.__len__() + 1))
    toy.traffic.clear()
    after = algorithm.onboard(state, ("c12", "c13", "c14", "c15"), toy.server(9, "newcomers"))
    for newcomer in ("c12", "c13", "c14", "c15"):
        cluster = after.clusters.members[after.clusters.of(newcomer)]
        assert {toy.federation.groups[c] for c in cluster} == {toy.federation.groups[newcomer]}
    assert len(toy.traffic) == len(state.splits)


def test_the_window_keeps_the_latest_update_of_each_member() -> None:
    toy = Toy(two_groups(4), fraction=0.5)
    state = toy.play(CFL(local=LOCAL), 6)
    assert set(state.window) <= set(toy.clients)
    assert all(isinstance(reply, Trained) for reply in state.window.values())


def test_updates_that_are_too_old_count_no_more() -> None:
    toy = Toy(two_groups(6), fraction=0.34)
    algorithm = CFL(local=LOCAL, window=2)
    state = algorithm.start(toy.server(0))
    for round_ in range(1, 5):
        state = algorithm.round(state, toy.server(round_))
    assert set(state.window) == {*toy.server(3).cohort, *toy.server(4).cohort} == set(state.heard)


def test_members_count_equally_in_the_test_for_a_split() -> None:
    # c0 has most samples. Weighted by samples the mean update is nearly its own and never small.
    toy = Toy(two_groups(4))
    algorithm = CFL(local=LOCAL, eps1=0.5, eps2=0.9, min_rounds=0)
    start = algorithm.start(toy.server(0))
    flat = start.models[0] * 0.0
    one = flat.like(torch.eye(1, flat.layout.size).reshape(-1))
    replies = {f"c{i}": Trained(update=one * (-1.0) ** i, examples=100 if i == 0 else 1) for i in range(4)}
    server = replace(toy.server(1))
    server.ask = lambda task, requests, quorum=None: replies  # type: ignore[method-assign]
    after = algorithm.round(start, server)
    assert sorted(after.clusters.members) == [("c0", "c2"), ("c1", "c3")]


def test_a_member_without_samples_does_not_stop_the_round() -> None:
    toy = Toy(two_groups(4))
    algorithm = CFL(local=LOCAL)
    start = algorithm.start(toy.server(0))
    server = replace(toy.server(1), cohort=("c0",))
    empty = Trained(update=start.models[0] * 0.0, examples=0)
    server.ask = lambda task, requests, quorum=None: {"c0": empty}  # type: ignore[method-assign]
    after = algorithm.round(start, server)
    assert after.models == start.models
    assert set(after.window) == {"c0"}


@pytest.mark.parametrize(("rounds", "first"), [(16, 5), (200, 21), (1, 1)])
def test_it_may_split_after_a_quarter_of_the_rounds_and_at_most_twenty(rounds: int, first: int) -> None:
    assert CFL().acts_from(rounds) == first
    assert CFL(min_rounds=20).acts_from(rounds) == 21
