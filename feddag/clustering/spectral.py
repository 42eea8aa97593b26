# SPDX-License-Identifier: Apache-2.0
"""Spectral clustering of a precomputed affinity, k-means and the Davies-Bouldin index, all seeded."""

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, checked_matrix


def spectral_embedding(affinity_NN: ArrayLike, dimensions: int, seed: int) -> FloatArray:
    """Leading eigenvectors of the normalised graph Laplacian, one row per item."""
    matrix_NN = checked_matrix(affinity_NN, "affinity")
    from sklearn.manifold import spectral_embedding as sklearn_embedding

    embedded = sklearn_embedding(matrix_NN, n_components=dimensions, random_state=seed, drop_first=False)
    return np.asarray(embedded)


def spectral_labels(affinity_NN: ArrayLike, count: int, seed: int) -> IntArray:
    """`count` clusters of a precomputed affinity; labels by pivoted QR, which needs no restarts."""
    matrix_NN = checked_matrix(affinity_NN, "affinity")
    if count <= 1 or len(matrix_NN) <= count:
        return np.zeros(len(matrix_NN), dtype=np.int64) if count <= 1 else np.arange(len(matrix_NN))
    from sklearn.cluster import SpectralClustering

    model = SpectralClustering(
        n_clusters=count, affinity="precomputed", assign_labels="cluster_qr", random_state=seed
    )
    return canonical_labels(model.fit(matrix_NN).labels_)


def kmeans_labels(points: ArrayLike, count: int, seed: int, restarts: int = 10) -> IntArray:
    """k-means++ labels, the best of `restarts`."""
    points_ND = checked_matrix(points, "points")
    count = min(count, len(np.unique(points_ND, axis=0)))
    if count <= 1:
        return np.zeros(len(points_ND), dtype=np.int64)
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters=count, n_init=restarts, random_state=seed)
    return canonical_labels(model.fit(points_ND).labels_)


def davies_bouldin(points: ArrayLike, labels_N: IntArray) -> float:
    """Davies-Bouldin index, lower is better; infinite for one cluster, where it is not defined."""
    count = len(np.unique(labels_N))
    if not 1 < count < len(labels_N):
        return float("inf")
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(checked_matrix(points, "points"), labels_N))
