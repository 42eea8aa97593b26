# SPDX-License-Identifier: Apache-2.0
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddag.algorithms.feddrift import cluster_distances, merge
from feddag.learning.choose import Compared
from tests.contracts.toys import play, toy


def told(*losses: float, examples: int = 1) -> Compared:
    return Compared(losses=np.array(losses), examples=examples)


def test_the_distance_of_two_clusters_is_the_larger_loss_that_a_swap_of_models_costs() -> None:
    replies = {"a": told(1.0, 3.0, examples=1), "b": told(2.0, 6.0, examples=3), "c": told(5.0, 4.5)}
    distances = cluster_distances(replies, {"a": 0, "b": 0, "c": 1}, 2)
    of_first = (1.0 + 3 * 2.0) / 4, (3.0 + 3 * 6.0) / 4  # both models on the data of cluster 0
    assert distances[0, 1] == distances[1, 0] == max(of_first[1] - of_first[0], 5.0 - 4.5)
    assert np.isinf(cluster_distances(replies, {"a": 0, "b": 0, "c": 0}, 2)[0, 1]), "nobody is in cluster 1"


def test_clusters_merge_by_complete_linkage() -> None:
    line = np.abs(np.subtract.outer([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]))
    assert merge(line, 1.5) == [[0, 1], [2]], "0 and 2 are too far apart, though 1 is near to both"
    assert merge(line, 3.0) == [[0, 1, 2]]
    assert merge(line, 0.0) == [[0], [1], [2]]


@given(st.integers(1, 6), st.floats(0, 2), st.integers(0, 1000))
def test_groups_are_a_partition_whose_diameter_is_below_delta(n: int, delta: float, seed: int) -> None:
    distances = np.random.default_rng(seed).random((n, n)) * 2
    distances = np.maximum(distances, distances.T)
    groups = merge(distances, delta)
    assert sorted(z for group in groups for z in group) == list(range(n))
    for group in groups:
        block = distances[np.ix_(group, group)]
        assert len(group) == 1 or block[~np.eye(len(group), dtype=bool)].max() < delta


def test_a_client_whose_loss_jumps_opens_a_cluster() -> None:
    prepared = toy("feddrift", {"period": 1, "delta": 0.0})
    trace = play(prepared, rounds=3)
    assert any(note.get("drifted") for note in trace.notes)
    for state in trace.states:
        assert len(state.models) == len(state.clusters)
        assert not set(state.losses) - set(state.clusters.labels())
