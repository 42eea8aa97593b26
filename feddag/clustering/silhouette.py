# SPDX-License-Identifier: Apache-2.0
"""The cut of a linkage with the best silhouette, when clusters too small to count join larger ones."""

import numpy as np

from feddag.clustering.agglomerative import merge_thresholds, merges_at, top_nodes
from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, row_blocks

MOST_CLUSTERS = 1000
"""Cuts of more clusters are not tried: only equal heights give so many, and thousands are no answer."""


def best_cut(
    distances_NN: FloatArray, linkage_matrix: FloatArray, min_size: int, max_cuts: int = 64
) -> tuple[float, IntArray]:
    """The cut with the best silhouette after clusters below `min_size` joined the nearest larger one.

    From the finest cut to the coarsest: distances are added up by cluster once, then sums merge.
    """
    n = len(distances_NN)
    merges_T = np.unique([merges_at(linkage_matrix, t) for t in merge_thresholds(linkage_matrix, max_cuts)])
    merges_T = merges_T[merges_T >= n - max(max_cuts, MOST_CLUSTERS)]
    nodes_K, finest_N = np.unique(top_nodes(linkage_matrix, int(merges_T[0])), return_inverse=True)
    sums_KN, sizes_K = cluster_sums(distances_NN, finest_N), np.bincount(finest_N)
    group_K = np.arange(len(nodes_K))  # where a finest cluster's sums have gone; rows left empty have size 0
    row_of = dict(zip(nodes_K.tolist(), range(len(nodes_K)), strict=True))
    best, done = -np.inf, int(merges_T[0])
    chosen: IntArray = np.zeros(n, dtype=np.int64)
    for merges in merges_T.tolist():
        for step in range(done, merges):
            stays, goes = (row_of[int(node)] for node in linkage_matrix[step, :2])
            sums_KN[stays] += sums_KN[goes]
            sizes_K[stays] += sizes_K[goes]
            sizes_K[goes] = 0
            group_K[group_K == goes] = stays
            row_of[n + step] = stays
        done = merges
        labels_N, sums_ZN = _absorbed(distances_NN, group_K[finest_N], sums_KN, sizes_K, min_size)
        score = _mean_silhouette(sums_ZN, labels_N) if len(sums_ZN) > 1 else -np.inf
        if score >= best and len(sums_ZN) > 1:  # on a tie the coarser cut
            best, chosen = score, labels_N
    return best, canonical_labels(chosen)


def absorb_small(distances_NN: FloatArray, labels_N: IntArray, min_size: int) -> IntArray:
    """Members of clusters below `min_size` join the larger cluster with the least mean distance."""
    sums_ZN = cluster_sums(distances_NN, labels_N)
    return canonical_labels(
        _absorbed(distances_NN, labels_N, sums_ZN, np.bincount(labels_N, minlength=len(sums_ZN)), min_size)[0]
    )


def mean_silhouette(distances_NN: FloatArray, labels_N: IntArray) -> float:
    """Mean of (b - a) / max(a, b) over items; 0 for singletons and for one cluster."""
    return _mean_silhouette(cluster_sums(distances_NN, labels_N), labels_N)


def cluster_sums(distances_NN: FloatArray, labels_N: IntArray) -> FloatArray:
    """Clusters x items: the sum of an item's distances to the members of a cluster, in double precision."""
    count = int(labels_N.max(initial=-1)) + 1
    member_ZN = (np.arange(count)[:, None] == labels_N[None, :]).astype(np.float64)
    sums_ZN = np.empty((count, len(labels_N)))
    for columns in row_blocks(len(labels_N)):
        sums_ZN[:, columns] = member_ZN @ distances_NN[columns].T.astype(np.float64)
    return sums_ZN


def _absorbed(
    distances_NN: FloatArray, labels_N: IntArray, sums_KN: FloatArray, sizes_K: IntArray, min_size: int
) -> tuple[IntArray, FloatArray]:
    """Labels and sums of the clusters of at least `min_size`, after everyone else joined the nearest."""
    large = np.flatnonzero(sizes_K >= min_size)
    if len(large) < 2:
        return np.zeros_like(labels_N), sums_KN.sum(axis=0, keepdims=True)
    number_K = np.full(len(sizes_K), -1)
    number_K[large] = np.arange(len(large))
    labels_N, sums_ZN = number_K[labels_N], sums_KN[large]
    small = np.flatnonzero(labels_N < 0)
    if len(small):
        nearest = (sums_ZN[:, small] / sizes_K[large][:, None]).argmin(axis=0)
        labels_N[small] = nearest
        joined_ZS = (np.arange(len(large))[:, None] == nearest).astype(np.float64)
        sums_ZN += joined_ZS @ distances_NN[small].astype(np.float64, copy=False)
    return labels_N, sums_ZN


def _mean_silhouette(sums_ZN: FloatArray, labels_N: IntArray) -> float:
    """Mean silhouette from every item's distances to every cluster."""
    if len(sums_ZN) < 2:
        return 0.0
    sizes_Z = np.bincount(labels_N)
    items = np.arange(len(labels_N))
    own_N = sizes_Z[labels_N]
    inner_N = sums_ZN[labels_N, items] / np.maximum(own_N - 1, 1)
    means_ZN = sums_ZN / sizes_Z[:, None]
    means_ZN[labels_N, items] = np.inf
    outer_N = means_ZN.min(axis=0)
    largest_N = np.maximum(inner_N, outer_N)
    defined_N = (own_N > 1) & (largest_N > 0)
    return float(np.where(defined_N, (outer_N - inner_N) / np.where(defined_N, largest_N, 1), 0).mean())
