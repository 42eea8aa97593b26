# SPDX-License-Identifier: Apache-2.0
"""Silhouettes, and the cut of a linkage with the best one after small clusters joined larger ones."""

import numpy as np

from feddag.clustering.agglomerative import merge_thresholds, merges_at, top_nodes
from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, row_blocks

MAX_CLUSTERS = 1000
"""Cuts into more clusters are not tried: only many merges of equal height give them, and they help nobody."""

MAX_PASSES = 10
"""Items move to the cluster that is nearest on average at most this number of times."""

TIE = 1e-12
"""Mean distances that differ by less are equal: sums of the same numbers round differently by order."""


def silhouettes(sums_IZ: FloatArray, own_I: IntArray, sizes_Z: IntArray) -> FloatArray:
    """(b - a) / max(a, b) per item; 0 for a singleton and where all distances are 0.

    `sums_IZ` are the sums of an item's distances to the members of each cluster, `own_I` is its own cluster.
    """
    items = np.arange(len(sums_IZ))
    own_sizes_I = sizes_Z[own_I]
    inner_I = sums_IZ[items, own_I] / np.maximum(own_sizes_I - 1, 1)
    means_IZ = sums_IZ / sizes_Z
    means_IZ[items, own_I] = np.inf
    outer_I = means_IZ.min(axis=1)
    largest_I = np.maximum(inner_I, outer_I)
    defined_I = (own_sizes_I > 1) & (largest_I > 0)
    return np.where(defined_I, (outer_I - inner_I) / np.where(defined_I, largest_I, 1), 0)


def best_cut(
    distances_NN: FloatArray, linkage_matrix: FloatArray, min_size: int, max_cuts: int = 64
) -> tuple[float, IntArray]:
    """The cut with the best mean silhouette after clusters below `min_size` joined the nearest larger one.

    Cuts are tried from the finest to the coarsest: distances are added up per cluster once, then sums merge.
    """
    n = len(distances_NN)
    merges_T = np.unique([merges_at(linkage_matrix, t) for t in merge_thresholds(linkage_matrix, max_cuts)])
    merges_T = merges_T[merges_T >= n - max(max_cuts, MAX_CLUSTERS)]
    nodes_K, finest_N = np.unique(top_nodes(linkage_matrix, int(merges_T[0])), return_inverse=True)
    sums_KN, sizes_K = sums_by_cluster(distances_NN, finest_N), np.bincount(finest_N)
    group_K = np.arange(len(nodes_K))  # the row that holds the sums of a finest cluster; unused rows: size 0
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
        if len(sums_ZN) > 1:
            score = float(silhouettes(sums_ZN.T, labels_N, np.bincount(labels_N)).mean())
            if score >= best:  # on a tie the coarser cut
                best, chosen = score, labels_N
    return best, canonical_labels(chosen)


def settled(distances_NN: FloatArray, labels_N: IntArray, min_size: int) -> tuple[float, IntArray]:
    """Items move to the cluster that is nearest on average, while the mean silhouette grows."""
    best, chosen = -np.inf, labels_N
    for _ in range(MAX_PASSES):
        sizes_Z = np.bincount(labels_N)
        sums_ZN = sums_by_cluster(distances_NN, labels_N)
        score = float(silhouettes(sums_ZN.T.copy(), labels_N, sizes_Z).mean())
        if score <= best:
            break
        best, chosen = score, labels_N
        # An item is not its own neighbour.
        others_ZN = np.maximum(sizes_Z[:, None] - (np.arange(len(sizes_Z))[:, None] == labels_N), 1)
        labels_N = (sums_ZN / others_ZN).argmin(axis=0)
        if np.bincount(labels_N, minlength=len(sizes_Z)).min() < min_size:
            break
    return best, canonical_labels(chosen)


def sums_by_cluster(distances_NN: FloatArray, labels_N: IntArray) -> FloatArray:
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
    """Labels and sums of the clusters of at least `min_size`, after all other items joined the nearest one.

    Of equally near clusters an item joins the one with the smallest member, whatever the rows of the sums.
    """
    used, first_U = np.unique(labels_N, return_index=True)
    large = used[np.argsort(first_U)]
    large = large[sizes_K[large] >= min_size]
    if len(large) < 2:
        return np.zeros_like(labels_N), sums_KN.sum(axis=0, keepdims=True)
    number_K = np.full(len(sizes_K), -1)
    number_K[large] = np.arange(len(large))
    labels_N, sums_ZN = number_K[labels_N], sums_KN[large]
    small = np.flatnonzero(labels_N < 0)
    if len(small):
        means_ZS = sums_ZN[:, small] / sizes_K[large][:, None]
        nearest = (means_ZS <= means_ZS.min(axis=0) + TIE).argmax(axis=0)
        labels_N[small] = nearest
        joined_ZS = (np.arange(len(large))[:, None] == nearest).astype(np.float64)
        sums_ZN += joined_ZS @ distances_NN[small].astype(np.float64, copy=False)
    return labels_N, sums_ZN
