# SPDX-License-Identifier: Apache-2.0
"""Items that resemble nobody, and how sure it is that an item belongs to its cluster."""

from collections.abc import Sequence

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.compose import ViewMatrix
from feddag.clustering.silhouette import silhouettes, sums_by_cluster

FAR = 6.0
"""Errors by which an item is farther from the nearest cluster than that cluster's typical member."""
TIMES = 3.0
"""And so many times as far as the typical member."""
FEW = 10
"""Among fewer items nobody can say what is usual."""
OTHER_LABELS = 0.5
"""u^1.5 to the nearest cluster: most samples of both are in classes that the other one lacks."""
BORDERLINE = 0.1
"""A silhouette below this value: the second nearest cluster is nearly as near."""


def unlike_anyone(views: Sequence[ViewMatrix], labels_N: IntArray) -> np.ndarray:
    """Whether, in some view, an item is far from every cluster while that cluster's members are near."""
    unlike_N = np.zeros(len(labels_N), dtype=bool)
    if len(labels_N) < FEW:
        return unlike_N
    for view in views:
        distances_NN = view.distances_NN if view.sines_NN is None else view.sines_NN
        nearest_N, typical_N = _nearest_cluster(distances_NN, labels_N)
        told = None if view.sines_NN is None else view.errors_N
        unlike_N |= far_from_all(nearest_N, typical_N, told, view.typical_error)
    return unlike_N


def far_from_all(
    nearest_N: FloatArray, typical_N: FloatArray, errors_N: FloatArray | None, typical_error: float
) -> np.ndarray:
    """Whether items are much farther from the nearest cluster than its typical member is.

    Distances are sin² with errors, or those of labels, which have no errors.
    """
    if errors_N is None:
        return (nearest_N > OTHER_LABELS) & (nearest_N > TIMES * typical_N)
    error_N = np.maximum(errors_N, typical_error)
    noise = typical_error  # it was added to every pair
    far_N = nearest_N - typical_N > FAR * error_N
    return (errors_N > 0) & far_N & (nearest_N - noise > TIMES * np.maximum(typical_N - noise, 0))


def _nearest_cluster(distances_NN: FloatArray, labels_N: IntArray) -> tuple[FloatArray, FloatArray]:
    """The mean distance of each item to the nearest cluster, and the median of its members' means."""
    means_ZN = mean_distances(distances_NN, labels_N)
    own_N = means_ZN[labels_N, np.arange(len(labels_N))]
    typical_Z = np.array([np.median(own_N[labels_N == z]) for z in range(len(means_ZN))])
    nearest_N = means_ZN.argmin(axis=0)
    return means_ZN.min(axis=0), typical_Z[nearest_N]


def mean_distances(distances_NN: FloatArray, labels_N: IntArray) -> FloatArray:
    """Clusters x items: the mean distance of an item to the other members of a cluster."""
    sums_ZN = sums_by_cluster(distances_NN, labels_N)
    inside_ZN = np.arange(len(sums_ZN))[:, None] == labels_N
    others_ZN = inside_ZN.sum(axis=1, keepdims=True) - inside_ZN
    return sums_ZN / np.maximum(others_ZN, 1)


def confidence(distances_NN: FloatArray, labels_N: IntArray) -> tuple[FloatArray, IntArray]:
    """The silhouette of each item, and its second nearest cluster; 0 and -1 if there is only one cluster."""
    labels_N = np.asarray(labels_N)
    if labels_N.max(initial=0) == 0:
        return np.zeros(len(labels_N)), np.full(len(labels_N), -1)
    sums_ZN = sums_by_cluster(distances_NN, labels_N)
    sure_N = silhouettes(sums_ZN.T.copy(), labels_N, np.bincount(labels_N))
    means_ZN = mean_distances(distances_NN, labels_N)
    means_ZN[labels_N, np.arange(len(labels_N))] = np.inf
    return sure_N, means_ZN.argmin(axis=0)
