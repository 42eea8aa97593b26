# SPDX-License-Identifier: Apache-2.0
"""PACFL: angles one can check by hand, thresholds, late and new clients."""

from dataclasses import replace

import numpy as np
import pytest

from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.pacfl import (
    PACFL,
    Basis,
    Describe,
    absorbed,
    angles_between,
    describe,
    nearest_threshold,
)
from feddag.clustering.agglomerative import cut, link
from feddag.core.algorithm import Server
from tests.algorithms.toys import LOCAL, FailingEngine, Toy, four_groups, two_groups, with_newcomers


def basis(*rows: tuple[float, ...]) -> Basis:
    return Basis(vectors_PD=np.array(rows, dtype=np.float32))


X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
TILTED = (float(np.cos(np.pi / 6)), 0.5, 0.0)  # 30 degrees from X, 60 from Y


@pytest.mark.parametrize(
    ("measure", "angle"),
    [
        ("eq2", 30.0),  # the nearest pair is X and TILTED
        ("eq3", 90.0 + 60.0),  # Z against X, Y against TILTED: same places only
        ("subspace", 0.0),  # TILTED lies in the plane of X and Y; so does X
    ],
)
def test_angles_between_two_bases_are_what_the_equations_say(measure: str, angle: float) -> None:
    left, right = basis(X, Y), basis(Z, TILTED)
    if measure == "eq2":
        left = basis(X, (0.0, 0.0, 0.0))
    angles = angles_between({"a": left, "b": right}, measure)  # type: ignore[arg-type]
    assert angles[0, 1] == pytest.approx(angle, abs=0.05)
    assert angles[1, 0] == angles[0, 1]
    assert angles[0, 0] == 0


@pytest.mark.parametrize("measure", ["eq2", "eq3", "subspace"])
def test_the_sign_of_a_singular_vector_does_not_matter(measure: str) -> None:
    flipped = basis(*(tuple(-v for v in row) for row in (Z, TILTED)))
    before = angles_between({"a": basis(X, Y), "b": basis(Z, TILTED)}, measure)  # type: ignore[arg-type]
    after = angles_between({"a": basis(X, Y), "b": flipped}, measure)  # type: ignore[arg-type]
    np.testing.assert_allclose(before, after, atol=1e-4)


def test_eq3_compares_the_places_both_have() -> None:
    angles = angles_between({"a": basis(X, Y, Z), "b": basis(TILTED)}, "eq3")
    assert angles[0, 1] == pytest.approx(30.0, abs=1e-3)


def test_the_threshold_lies_between_the_wanted_cut_and_the_next() -> None:
    points = np.array([0.0, 1.0, 10.0, 12.0, 40.0])
    tree = link(np.abs(points[:, None] - points[None, :]), "single")
    threshold = nearest_threshold(tree, 3)  # merges at 1, 2, 9, 28
    assert threshold == 5.5
    assert cut(tree, threshold).tolist() == [0, 0, 1, 1, 2]
    assert len(set(cut(tree, nearest_threshold(tree, 1)))) == 1


def test_signatures_hold_p_vectors_of_every_class_a_client_has() -> None:
    toy = Toy(two_groups(2))
    reply = describe(Describe(vectors=3), toy.client("c0"))
    assert reply.vectors_PD.shape == (6, 4)


def test_with_one_cluster_it_is_fedavg_bit_for_bit() -> None:
    clustered, plain = Toy(two_groups(4), fraction=0.5), Toy(two_groups(4), fraction=0.5)
    state = clustered.play(PACFL(local=LOCAL, threshold=180.0), 4)
    assert state.models == (plain.play(FedAvg(local=LOCAL), 4).params,)


def test_clients_that_see_other_features_are_set_apart_and_newcomers_find_their_like() -> None:
    toy = Toy(with_newcomers(four_groups(), "c08", "c11"))
    algorithm = PACFL(local=LOCAL, vectors=1, num_clusters=2)
    state = toy.play(algorithm, 1)
    expected = [[c for c in toy.clients if toy.federation.groups[c] // 2 == half] for half in (0, 1)]
    assert [list(cluster) for cluster in state.clusters.members] == expected
    after = algorithm.onboard(state, ("c08", "c11"), toy.server(1, "newcomers"))
    assert after.clusters.of("c08") == after.clusters.of("c00")
    assert after.clusters.of("c11") == after.clusters.of("c02")
    assert after.models == state.models


def test_a_client_that_missed_the_start_is_taken_in_when_it_comes() -> None:
    toy = Toy(four_groups())
    algorithm = PACFL(local=LOCAL, vectors=1, num_clusters=2)

    def server(round_: int, failing: set[str]) -> Server:
        return replace(toy.server(round_), engine=FailingEngine(toy.engine, failing), quorum=0.5)

    state = algorithm.start(server(0, {"c05"}))
    assert "c05" not in state.clusters.labels()
    assert len(algorithm.deploy(state, "c05").models) == 2
    state = algorithm.round(state, server(1, set()))
    assert state.clusters.of("c05") == state.clusters.of("c00")


def test_singletons_do_not_use_up_the_number_of_clusters() -> None:
    points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 40.0, 90.0])
    angles = np.abs(points[:, None] - points[None, :])
    tree = link(angles, "average")
    assert cut(tree, nearest_threshold(tree, 2)).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    labels = cut(tree, nearest_threshold(tree, 2, min_size=2))
    assert absorbed(labels, angles, 2).tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert absorbed(np.array([0, 1]), angles[:2, :2], 2).tolist() == [0, 1], "nobody is large enough"


def test_a_warm_start_trains_everybody_within_the_clusters_and_counts_as_rounds() -> None:
    warm, cold = Toy(four_groups(), fraction=0.25), Toy(four_groups())
    algorithm = PACFL(local=LOCAL, vectors=1, num_clusters=2, warmup_rounds=1)
    state = algorithm.start(replace(warm.server(0), num_rounds=3))
    rounds = cold.play(PACFL(local=LOCAL, vectors=1, num_clusters=2), 1)
    assert state.clusters == rounds.clusters
    assert all(model != warm.server(0).initial_params() for model in state.models)
    asked = len(warm.traffic)
    assert algorithm.round(state, replace(warm.server(1), num_rounds=3)) == state
    assert len(warm.traffic) == asked
    assert algorithm.round(state, replace(warm.server(2), num_rounds=3)) != state
