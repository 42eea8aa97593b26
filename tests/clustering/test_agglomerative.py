# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from feddag.clustering.agglomerative import agreement, cut, cut_into, link, merge_thresholds
from feddag.clustering.arrays import canonical_labels
from feddag.clustering.options import GRID, LossWeights
from feddag.clustering.scores import score_cuts
from tests.clustering import literal
from tests.clustering.toys import blobs, distance_matrices


def random_distances(seed, n):
    m = np.triu(np.random.default_rng(seed).random((n, n)), 1)
    return m + m.T


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 10),
    st.sampled_from(["average", "single", "complete", "weighted"]),
    st.sampled_from(GRID),
)
def test_cuts_equal_merging_by_hand(seed, n, method, threshold):
    distances = random_distances(seed, n)
    labels = cut(link(distances, method), threshold)
    assert labels.tolist() == literal.hierarchical(distances, threshold, method)


def test_two_groups_exactly_at_the_threshold_are_merged():
    distances = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert cut(link(distances), 1.0).tolist() == [0, 0]
    assert cut(link(distances), 0.999).tolist() == [0, 1]


@settings(max_examples=60, deadline=None)
@given(distance_matrices(smallest=1))
def test_loss_and_silhouette_of_every_cut_equal_the_loops_and_scikit_learn(distances):
    n = len(distances)
    weights = LossWeights(degeneracy=0.3, gamma=0.5, tau=2.0)
    cuts = score_cuts(distances, link(distances), GRID, weights)
    for t, labels in enumerate(cuts.partitions_TN):
        expected = literal.compactness(distances, labels) + 0.3 * literal.degeneracy(labels, 0.5, 2.0)
        assert cuts.losses_T[t] == pytest.approx(expected, abs=1e-9)
        assert cuts.counts_T[t] == len(set(labels))
        if 1 < len(set(labels)) < n:
            expected = silhouette_score(distances, labels, metric="precomputed")
            assert cuts.silhouettes_T[t] == pytest.approx(expected, abs=1e-9)
        else:
            assert np.isnan(cuts.silhouettes_T[t])


def test_scores_do_not_depend_on_blocks():
    distances, _ = blobs(np.random.default_rng(0), [200, 250, 150])
    cuts = score_cuts(distances, link(distances), [0.1, 0.3])
    for t in range(2):
        expected = silhouette_score(distances, cuts.partitions_TN[t], metric="precomputed")
        assert cuts.silhouettes_T[t] == pytest.approx(expected, abs=1e-9)


def test_cut_into_gives_exactly_so_many_clusters_even_when_heights_are_equal():
    distances = 1 - np.eye(5)
    linked = link(distances)
    for count in range(1, 7):
        labels, _ = cut_into(linked, count)
        assert len(set(labels)) == min(count, 5)
    with pytest.raises(ValueError, match="at least 1"):
        cut_into(linked, 0)


def test_cut_into_agrees_with_a_threshold_where_there_is_one():
    distances = random_distances(3, 12)
    linked = link(distances)
    for count in range(1, 12):
        labels, threshold = cut_into(linked, count)
        np.testing.assert_array_equal(labels, cut(linked, threshold))


def test_merge_thresholds_reach_every_number_of_clusters():
    linked = link(random_distances(4, 9))
    counts = [len(set(cut(linked, t))) for t in merge_thresholds(linked, 9)]
    assert counts == list(range(9, 0, -1))


def test_clusters_are_numbered_by_their_smallest_member():
    assert canonical_labels([7, 3, 7, 1, 3]).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("n", [0, 1])
def test_none_and_one_item_have_a_linkage_without_merges(n):
    distances = np.zeros((n, n))
    cuts = score_cuts(distances, link(distances))
    assert cuts.partitions_TN.shape == (20, n)


def test_agreement_is_one_for_equal_partitions_whatever_the_numbers():
    assert agreement([0, 0, 1], [5, 5, 2]) == 1
