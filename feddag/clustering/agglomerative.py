# SPDX-License-Identifier: Apache-2.0
"""Hierarchical clustering of a distance matrix: one linkage, and all cuts scored from it (Eqs. 9 and 10)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import linkage

from feddag.clustering.arrays import (
    FloatArray,
    IntArray,
    canonical_labels,
    off_diagonal,
    row_blocks,
)

Linkage = Literal["average", "single", "complete", "weighted"]

GRID = tuple(round(0.05 * k, 2) for k in range(1, 21))
"""The thresholds the paper searches: 0.05, 0.10, ..., 1."""


@dataclass(frozen=True)
class LossWeights:
    """Constants of Eqs. 9 and 10: degeneracy weight lambda, tolerance gamma and sharpness tau."""

    degeneracy: float = 0.01
    gamma: float = 1.0
    tau: float = 1.0


@dataclass(frozen=True)
class Cuts:
    """Every candidate cut of one linkage, by rising threshold; partitions repeat where nothing merges."""

    thresholds_T: FloatArray
    counts_T: IntArray
    losses_T: FloatArray
    """L of Eq. 10 as it is; the paper's tables show it clipped at 1."""
    silhouettes_T: FloatArray
    """Mean silhouette; NaN for one cluster and for all singletons, where it is not defined."""
    partitions_TN: IntArray


def link(distances_NN: FloatArray, method: Linkage = "average") -> FloatArray:
    """SciPy's linkage matrix; no rows for fewer than two items. Equal distances are merged by item order."""
    if method not in ("average", "single", "complete", "weighted"):
        raise ValueError(f"linkage must be average, single, complete or weighted, not {method!r}")
    n = len(distances_NN)
    if n < 2:
        return np.zeros((0, 4))
    condensed = np.empty(n * (n - 1) // 2)
    start = 0
    for row in off_diagonal(distances_NN):
        condensed[start : start + len(row)] = row
        start += len(row)
    return linkage(condensed, method=method)


def cut(linkage_matrix: FloatArray, threshold: float) -> IntArray:
    """Labels when all merges at or below `threshold` are made; clusters numbered by smallest member."""
    return merged(linkage_matrix, merges_at(linkage_matrix, threshold))


def cut_into(linkage_matrix: FloatArray, count: int) -> tuple[IntArray, float]:
    """Labels of exactly `count` clusters (fewer items: one each) and the lowest threshold that gives them."""
    if count < 1:
        raise ValueError(f"the number of clusters must be at least 1, got {count}")
    # Equal heights can be torn apart here, which no threshold can do: so many merges, in linkage order.
    merges = max(len(linkage_matrix) + 1 - count, 0)
    return merged(linkage_matrix, merges), float(linkage_matrix[merges - 1, 2]) if merges else 0.0


def merges_at(linkage_matrix: FloatArray, threshold: float) -> int:
    """How many merges lie at or below `threshold`: heights rise in every linkage offered here."""
    return int(np.searchsorted(linkage_matrix[:, 2], threshold, side="right"))


def merged(linkage_matrix: FloatArray, merges: int) -> IntArray:
    """Labels after the first `merges` merges; clusters numbered by smallest member."""
    return canonical_labels(top_nodes(linkage_matrix, merges))


def top_nodes(linkage_matrix: FloatArray, merges: int) -> IntArray:
    """The node of the linkage that every item belongs to after the first `merges` merges."""
    n = len(linkage_matrix) + 1
    parent = np.arange(2 * n - 1)
    parent[linkage_matrix[:merges, :2].astype(np.int64)] = n + np.arange(merges)[:, None]
    while True:  # everyone asks the parent's parent: the way to the top halves each time
        above = parent[parent]
        if np.array_equal(above, parent):
            return parent[:n]
        parent = above


def merge_thresholds(linkage_matrix: FloatArray, max_clusters: int) -> FloatArray:
    """Thresholds midway between successive merges: every cut of 1 to `max_clusters` clusters, once."""
    heights = np.unique(linkage_matrix[:, 2])
    if not len(heights):
        return np.array([1.0])
    below = np.concatenate([[0.0], heights[:-1]])
    middle = (heights + below) / 2
    # A threshold just below the first merge leaves singletons; above the last one there is one cluster.
    return np.concatenate([middle, [heights[-1]]])[-max_clusters:]


def compactness(distances_NN: FloatArray, labels_N: IntArray) -> float:
    """L1 of Eq. 9: over clusters, the mean distance of all ordered pairs, self-pairs included."""
    return _compactness(_cluster_sums(distances_NN, labels_N), np.bincount(labels_N))


def degeneracy(sizes_Z: IntArray, gamma: float = 1.0, tau: float = 1.0) -> float:
    """L2 of Eq. 9: mean over clusters of exp(max(0, mean - gamma * deviation - size) / tau)."""
    shortfall_Z = np.maximum(0, sizes_Z.mean() - gamma * sizes_Z.std() - sizes_Z)
    # exp of 700 is the largest float64; the loss is clipped at 1 when it is used, so nothing is lost
    return float(np.exp(np.minimum(shortfall_Z / tau, 700)).mean())


def score_cuts(
    distances_NN: FloatArray,
    linkage_matrix: FloatArray,
    thresholds: Sequence[float] | FloatArray = GRID,
    loss: LossWeights | None = None,
) -> Cuts:
    """Loss and silhouette of every cut in one blocked pass: coarser cuts add up the sums of finer ones."""
    loss = loss or LossWeights()
    n = len(distances_NN)
    thresholds_T = np.sort(np.asarray(thresholds, dtype=np.float64))
    partitions_TN = np.array([cut(linkage_matrix, t)[:n] for t in thresholds_T]).reshape(len(thresholds_T), n)
    sizes = [np.bincount(labels_N) for labels_N in partitions_TN]
    counts_T = np.array([len(sizes_Z) for sizes_Z in sizes], dtype=np.int64)
    within = [np.zeros(count) for count in counts_T]
    silhouettes_T = np.zeros(len(thresholds_T))
    order_N = np.lexsort(partitions_TN) if n else np.zeros(0, dtype=np.int64)
    for rows in row_blocks(n, 256):
        sums = distances_NN[rows][:, order_N].astype(np.float64)
        owners = order_N
        for t, labels_N in enumerate(partitions_TN):
            # Nested cuts in leaf order: each cluster's columns lie together, so one reduceat adds them up.
            column_labels = labels_N[owners]
            starts = np.flatnonzero(np.r_[True, column_labels[1:] != column_labels[:-1]])
            if len(starts) < len(owners):
                sums, owners = np.add.reduceat(sums, starts, axis=1), owners[starts]
            column_of = np.empty(counts_T[t], dtype=np.int64)
            column_of[labels_N[owners]] = np.arange(len(owners))
            own_sums = sums[np.arange(len(sums)), column_of[labels_N[rows]]]
            within[t] += np.bincount(labels_N[rows], weights=own_sums, minlength=counts_T[t])
            if 1 < counts_T[t] < n:
                silhouettes_T[t] += _silhouettes(
                    sums, own_sums, column_of[labels_N[rows]], sizes[t][labels_N[owners]]
                ).sum()
    defined_T = (counts_T > 1) & (counts_T < n)
    return Cuts(
        thresholds_T=thresholds_T,
        counts_T=counts_T,
        losses_T=np.array(
            [
                _compactness(within_Z, sizes_Z) + loss.degeneracy * degeneracy(sizes_Z, loss.gamma, loss.tau)
                for within_Z, sizes_Z in zip(within, sizes, strict=True)
            ]
        )
        if n
        else np.zeros(len(thresholds_T)),
        silhouettes_T=np.where(defined_T, silhouettes_T / max(n, 1), np.nan),
        partitions_TN=partitions_TN,
    )


def agreement(labels: ArrayLike, truth: ArrayLike) -> float:
    """Adjusted Rand index of two partitions: 1 when they are equal, about 0 when they are unrelated."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(truth), np.asarray(labels)))


def _silhouettes(sums: FloatArray, own_sums: FloatArray, own_column: IntArray, sizes: IntArray) -> FloatArray:
    """(b - a) / max(a, b) per row; 0 for a singleton and when all its distances are 0."""
    own_sizes = sizes[own_column]
    inner = own_sums / np.maximum(own_sizes - 1, 1)
    means = sums / sizes
    means[np.arange(len(means)), own_column] = np.inf
    outer = means.min(axis=1)
    largest = np.maximum(inner, outer)
    defined = (own_sizes > 1) & (largest > 0)
    return np.where(defined, (outer - inner) / np.where(defined, largest, 1), 0)


def _cluster_sums(distances_NN: FloatArray, labels_N: IntArray) -> FloatArray:
    return np.array(
        [
            distances_NN[np.ix_(members, members)].sum(dtype=np.float64)
            for members in (np.flatnonzero(labels_N == z) for z in range(labels_N.max(initial=-1) + 1))
        ]
    )


def _compactness(within_Z: FloatArray, sizes_Z: IntArray) -> float:
    return float((within_Z / np.maximum(sizes_Z, 1) ** 2).sum())
