# SPDX-License-Identifier: Apache-2.0
"""CFL-GP: the cycle of criteria, the running means, known and unknown K, traffic, newcomers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from feddag.algorithms.cfl_gp import CFLGP, AskGradients, ask_gradients, masked
from feddag.algorithms.fedavg import FedAvg
from feddag.clustering.profiles import (
    best_count,
    comparable,
    complete_blocks,
    leading_directions,
    matched_labels,
)
from feddag.core.params import Params
from feddag.learning.evaluation import sample_losses
from feddag.learning.gradients import mean_gradient
from tests.algorithms.toys import LOCAL, SETTINGS, Toy, four_groups, two_groups, with_newcomers


def test_the_mean_gradient_is_the_slope_of_the_mean_loss() -> None:
    toy = Toy(two_groups(2))
    client, params = toy.client("c0"), toy.server(0).initial_params()
    gradient = mean_gradient(client, params)
    step = 1e-2
    direction = gradient * (1 / gradient.norm())
    losses = [sample_losses(client, params + direction * h).double().mean() for h in (step, -step)]
    assert float(losses[0] - losses[1]) / (2 * step) == pytest.approx(gradient.norm(), rel=1e-2)


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


def test_a_newcomer_with_an_old_clients_data_lands_on_its_point() -> None:
    federation = two_groups(6)
    federation = replace(federation, clients={**federation.clients, "c5": federation.clients["c1"]})
    toy = Toy(with_newcomers(federation, "c5"))
    algorithm = CFLGP(local=LOCAL, num_clusters=2)
    state = toy.play(algorithm, 3)  # one criterion each: block 0 at the start, block 1 in round 2
    replies = algorithm._ask(toy.server(3, "newcomers"), state.criteria, ("c5",))
    point = state.directions_FM @ replies["c5"].reshape(-1)
    np.testing.assert_allclose(point, state.points_NF[1], rtol=1e-4, atol=1e-5)


def test_every_model_becomes_the_criterion_in_its_turn() -> None:
    toy = Toy(four_groups())
    toy.play(CFLGP(local=LOCAL, num_clusters=3, period=1, clustering_rounds=7), 6)
    assert [notes["criterion"] for notes in toy.notes] == [0, 1, 2, 0, 1, 2, 0]


def test_the_profile_is_the_mean_of_what_a_client_told() -> None:
    toy = Toy(two_groups(2))
    algorithm = CFLGP(local=LOCAL, num_clusters=1, period=1)
    start = algorithm.start(toy.server(0))
    state = algorithm.round(start, toy.server(1))
    first, second = (
        mean_gradient(toy.client("c0"), model).vector.numpy() for model in (start.models[0], start.models[0])
    )
    assert state.counts_NK.tolist() == [[2], [2]]
    np.testing.assert_allclose(state.profile_NKD[0, 0], (first + second) / 2, rtol=1e-5, atol=1e-7)


def test_two_models_travel_only_when_the_criterion_is_another_clusters() -> None:
    toy = Toy(two_groups(4))
    state = toy.play(CFLGP(local=LOCAL, num_clusters=2), 3)
    model = 4 * state.models[0].layout.size
    mask = 2 * 8
    assert toy.traffic == [
        ("ask_gradients", 4 * (model + mask), 4 * model),
        ("train", 4 * (model + SETTINGS), 4 * (model + 8)),
        # two of four clients already have the criterion: it is the model they train
        ("train_with_gradient", 4 * (model + SETTINGS + mask) + 2 * model, 4 * (2 * model + 8)),
        ("train", 4 * (model + SETTINGS), 4 * (model + 8)),
    ]


def test_compression_keeps_the_same_coordinates_for_everybody() -> None:
    toy = Toy(two_groups(2))
    model = toy.server(0).initial_params()
    request = AskGradients(models=(model,), mask=7, compression=100)
    told = [ask_gradients(request, toy.client(c)).gradients for c in ("c0", "c1")]
    assert told[0].shape == told[1].shape == (1, model.layout.size // 100)
    full = mean_gradient(toy.client("c0"), model)
    np.testing.assert_array_equal(told[0][0], masked(full, 7, 100))
    positions = masked(full.like(torch.arange(float(model.layout.size))), 7, 100)
    np.testing.assert_array_equal(told[0][0], full.vector.numpy()[positions.astype(int)])


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
    assert comparable(profile, counts)[:, :, 0].tolist() == [[2.0, 0.0], [4.0, 0.0], [3.0, 0.0]]


def test_who_was_in_the_cohort_decides_nothing() -> None:
    toy = Toy(four_groups(16), fraction=0.25)
    state = toy.play(CFLGP(local=LOCAL, num_clusters=4), 9)
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
