# SPDX-License-Identifier: Apache-2.0
"""Loss (Eqs. 9 and 10) and silhouette of many cuts of one linkage, in one pass over the distances."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddag.clustering.agglomerative import cut
from feddag.clustering.arrays import FloatArray, IntArray, row_blocks
from feddag.clustering.options import GRID, LossWeights
from feddag.clustering.silhouette import silhouettes


@dataclass(frozen=True)
class ScoredCuts:
    """Every candidate cut of one linkage, by rising threshold; partitions repeat where nothing merges."""

    thresholds_T: FloatArray
    counts_T: IntArray
    losses_T: FloatArray
    """L of Eq. 10, not clipped; the paper's tables show it clipped at 1."""
    silhouettes_T: FloatArray
    """Mean silhouette; NaN for one cluster and for all singletons, where it is not defined."""
    partitions_TN: IntArray


def degeneracy(sizes_Z: IntArray, gamma: float = 1.0, tau: float = 1.0) -> float:
    """L2 of Eq. 9: mean over clusters of exp(max(0, mean - gamma * deviation - size) / tau)."""
    shortfall_Z = np.maximum(0, sizes_Z.mean() - gamma * sizes_Z.std() - sizes_Z)
    # exp(700) is near the largest float64. The loss is clipped at 1 when it is used, so nothing is lost.
    return float(np.exp(np.minimum(shortfall_Z / tau, 700)).mean())


def score_cuts(
    distances_NN: FloatArray,
    linkage_matrix: FloatArray,
    thresholds: Sequence[float] | FloatArray = GRID,
    loss: LossWeights | None = None,
) -> ScoredCuts:
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
            # In this order the columns of each cluster lie together in every cut: one reduceat adds them up.
            column_labels = labels_N[owners]
            starts = np.flatnonzero(np.r_[True, column_labels[1:] != column_labels[:-1]])
            if len(starts) < len(owners):
                sums, owners = np.add.reduceat(sums, starts, axis=1), owners[starts]
            column_of = np.empty(counts_T[t], dtype=np.int64)
            column_of[labels_N[owners]] = np.arange(len(owners))
            own_columns = column_of[labels_N[rows]]
            own_sums = sums[np.arange(len(sums)), own_columns]
            within[t] += np.bincount(labels_N[rows], weights=own_sums, minlength=counts_T[t])
            if 1 < counts_T[t] < n:
                silhouettes_T[t] += silhouettes(sums, own_columns, sizes[t][labels_N[owners]]).sum()
    defined_T = (counts_T > 1) & (counts_T < n)
    return ScoredCuts(
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


def _compactness(within_Z: FloatArray, sizes_Z: IntArray) -> float:
    """L1 of Eq. 9: over clusters, the mean distance of all ordered pairs, self-pairs included."""
    return float((within_Z / np.maximum(sizes_Z, 1) ** 2).sum())
