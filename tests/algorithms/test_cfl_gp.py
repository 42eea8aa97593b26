# SPDX-License-Identifier: Apache-2.0
"""CFL-GP: the cycle of criteria, the running means, known and unknown K, who is asked, newcomers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from feddag.algorithms.cfl_gp import CFLGP, masked
from feddag.algorithms.fedavg import FedAvg
from feddag.clustering.profiles import (
    best_count,
    comparable,
    complete_blocks,
    leading_directions,
    matched_labels,
)
from feddag.core.engine import Exchange
from feddag.core.params import Params
from feddag.learning.sgd import sgd
from tests.algorithms.toys import LOCAL, Toy, four_groups, two_groups, with_newcomers


def test_with_one_model_it_is_fedavg_bit_for_bit() -> None:
    clustered, plain = Toy(two_groups(4), fraction=0.5), Toy(two_groups(4), fraction=0.5)
    state = clustered.play(CFLGP(local=LOCAL, num_clusters=1), 5)
    assert state.models == (plain.play(FedAvg(local=LOCAL), 5).params,)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("normalise", [False, True])
def test_contradicting_clients_are_assigned_to_different_models(fraction: float, normalise: bool) -> None:
    toy = Toy(with_newcomers(two_groups(10), "c8", "c9"), fraction)
    algorithm = CFLGP(local=LOCAL, num_clusters=2, normalise=normalise)
    state = toy.play(algorithm, 6)
    evens = {state.assignment[f"c{i}"] for i in range(0, 8, 2)}
    odds = {state.assignment[f"c{i}"] for i in range(1, 8, 2)}
    assert len(evens) == len(odds) == 1
    assert evens != odds
    after = algorithm.onboard(state, ("c8", "c9"), toy.server(6, "newcomers"))
    assert ({after.assignment["c8"]}, {after.assignment["c9"]}) == (evens, odds)
    assert [toy.accuracy(algorithm, after, c) for c in toy.federation.ids] == [1.0] * 10


def test_a_newcomer_with_an_old_clients_data_joins_its_cluster() -> None:
    federation = two_groups(6)
    federation = replace(federation, clients={**federation.clients, "c5": federation.clients["c1"]})
    toy = Toy(with_newcomers(federation, "c5"))
    algorithm = CFLGP(local=LOCAL, num_clusters=2, clustering_rounds=4)
    state = toy.play(algorithm, 5)
    toy.traffic.clear()
    after = algorithm.onboard(state, ("c5",), toy.server(5, "newcomers"))
    assert after.assignment["c5"] == state.assignment["c1"]
    assert [task for task, _, _ in toy.traffic] == ["train", "train"], "at both models of the profile"


def test_every_model_becomes_the_criterion_in_its_turn() -> None:
    toy = Toy(four_groups())
    toy.play(CFLGP(local=LOCAL, num_clusters=3, period=1, clustering_rounds=7), 8)
    assert [notes.get("criterion") for notes in toy.notes] == [None, 0, 1, 2, 0, 1, 2, 0, None]


def test_everybody_is_asked_in_clustering_rounds_whoever_was_drawn() -> None:
    toy = Toy(four_groups(16), fraction=0.25)
    algorithm = CFLGP(local=LOCAL, num_clusters=4, clustering_rounds=8)
    state = algorithm.start(toy.server(0))
    for round_ in range(1, 9):
        state = algorithm.round(state, toy.server(round_))
        if round_ % 2 == 0 and round_ < 8:
            assert (state.counts_NK > 0).all(0).tolist() == [k < round_ / 2 for k in range(4)]
    assert state.counts_NK.tolist() == [[1, 1, 1, 1]] * 16


def test_the_profile_is_the_running_mean_of_a_clients_model_gaps() -> None:
    toy = Toy(two_groups(4))
    algorithm = CFLGP(local=LOCAL, num_clusters=2, period=1, clustering_rounds=6)
    state = algorithm.start(toy.server(0))
    gaps: dict[int, list[np.ndarray]] = {0: [], 1: []}
    for round_ in range(1, 6):
        before = state
        state = algorithm.round(state, toy.server(round_))
        question = toy.seed / "round" / round_ / "question" / 0
        client = replace(toy.client("c0"), seed=Exchange(round_, question).client_seed("c0"))
        criterion = before.models[before.turn]
        gaps[before.turn].append((sgd(client, criterion, LOCAL) - criterion).vector.numpy())
    for k, told in gaps.items():
        assert state.counts_NK[0, k] == len(told)
        np.testing.assert_allclose(state.profile_NKD[0, k], np.mean(told, 0), rtol=1e-4, atol=1e-5)


def test_each_cluster_begins_with_what_its_members_made_of_the_common_model() -> None:
    toy = Toy(two_groups(4))
    algorithm = CFLGP(local=LOCAL, num_clusters=2, period=1, clustering_rounds=1)
    start = algorithm.start(toy.server(0))
    assert len(start.models) == 1
    state = algorithm.round(start, toy.server(1))
    assert len(state.models) == 2
    assert [toy.accuracy(algorithm, state, f"c{i}") for i in range(4)] == [1.0] * 4


@pytest.mark.parametrize(("rounds", "when"), [(15, [2]), (40, [2, 4, 6, 8]), (200, [2, 4, 6, 8, 10])])
def test_clusters_are_found_in_the_first_fifth_of_the_rounds(rounds: int, when: list[int]) -> None:
    assert [*CFLGP().clustering_in(rounds)] == when
    assert CFLGP().acts_from(rounds) == 2
    assert not CFLGP(num_clusters=1).clustering_in(rounds)


def test_the_same_coordinates_are_kept_of_everybodys_gap() -> None:
    gap = Params.of({"w": torch.arange(1000.0)})
    kept = masked(gap, 7, 100)
    assert kept.shape == (10,)
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(kept, masked(gap, 7, 100))


def test_the_number_of_clusters_is_found_when_it_is_not_known() -> None:
    toy = Toy(four_groups(16))
    state = toy.play(CFLGP(local=LOCAL, num_clusters="auto"), 3)
    assert len(state.models) == 4
    for group in range(4):
        assert len({state.assignment[c] for c in toy.clients if toy.federation.groups[c] == group}) == 1


def test_the_profile_is_dropped_when_assignments_are_final() -> None:
    toy = Toy(two_groups(4))
    state = toy.play(CFLGP(local=LOCAL, num_clusters=2, clustering_rounds=3), 4)
    assert state.profile_NKD.size == 0
    assert state.points_NF.shape[0] == 4


def test_only_complete_blocks_count_and_gaps_are_filled_with_the_others_mean() -> None:
    profile = np.array([[[2.0], [1.0]], [[4.0], [0.0]], [[0.0], [0.0]]])
    counts = np.array([[1, 1], [1, 0], [0, 0]])
    assert complete_blocks(counts).tolist() == [0]
    assert complete_blocks(np.array([[1, 1], [1, 0], [1, 1]])).tolist() == [0, 1], "one gap is filled"
    assert comparable(profile, counts)[:, :, 0].tolist() == [[2.0, 0.0], [4.0, 0.0], [3.0, 0.0]]


def test_who_was_in_the_cohort_decides_nothing() -> None:
    toy = Toy(four_groups(16), fraction=0.25)
    state = toy.play(CFLGP(local=LOCAL, num_clusters=4, clustering_rounds=8), 9)
    clusters = {
        g: {state.assignment[c] for c in toy.clients if toy.federation.groups[c] == g} for g in range(4)
    }
    assert sorted(map(len, clusters.values())) == [1, 1, 1, 1]
    assert len(set.union(*clusters.values())) == 4


def test_leading_directions_are_the_left_singular_vectors() -> None:
    columns = np.random.default_rng(0).normal(size=(5, 9))
    left, values, _ = np.linalg.svd(columns.T, full_matrices=False)
    found = leading_directions(columns, 2)
    np.testing.assert_allclose(np.abs(found @ left[:, :2]), np.eye(2), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(columns @ found.T, axis=0), values[:2], rtol=1e-5)


def test_labels_are_renamed_to_agree_with_the_former_ones() -> None:
    assert matched_labels(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 0]), 3).tolist()[:2] == [2, 2]
    assert matched_labels(np.array([1, 0, 0]), np.array([0, 1, 1]), 2).tolist() == [0, 1, 1]


def test_the_best_number_of_clusters_has_the_greatest_silhouette() -> None:
    points = np.array([[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]])
    assert best_count(points, 5, seed=0) == 3
    assert best_count(np.zeros((4, 1)), 5, seed=0) == 1


def test_a_masked_gradient_without_compression_is_the_whole() -> None:
    gradient = Params.of({"w": torch.tensor([1.0, 2.0])})
    assert masked(gradient, 1, 1).tolist() == [1.0, 2.0]
