# SPDX-License-Identifier: Apache-2.0
"""Items that resemble nobody, and how sure it is that an item belongs to its cluster."""

from collections.abc import Sequence

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.compose import ViewMatrix
from feddag.clustering.silhouette import silhouettes, sums_by_cluster

FAR = 6.0
"""Errors by which an item is farther from a cluster than that cluster's typical member."""
TIMES = 3.0
"""And so many times as far as the typical member."""
FEW = 10
"""Among fewer items nobody can say what is usual."""
OTHER_LABELS = 0.5
"""u^1.5 to a cluster: most samples of both are in classes that the other one lacks."""
BORDERLINE = 0.1
"""A silhouette below this value: the second nearest cluster is nearly as near."""


def unlike_anyone(views: Sequence[ViewMatrix], labels_N: IntArray) -> np.ndarray:
    """Whether an item fits no cluster: from every one it is far in some view, though the members are near.

    The view may differ: one cluster has other labels, another one the same labels in other looks.
    """
    far_ZN = np.zeros((int(labels_N.max(initial=-1)) + 1, len(labels_N)), dtype=bool)
    if len(labels_N) < FEW:
        return np.zeros(len(labels_N), dtype=bool)
    for view in views:
        told = None if view.sines_NN is None else view.errors_N
        distances_NN = view.distances_NN if view.sines_NN is None else view.sines_NN
        near_ZN = nearer_half(distances_NN, labels_N, members=True)
        far_ZN |= far_from(near_ZN, typical_distances(near_ZN, labels_N), told, view.typical_error)
    return np.asarray(far_ZN.all(axis=0))


def nearer_half(distances_MN: FloatArray, labels_N: IntArray, *, members: bool) -> FloatArray:
    """Clusters x M items: the mean distance of an item to the nearer half of a cluster's members.

    The nearer half, because a member that holds few classes is compared with some others by a handful of
    samples alone. `members` says that the M items are the N items: nobody is compared with itself.
    """
    near_ZM = np.zeros((int(labels_N.max(initial=-1)) + 1, len(distances_MN)))
    for z in range(len(near_ZM)):
        inside = np.flatnonzero(labels_N == z)
        half = max((len(inside) - members + 1) // 2, 1)
        if members and len(inside) < 2:
            near_ZM[z] = distances_MN[:, inside[0]] if len(inside) else 0
            continue
        found_MI = distances_MN[:, inside].astype(np.float64)
        if members:
            found_MI[inside, np.arange(len(inside))] = np.inf
        near_ZM[z] = np.partition(found_MI, half - 1, axis=1)[:, :half].mean(axis=1)
    return near_ZM


def far_from(
    near_ZM: FloatArray, typical_Z: FloatArray, errors_M: FloatArray | None, typical_error: float
) -> np.ndarray:
    """Whether items are much farther from each cluster than its typical member is.

    Distances are sin² with errors, or those of labels, which have no errors.
    """
    typical_Z1 = typical_Z[:, None]
    if errors_M is None:
        return (near_ZM > OTHER_LABELS) & (near_ZM > TIMES * typical_Z1)
    error_M = np.maximum(errors_M, typical_error)
    noise = typical_error  # it was added to every pair
    far_ZM = near_ZM - typical_Z1 > FAR * error_M
    return (errors_M > 0) & far_ZM & (near_ZM - noise > TIMES * np.maximum(typical_Z1 - noise, 0))


def typical_distances(near_ZN: FloatArray, labels_N: IntArray) -> FloatArray:
    """For each cluster, the median of its members' distances to it."""
    own_N = near_ZN[labels_N, np.arange(len(labels_N))]
    return np.array([np.median(own_N[labels_N == z]) for z in range(len(near_ZN))])


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
