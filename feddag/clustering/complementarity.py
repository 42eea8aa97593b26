# SPDX-License-Identifier: Apache-2.0
"""Which cluster can supply the classes another lacks: the complementarity graph (Eqs. 11 to 14)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.angles import AngleBlock, class_angle_blocks
from feddag.clustering.arrays import RIGHT_ANGLE, FloatArray, IntArray, checked_counts, row_blocks
from feddag.clustering.items import Items
from feddag.clustering.options import AngleKind, GraphOptions

MAX_SAMPLED = 2000
"""Where angles were not kept: a class that more items have is averaged over a sample of each cluster."""


@dataclass(frozen=True)
class ComplementarityGraph:
    """Edges learner -> source with their scores, and everything they were computed from."""

    learners_E: IntArray
    sources_E: IntArray
    scores_E: FloatArray
    scores_ZZ: FloatArray
    """H of Eq. 14 (Eq. 12 without alignment); the diagonal is -inf."""
    demand_ZC: FloatArray
    supply_ZC: FloatArray
    alignment_ZZC: FloatArray

    def sources_of(self, learner: int) -> list[int]:
        """The clusters that `learner` learns from, best first."""
        return [int(q) for q in self.sources_E[self.learners_E == learner]]


def demand_and_supply(counts: ArrayLike, *, lacking_classes: bool = True) -> tuple[FloatArray, FloatArray]:
    """Scores of each item and class: demand m - r and supply r + 1, with r the rarity mid-rank (Eq. 11).

    A class that the item lacks has supply 0 and demand m + 1, above all it has; 0 if not `lacking_classes`.
    """
    from scipy.stats import rankdata

    counts_NC = checked_counts(counts)
    present_NC = counts_NC > 0
    distinct_N1 = present_NC.sum(axis=1, keepdims=True)
    absent_N1 = counts_NC.shape[1] - distinct_N1
    # Absent classes hold the lowest ranks; mid-ranks give equal counts the same rank, whatever their index.
    ranks_NC = rankdata(counts_NC, axis=1) - 1 - absent_N1 if counts_NC.size else counts_NC
    demand_NC = np.where(present_NC, distinct_N1 - ranks_NC, (distinct_N1 + 1) * lacking_classes)
    return demand_NC.astype(np.float64), np.where(present_NC, ranks_NC + 1, 0.0)


def cluster_demand_and_supply(
    counts: ArrayLike, labels_N: IntArray, *, lacking_classes: bool = True
) -> tuple[FloatArray, FloatArray]:
    """d of Eq. 11, summed over a cluster's members, and s, averaged over them."""
    demand_NC, supply_NC = demand_and_supply(counts, lacking_classes=lacking_classes)
    member_ZN = _membership(labels_N)
    return member_ZN @ demand_NC, member_ZN @ supply_NC / member_ZN.sum(axis=1, keepdims=True)


def cluster_alignment(
    items: Items,
    labels_N: IntArray,
    angles: AngleKind,
    *,
    shared_alignment: bool = True,
    known: Sequence[AngleBlock] | None = None,
    max_sampled: int = MAX_SAMPLED,
    seed: int = 0,
) -> FloatArray:
    """Mean of 1 - V'/90 over all pairs of members of two clusters, per class (Eq. 13).

    With `shared_alignment` the mean is over pairs that both have the class; it is 1 where there is no such
    pair. Literally, a class absent in one counts 0 and a class absent in both counts 1, which removes exactly
    the classes that a cluster lacks. `known` are angles kept from an earlier pass. Without them, a class that
    more than `max_sampled` items have is averaged over a random sample of each cluster, to save time.
    """
    member_ZN, present_NC = _membership(labels_N), items.present()
    count, num_classes = len(member_ZN), items.num_classes
    holders_ZC = member_ZN @ present_NC
    mean_ZZC = np.ones((count, count, num_classes))
    generator = np.random.default_rng(seed)
    by_label: dict[int, list[AngleBlock]] = {}
    for block in known or ():
        by_label.setdefault(block.label, []).append(block)
    for label in range(num_classes):
        blocks: Iterable[AngleBlock]
        items_M: IntArray = np.arange(len(items))
        if known is not None:
            blocks = by_label.get(label, [])
        else:
            if present_NC[:, label].sum() > max_sampled:
                items_M = _sampled_holders(labels_N, present_NC[:, label], max_sampled // count, generator)
            asked = [items.subspaces[i] for i in items_M.tolist()]
            blocks = class_angle_blocks(asked, num_classes=num_classes, angles=angles, only=[label])
        seen_ZM, present_M = member_ZN[:, items_M], present_NC[items_M, label]
        mean_ZZC[:, :, label] = _mean_alignment(blocks, seen_ZM, seen_ZM @ present_M)
    pairs_ZZC = holders_ZC[:, None, :] * holders_ZC[None, :, :]
    if shared_alignment:
        return np.where(pairs_ZZC > 0, mean_ZZC, 1.0)
    sizes_Z = member_ZN.sum(axis=1)
    lacking_ZC = sizes_Z[:, None] - holders_ZC
    both_absent_ZZC = lacking_ZC[:, None, :] * lacking_ZC[None, :, :]
    return (pairs_ZZC * mean_ZZC + both_absent_ZZC) / (sizes_Z[:, None] * sizes_Z[None, :])[:, :, None]


def _mean_alignment(blocks: Iterable[AngleBlock], member_ZM: FloatArray, holders_Z: FloatArray) -> FloatArray:
    """Mean of 1 - V'/90 over the pairs of one class between two clusters, and 1 where there is none."""
    count = len(member_ZM)
    members_ZM = member_ZM.astype(np.float32)
    total_ZZ = np.zeros((count, count))
    for block in blocks:
        aligned_IJ = 1 - np.minimum(block.degrees_IJ, RIGHT_ANGLE) / np.float32(RIGHT_ANGLE)
        if block.diagonal:
            aligned_IJ = np.triu(aligned_IJ, 1)
        total_ZZ += members_ZM[:, block.rows_I] @ aligned_IJ @ members_ZM[:, block.columns_J].T
    total_ZZ += total_ZZ.T
    # Each item is perfectly aligned with itself. These pairs were left out above; they matter only for p = q.
    total_ZZ[np.arange(count), np.arange(count)] += holders_Z
    pairs_ZZ = holders_Z[:, None] * holders_Z[None, :]
    return np.where(pairs_ZZ > 0, total_ZZ / np.maximum(pairs_ZZ, 1), 1.0)


def _sampled_holders(
    labels_N: IntArray, present_N: np.ndarray, most: int, generator: np.random.Generator
) -> IntArray:
    """At most `most` (at least 2) items of every cluster that have the class, drawn at random, in order."""
    chosen = []
    for z in range(int(labels_N.max()) + 1):
        holders = np.flatnonzero((labels_N == z) & present_N)
        size = min(len(holders), max(most, 2))
        chosen.append(generator.choice(holders, size, replace=False) if size < len(holders) else holders)
    return np.sort(np.concatenate(chosen))


def complementarity_graph(
    counts: ArrayLike,
    labels_N: IntArray,
    alignment_ZZC: FloatArray | None = None,
    *,
    options: GraphOptions | None = None,
    distances_NN: FloatArray | None = None,
    apart_ZZ: FloatArray | None = None,
) -> ComplementarityGraph:
    """The best sources of every cluster (Eqs. 12 and 14); with Z clusters at most Z - 1, never itself.

    Equal scores are decided by the least mean distance between the clusters (`apart_ZZ`, or the mean of
    `distances_NN`), then by the lower number.
    """
    options = options or GraphOptions()
    demand_ZC, supply_ZC = cluster_demand_and_supply(
        counts, labels_N, lacking_classes=options.lacking_classes
    )
    count = len(demand_ZC)
    if alignment_ZZC is None:
        alignment_ZZC = np.ones((count, count, demand_ZC.shape[1]))
    scores_ZZ = np.einsum("pc,qc,pqc->pq", demand_ZC, supply_ZC, alignment_ZZC)
    np.fill_diagonal(scores_ZZ, -np.inf)
    if apart_ZZ is None:
        apart_ZZ = np.zeros((count, count)) if distances_NN is None else mean_between(distances_NN, labels_N)
    learners, sources = [], []
    for p in range(count):
        # Rounding noise must not decide between equal scores, so compare twelve digits.
        keys = [(-float(f"{scores_ZZ[p, q]:.12g}"), float(f"{apart_ZZ[p, q]:.6g}"), q) for q in range(count)]
        for _, _, q in sorted(key for key in keys if key[2] != p)[: options.num_sources]:
            learners.append(p)
            sources.append(q)
    learners_E, sources_E = np.array(learners, dtype=np.int64), np.array(sources, dtype=np.int64)
    return ComplementarityGraph(
        learners_E=learners_E,
        sources_E=sources_E,
        scores_E=scores_ZZ[learners_E, sources_E],
        scores_ZZ=scores_ZZ,
        demand_ZC=demand_ZC,
        supply_ZC=supply_ZC,
        alignment_ZZC=alignment_ZZC,
    )


def mean_between(distances_NN: FloatArray, labels_N: IntArray) -> FloatArray:
    """Mean distance between the members of two clusters (self-pairs included on the diagonal)."""
    member_ZN = _membership(labels_N)
    total_ZZ = np.zeros((len(member_ZN), len(member_ZN)))
    for rows in row_blocks(len(distances_NN)):
        total_ZZ += member_ZN[:, rows] @ (distances_NN[rows].astype(np.float64) @ member_ZN.T)
    sizes_Z = member_ZN.sum(axis=1)
    return total_ZZ / (sizes_Z[:, None] * sizes_Z[None, :])


def _membership(labels_N: IntArray) -> FloatArray:
    """Clusters x items, 1 for a member."""
    labels_N = np.asarray(labels_N)
    if len(labels_N) and set(np.unique(labels_N)) != set(range(labels_N.max() + 1)):
        raise ValueError("labels must be numbered 0, 1, ... without gaps")
    return (np.arange(labels_N.max(initial=-1) + 1)[:, None] == labels_N[None, :]).astype(np.float64)
