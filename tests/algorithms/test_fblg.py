# SPDX-License-Identifier: Apache-2.0
"""FBLG: the client graph, the choice against exact enumeration, traffic, the identity with FedAvg."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from feddag.algorithms.fblg import FBLG, EmbedNoise, _between, embed_noise, graph_distances, select
from feddag.algorithms.fedavg import FedAvg
from tests.algorithms.toys import LOCAL, SETTINGS, FailingEngine, Toy, two_groups


def value(distances: np.ndarray, shares: np.ndarray, chosen: tuple[int, ...]) -> float:
    """The objective as it is written."""
    n = len(shares)
    pairs = sum(distances[i, j] for i, j in combinations(chosen, 2)) / (n * (n - 1))
    return float(pairs + sum(shares[i] for i in chosen))


def test_the_choice_is_nearly_the_best_of_all() -> None:
    exact_hits = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        points = generator.random((10, 2))
        distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
        shares = generator.dirichlet(np.ones(10)) * 0.05  # small, so that distances matter
        best = max(value(distances, shares, c) for c in combinations(range(10), 4))
        found = value(distances, shares, tuple(select(distances, shares, 4)))
        assert found <= best + 1e-12
        assert found >= 0.97 * best
        exact_hits += found >= best - 1e-12
    assert exact_hits >= 14


def test_large_clients_win_when_all_are_equally_far() -> None:
    distances = np.ones((4, 4)) - np.eye(4)
    assert select(distances, np.array([0.1, 0.4, 0.2, 0.3]), 2) == [1, 3]


def test_distant_clients_win_when_all_are_equally_large() -> None:
    distances = np.abs(np.subtract.outer([0.0, 0.1, 0.2, 1.0], [0.0, 0.1, 0.2, 1.0]))
    assert select(distances, np.full(4, 0.25), 2) == [0, 3]


def test_graph_distances_by_hand() -> None:
    # two clients see alike, the third sees the opposite: JS = 1 bit, similarity 1/2, rescaled to 0: no edge
    embeddings = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    expected = [[0, 1, 1], [1, 0, 1], [1, 1, 0]]  # the one path is the longest, the rest out of reach
    np.testing.assert_allclose(graph_distances(embeddings), expected)


def test_paths_may_lead_over_other_clients() -> None:
    embeddings = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])

    def js(p: np.ndarray, q: np.ndarray) -> float:
        m = (p + q) / 2
        return float(0.5 * (p * np.log2(p / m)).sum() + 0.5 * (q * np.log2(q / m)).sum())

    near, far = 1 / (1 + js(embeddings[0], embeddings[1])), 1 / (1 + js(embeddings[0], embeddings[2]))
    similarity = (near - far) / (1 - far)  # of neighbours; that of the ends is 0: no edge
    step = np.exp(-(similarity**2) / 0.1)
    found = graph_distances(embeddings)
    assert found[0, 2] == 1.0
    assert found[0, 1] == pytest.approx(step / (2 * step))


def test_equal_embeddings_are_all_equally_near() -> None:
    found = graph_distances(np.full((3, 4), 0.25))
    np.testing.assert_allclose(found, 1 - np.eye(3))


def test_everybody_looks_at_the_same_noise() -> None:
    toy = Toy(two_groups(2))
    params = toy.server(0).initial_params()
    request = EmbedNoise(params=params, local=LOCAL, noise=16)
    one = embed_noise(request, toy.client("c0"))
    other = embed_noise(request, replace(toy.client("c0"), id="c1"))
    np.testing.assert_array_equal(one.embedding, other.embedding)
    assert one.embedding.sum() == pytest.approx(1.0)
    assert one.embedding.min() >= 0


def test_with_all_candidates_and_full_participation_it_is_fedavg() -> None:
    whole = replace(LOCAL, batch_size=1000)  # one batch an epoch: its order only rounds differently
    chosen, plain = Toy(two_groups(4)), Toy(two_groups(4))
    state = chosen.play(FBLG(local=whole, candidates=1.0), 4)
    expected = plain.play(FedAvg(local=whole), 4)
    torch.testing.assert_close(state.params.vector, expected.params.vector, atol=1e-6, rtol=0)


def test_it_trains_a_cohort_of_the_highest_losses_and_pays_for_asking_everybody() -> None:
    toy = Toy(two_groups(8), fraction=0.25)
    algorithm = FBLG(local=LOCAL)
    start = algorithm.start(toy.server(0))
    assert start.params == toy.server(0).initial_params()
    server = toy.server(1)
    algorithm.round(start, server)
    losses = {c: reply_loss(toy, c, start.params) for c in toy.clients}
    candidates = sorted(losses, key=lambda c: -losses[c])[:4]
    assert len(server.notes["chosen"]) == 2
    assert set(server.notes["chosen"]) <= set(candidates)
    model = 4 * start.params.layout.size
    assert toy.traffic[1] == ("compare", 8 * model, 8 * (8 + 8))
    assert toy.traffic[2] == ("train", 2 * (model + SETTINGS), 2 * (model + 8))


def reply_loss(toy: Toy, client: str, params: object) -> float:
    from feddag.learning.evaluation import sample_losses

    return float(sample_losses(toy.client(client), params).double().mean())  # type: ignore[arg-type]


def test_a_client_outside_of_the_graph_is_as_far_as_can_be() -> None:
    toy = Toy(two_groups(4), fraction=0.75)
    algorithm = FBLG(local=LOCAL, candidates=1.0)
    engine = FailingEngine(toy.engine, {"c2"})
    state = algorithm.start(replace(toy.server(0), engine=engine, quorum=0.5))
    assert state.clients == ("c0", "c1", "c3")
    distances = _between(state, ["c1", "c2", "c3"])
    assert distances[1].tolist() == [1.0, 0.0, 1.0]
    assert distances[0, 2] == state.distances_NN[1, 2]
    server = toy.server(1)
    algorithm.round(state, server)
    assert len(server.notes["chosen"]) == 3
