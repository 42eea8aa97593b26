# SPDX-License-Identifier: Apache-2.0
"""Hierarchical clustering of a distance matrix: one linkage, and cuts of it."""

import numpy as np
import scipy
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, off_diagonal
from feddag.clustering.options import Linkage


def link(distances_NN: FloatArray, method: Linkage = "average") -> FloatArray:
    """SciPy's linkage matrix; no rows for fewer than two items. Equal distances are merged by item order."""
    n = len(distances_NN)
    if n < 2:
        return np.zeros((0, 4))
    condensed = np.empty(n * (n - 1) // 2)
    start = 0
    for row in off_diagonal(distances_NN):
        condensed[start : start + len(row)] = row
        start += len(row)
    return scipy.cluster.hierarchy.linkage(condensed, method=method)


def cut(linkage_matrix: FloatArray, threshold: float) -> IntArray:
    """Labels when all merges at or below `threshold` are made; clusters numbered by smallest member."""
    return merged(linkage_matrix, merges_at(linkage_matrix, threshold))


def cut_into(linkage_matrix: FloatArray, count: int) -> tuple[IntArray, float]:
    """Labels of exactly `count` clusters (fewer items: one each) and the lowest threshold that gives them."""
    if count < 1:
        raise ValueError(f"the number of clusters must be at least 1, got {count}")
    # Merges are counted in linkage order, so merges of equal height can be separated; no threshold does that.
    merges = max(len(linkage_matrix) + 1 - count, 0)
    return merged(linkage_matrix, merges), float(linkage_matrix[merges - 1, 2]) if merges else 0.0


def merges_at(linkage_matrix: FloatArray, threshold: float) -> int:
    """The number of merges at or below `threshold`; heights rise in every linkage offered here."""
    return int(np.searchsorted(linkage_matrix[:, 2], threshold, side="right"))


def merged(linkage_matrix: FloatArray, merges: int) -> IntArray:
    """Labels after the first `merges` merges; clusters numbered by smallest member."""
    return canonical_labels(top_nodes(linkage_matrix, merges))


def top_nodes(linkage_matrix: FloatArray, merges: int) -> IntArray:
    """The node of the linkage that every item belongs to after the first `merges` merges."""
    n = len(linkage_matrix) + 1
    parent = np.arange(2 * n - 1)
    parent[linkage_matrix[:merges, :2].astype(np.int64)] = n + np.arange(merges)[:, None]
    while True:  # replace each parent by its parent: the path to the top halves each time
        above = parent[parent]
        if np.array_equal(above, parent):
            return parent[:n]
        parent = above


def merge_thresholds(linkage_matrix: FloatArray, max_clusters: int) -> FloatArray:
    """Thresholds midway between successive merges: each cut into 1 to `max_clusters` clusters once."""
    heights = np.unique(linkage_matrix[:, 2])
    if not len(heights):
        return np.array([1.0])
    below = np.concatenate([[0.0], heights[:-1]])
    middle = (heights + below) / 2
    # A threshold just below the first merge leaves singletons; above the last one there is one cluster.
    return np.concatenate([middle, [heights[-1]]])[-max_clusters:]


def agreement(labels: ArrayLike, truth: ArrayLike) -> float:
    """Adjusted Rand index of two partitions: 1 when they are equal, about 0 when they are unrelated."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(truth), np.asarray(labels)))
