# SPDX-License-Identifier: Apache-2.0
"""Profiles (CFL-GP): what training at K models changes for N clients, D coordinates each; their clusters."""

import numpy as np
import scipy

from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.spectral import kmeans_labels


def complete_blocks(counts_NK: IntArray) -> IntArray:
    """The models that at least half of the clients told something of, or else those with the most reports."""
    reports_K = (counts_NK > 0).sum(0)
    return np.flatnonzero((reports_K > 0) & (reports_K >= min(len(counts_NK) / 2, reports_K.max())))


def comparable(profile_NKD: FloatArray, counts_NK: IntArray) -> FloatArray:
    """The profile's complete blocks, 0 elsewhere; a client without a report gets the mean of the others.

    With gaps instead, clients with a report would differ from those without: clusters would be cohorts.
    """
    result = np.zeros_like(profile_NKD)
    for k in complete_blocks(counts_NK):
        reported_N = counts_NK[:, k] > 0
        result[:, k] = np.where(reported_N[:, None], profile_NKD[:, k], profile_NKD[reported_N, k].mean(0))
    return result


def leading_directions(columns_NM: FloatArray, most: int | None) -> FloatArray:
    """Leading left singular vectors of the matrix whose columns are given, as rows of length M.

    If `most` is None, their number is that of the singular values before the largest gap, but at least 3.
    """
    columns_NM = columns_NM.astype(np.float64)
    squares, right = np.linalg.eigh(columns_NM @ columns_NM.T)  # N × N, far smaller than the matrix itself
    values, right = np.sqrt(np.maximum(squares[::-1], 0)), right[:, ::-1]
    if most is None:
        most = max(3, int(np.argmax(values[:-1] - values[1:])) + 1) if len(values) > 1 else 1
    keep = min(most, int((values > 1e-6 * max(values[0], 1e-30)).sum()))
    return ((right[:, :keep].T @ columns_NM) / values[:keep, None]).astype(np.float32)


def best_count(points_NF: FloatArray, most: int, seed: int) -> int:
    """The number of k-means clusters from 2 to `most` with the greatest silhouette; 1 if none is defined."""
    from sklearn.metrics import silhouette_score

    scores = {}
    for count in range(2, most + 1):
        labels = kmeans_labels(points_NF, count, seed)
        if 1 < len(np.unique(labels)) < len(labels):
            scores[count] = float(silhouette_score(points_NF, labels))
    return max(scores, key=lambda count: (scores[count], -count)) if scores else 1


def matched_labels(labels_N: IntArray, former_N: IntArray, num_clusters: int) -> IntArray:
    """Labels renamed to agree with the former ones as often as possible (Hungarian method)."""
    overlap = np.zeros((num_clusters, num_clusters))
    np.add.at(overlap, (labels_N, former_N), 1)
    _, names = scipy.optimize.linear_sum_assignment(overlap, maximize=True)
    return names[labels_N]
