# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from feddag.clustering.agglomerative import agreement
from feddag.clustering.spectral import davies_bouldin, kmeans_labels, spectral_embedding, spectral_labels


def affinity(truth):
    return np.where(truth[:, None] == truth[None], 1.0, 0.05)


def test_blocks_of_an_affinity_are_found_and_reproducible():
    truth = np.array([0] * 6 + [1] * 5 + [2] * 7)
    labels = spectral_labels(affinity(truth), 3, seed=0)
    assert agreement(labels, truth) == 1
    np.testing.assert_array_equal(labels, spectral_labels(affinity(truth), 3, seed=0))
    assert spectral_embedding(affinity(truth), 2, seed=0).shape == (18, 2)


def test_one_cluster_and_more_clusters_than_items_are_defined():
    assert spectral_labels(np.ones((4, 4)), 1, seed=0).tolist() == [0, 0, 0, 0]
    assert spectral_labels(np.ones((2, 2)), 5, seed=0).tolist() == [0, 1]
    assert kmeans_labels(np.zeros((4, 2)), 3, seed=0).tolist() == [0, 0, 0, 0]


def test_k_means_separates_far_points_and_davies_bouldin_prefers_the_truth():
    truth = np.array([0, 0, 0, 1, 1, 1])
    points = np.array([[0.0], [1], [2], [100], [101], [102]])
    assert kmeans_labels(points, 2, seed=3).tolist() == truth.tolist()
    assert davies_bouldin(points, truth) < davies_bouldin(points, np.array([0, 1, 0, 1, 0, 1]))
    assert davies_bouldin(points, np.zeros(6, int)) == float("inf")


def test_nan_in_an_affinity_is_refused():
    with pytest.raises(ValueError, match="affinity of item 0"):
        spectral_labels(np.array([[np.nan, 1], [1, 1]]), 2, seed=0)
