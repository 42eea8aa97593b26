# SPDX-License-Identifier: Apache-2.0
"""Where a hierarchical clustering is cut."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.agglomerative import cut, cut_into, link
from feddag.clustering.arrays import FloatArray, IntArray, checked_distances
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.scores import ScoredCuts, score_cuts
from feddag.clustering.structure import SplitTest, split_while_real

APART, STEP = 2.0, 1e-3
"""More than any distance; the least height between the merges inside clusters and those between them."""


@dataclass(frozen=True)
class Cut:
    """The chosen partition and everything it was chosen from."""

    labels_N: IntArray
    threshold: float
    linkage_matrix: FloatArray
    scored: ScoredCuts
    tests: tuple[SplitTest, ...] = ()

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.labels_N.max(initial=-1)) + 1


def choose_cut(
    distances: ArrayLike, options: ClusteringOptions | None = None, known_N: IntArray | None = None
) -> Cut:
    """Cluster a distance matrix and choose the cut; no items, one item and equal items: at most one cluster.

    `num_clusters` or `threshold` give the cut directly. Otherwise `cut_rule` chooses it:
    structure: the best silhouette, if structureless clouds do not reach it, then again inside each part.
    silhouette: the best silhouette of the grid of thresholds.
    loss: among cuts whose loss is in the lowest quarter of the range, the fewest clusters.
    plateau: the partition that stays the same over the longest range of thresholds.
    `known_N` are clusters that were found before: then the tree is built so that its cut gives them.
    """
    options = options or ClusteringOptions()
    distances_NN = checked_distances(distances)
    if known_N is not None:
        return cut_as(distances_NN, known_N, options)
    linkage_matrix = link(distances_NN, options.linkage)
    scored = score_cuts(distances_NN, linkage_matrix, options.thresholds, options.loss)
    tests: tuple[SplitTest, ...] = ()
    labels_N: IntArray = np.zeros(len(distances_NN), dtype=np.int64)
    if len(distances_NN) < 2:
        threshold = 0.0
    elif options.num_clusters:
        labels_N, threshold = cut_into(linkage_matrix, options.num_clusters)
    elif options.threshold:
        labels_N, threshold = cut(linkage_matrix, options.threshold), options.threshold
    elif distances_NN.max() == 0:
        threshold = float(scored.thresholds_T[-1])
    elif options.cut_rule == "structure":
        labels_N, tests = split_while_real(distances_NN, linkage_matrix, options)
        threshold = separating_threshold(linkage_matrix, labels_N)
    else:
        by_rule = {"silhouette": by_silhouette, "loss": by_loss, "plateau": by_plateau}[options.cut_rule]
        index = by_rule(scored)
        labels_N, threshold = scored.partitions_TN[index], float(scored.thresholds_T[index])
    return Cut(labels_N, threshold, linkage_matrix, scored, tests)


def cut_as(distances_NN: FloatArray, labels_N: IntArray, options: ClusteringOptions) -> Cut:
    """A tree in which members of one cluster merge before clusters do, cut where the clusters are left.

    Heights of merges between clusters are the linkage's own, raised where they would lie below those inside.
    """
    apart_NN = distances_NN.astype(np.float64) + (labels_N[:, None] != labels_N[None, :]) * APART
    linkage_matrix = link(apart_NN, options.linkage)
    if not len(linkage_matrix):
        scored = score_cuts(distances_NN, linkage_matrix, options.thresholds, options.loss)
        return Cut(labels_N, 0.0, linkage_matrix, scored)
    between_S = linkage_matrix[:, 2] >= APART
    inside = float(linkage_matrix[~between_S, 2].max(initial=0))
    raised_S = np.maximum(linkage_matrix[:, 2] - APART, inside + STEP)
    heights_S = np.where(between_S, raised_S, linkage_matrix[:, 2])
    linkage_matrix = np.column_stack([linkage_matrix[:, :2], heights_S, linkage_matrix[:, 3]])
    threshold = inside
    if between_S.any():
        threshold = (inside + float(heights_S[between_S].min())) / 2
    scored = score_cuts(distances_NN, linkage_matrix, sorted({*options.thresholds, threshold}), options.loss)
    return Cut(labels_N, threshold, linkage_matrix, scored)


def by_silhouette(scored: ScoredCuts) -> int:
    """The best mean silhouette; equal ones: the larger threshold. One cluster if none is defined."""
    if np.isnan(scored.silhouettes_T).all():
        return len(scored.counts_T) - 1
    best = np.nanmax(scored.silhouettes_T)
    return int(np.flatnonzero(scored.silhouettes_T >= best - 1e-12)[-1])


def by_loss(scored: ScoredCuts) -> int:
    """Least Z among losses up to L_min + (L_max - L_min) / 4; then longer plateau, then larger threshold."""
    losses_T = np.minimum(scored.losses_T, 1)
    limit = losses_T.min() + 0.25 * (losses_T.max() - losses_T.min())
    lengths_T = _plateau_lengths(scored)
    keys = [
        (-scored.counts_T[t], lengths_T[t], t) for t in range(len(losses_T)) if losses_T[t] <= limit + 1e-12
    ]
    return int(max(keys)[2])


def by_plateau(scored: ScoredCuts) -> int:
    """The longest run of thresholds with one partition of 2 to N - 1 clusters; without any, one cluster."""
    lengths_T = _plateau_lengths(scored)
    proper_T = (scored.counts_T > 1) & (scored.counts_T < scored.partitions_TN.shape[1])
    if not proper_T.any():
        return len(scored.counts_T) - 1
    return int(max((lengths_T[t], t) for t in np.flatnonzero(proper_T))[1])


def separating_threshold(linkage_matrix: FloatArray, labels_N: IntArray) -> float:
    """The largest threshold that merges no two of the given clusters' cores: the limit for newcomers."""
    n = len(labels_N)
    if labels_N.max(initial=0) == 0:
        return float(linkage_matrix[-1, 2]) if len(linkage_matrix) else 0.0
    counts = np.bincount(labels_N)
    histograms = {i: np.eye(len(counts), dtype=np.int64)[labels_N[i]] for i in range(n)}
    for step, (a, b, height, _) in enumerate(linkage_matrix):
        left, right = histograms.pop(int(a)), histograms.pop(int(b))
        # Two cores meet: each side holds the majority of a different cluster.
        if (
            left.argmax() != right.argmax()
            and left.max() * 2 > counts[left.argmax()]
            and (right.max() * 2 > counts[right.argmax()])
        ):
            lower = linkage_matrix[step - 1, 2] if step else 0.0
            return float((lower + height) / 2)
        histograms[n + step] = left + right
    return float(linkage_matrix[-1, 2])


def _plateau_lengths(scored: ScoredCuts) -> IntArray:
    """For every threshold, the number of neighbouring thresholds that give the same partition."""
    same = [np.array_equal(a, b) for a, b in pairwise(scored.partitions_TN)]
    run_T = np.cumsum([0, *(not s for s in same)])
    return np.bincount(run_T)[run_T]
