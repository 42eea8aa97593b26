# SPDX-License-Identifier: Apache-2.0
"""Which cut of a hierarchical clustering is right, and whether there is anything to cut at all."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.agglomerative import (
    GRID,
    Cuts,
    Linkage,
    LossWeights,
    cut,
    cut_into,
    link,
    score_cuts,
)
from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, checked_distances
from feddag.clustering.silhouette import best_cut
from feddag.clustering.similarity import min_max, normalised

RuleName = Literal["structure", "silhouette", "loss", "plateau", "count", "threshold"]


@dataclass(frozen=True)
class Rule:
    """How a cut is chosen.

    structure: best silhouette, small clusters absorbed, kept only if a structureless cloud of the same shape
    does not reach it; then the same inside every loose part. silhouette: the best silhouette of the grid.
    loss: among cuts within a quarter of the loss range, the fewest clusters. plateau: the partition that
    survives the longest range of thresholds. count, threshold: given.
    """

    name: RuleName = "structure"
    linkage: Linkage = "average"
    thresholds: tuple[float, ...] = GRID
    loss: LossWeights = field(default_factory=LossWeights)
    count: int | None = None
    threshold: float | None = None
    min_size: int = 3
    """structure: smaller clusters are absorbed by the nearest larger one; 2 is enough below 24 items."""
    floor: float = 0.35
    """structure: least silhouette of the first split; IID image sets were seen to reach 0.28, groups 0.69."""
    inner_floor: float = 0.3
    """structure: the same for splits inside a part that was already split off."""
    close: float = 0.2
    """structure: a part whose mean distance is below this share of the range [0, 1] is close together."""
    close_floor: float = 0.45
    """structure: least silhouette of a split inside such a part."""
    tight: float = 0.1
    """structure: a part whose mean distance is below this share of the range is not split again."""
    margin: float = 0.02
    """structure: how far a silhouette must exceed the best one of the structureless clouds."""
    close_margin: float = 0.05
    """structure: the same inside a part that is close together."""
    clouds: int = 20
    seed: int = 0
    """structure: of the clouds' generator; it decides nothing but borderline cases."""

    def __post_init__(self) -> None:
        """Refuse a rule without what it needs."""
        if self.name not in ("structure", "silhouette", "loss", "plateau", "count", "threshold"):
            raise ValueError(
                f"rule must be structure, silhouette, loss, plateau, count or threshold, not {self.name!r}"
            )
        if self.name == "count" and (self.count is None or self.count < 1):
            raise ValueError(f"rule 'count' needs a number of clusters of at least 1, got {self.count}")
        if self.name == "threshold" and (self.threshold is None or self.threshold < 0):
            raise ValueError(f"rule 'threshold' needs a threshold of at least 0, got {self.threshold}")
        if not self.thresholds:
            raise ValueError("at least one threshold is needed")


@dataclass(frozen=True)
class SplitTest:
    """One question asked by rule `structure`: do these items fall into parts?"""

    members: IntArray
    silhouette: float
    clouds: FloatArray
    """Best silhouettes of structureless clouds of the same shape; empty where the answer was clear before."""
    parts: int
    split: bool


@dataclass(frozen=True)
class Choice:
    """The chosen partition and everything it was chosen from."""

    labels_N: IntArray
    threshold: float
    linkage_matrix: FloatArray
    cuts: Cuts
    rule: Rule
    tests: tuple[SplitTest, ...] = ()

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.labels_N.max(initial=-1)) + 1


def choose(distances: ArrayLike, rule: Rule | None = None) -> Choice:
    """Cluster a distance matrix and choose the cut; 0, 1 and equal items are defined: at most one cluster."""
    rule = rule or Rule()
    distances_NN = checked_distances(distances)
    linkage_matrix = link(distances_NN, rule.linkage)
    cuts = score_cuts(distances_NN, linkage_matrix, rule.thresholds, rule.loss)
    n = len(distances_NN)
    tests: tuple[SplitTest, ...] = ()
    labels_N: IntArray = np.zeros(n, dtype=np.int64)
    if n < 2:
        threshold = 0.0
    elif rule.name == "count" and rule.count is not None:
        labels_N, threshold = cut_into(linkage_matrix, rule.count)
    elif rule.name == "threshold" and rule.threshold is not None:
        labels_N, threshold = cut(linkage_matrix, rule.threshold), rule.threshold
    elif distances_NN.max() == 0:
        threshold = float(cuts.thresholds_T[-1])
    elif rule.name == "structure":
        labels_N, tests = split_while_real(distances_NN, rule, linkage_matrix)
        threshold = separating_threshold(linkage_matrix, labels_N)
    else:
        index = {"silhouette": by_silhouette, "loss": by_loss, "plateau": by_plateau}[rule.name](cuts)
        labels_N, threshold = cuts.partitions_TN[index], float(cuts.thresholds_T[index])
    return Choice(labels_N, threshold, linkage_matrix, cuts, rule, tests)


def by_silhouette(cuts: Cuts) -> int:
    """The best mean silhouette; equal ones: the larger threshold. One cluster if none is defined."""
    if np.isnan(cuts.silhouettes_T).all():
        return len(cuts.counts_T) - 1
    best = np.nanmax(cuts.silhouettes_T)
    return int(np.flatnonzero(cuts.silhouettes_T >= best - 1e-12)[-1])


def by_loss(cuts: Cuts) -> int:
    """Least Z among losses up to L_min + (L_max - L_min) / 4; then longer plateau, then larger threshold."""
    losses_T = np.minimum(cuts.losses_T, 1)
    limit = losses_T.min() + 0.25 * (losses_T.max() - losses_T.min())
    lengths_T = _plateau_lengths(cuts)
    keys = [
        (-cuts.counts_T[t], lengths_T[t], t) for t in range(len(losses_T)) if losses_T[t] <= limit + 1e-12
    ]
    return int(max(keys)[2])


def by_plateau(cuts: Cuts) -> int:
    """The longest run of thresholds with one partition of 2 to N - 1 clusters; without any, one cluster."""
    lengths_T = _plateau_lengths(cuts)
    proper_T = (cuts.counts_T > 1) & (cuts.counts_T < cuts.partitions_TN.shape[1])
    if not proper_T.any():
        return len(cuts.counts_T) - 1
    return int(max((lengths_T[t], t) for t in np.flatnonzero(proper_T))[1])


def split_while_real(
    distances_NN: FloatArray, rule: Rule, linkage_matrix: FloatArray
) -> tuple[IntArray, tuple[SplitTest, ...]]:
    """Split by the best silhouette, if it is real, and ask again inside every part that is not tight."""
    generator = np.random.default_rng(rule.seed)
    rule = replace(rule, min_size=least_size(len(distances_NN), rule))
    labels_N = np.full(len(distances_NN), -1, dtype=np.int64)
    tests: list[SplitTest] = []
    waiting = [np.arange(len(distances_NN))]
    following = 0
    while waiting:
        members = waiting.pop(0)
        whole = len(members) == len(distances_NN)
        inner = distances_NN if whole else distances_NN[np.ix_(members, members)]
        spread = _mean_distance(inner)
        floor, margin = rule.floor, rule.margin
        if not whole:
            # The question is the same as for the whole, so the scale is too: [0, 1] within the part.
            inner = normalised(inner, min_max(inner, resolution=0.0))
            close = spread < rule.close
            floor = rule.close_floor if close else rule.inner_floor
            margin = rule.close_margin if close else rule.margin
        if len(members) < 2 * rule.min_size or spread == 0 or (not whole and spread < rule.tight):
            test, parts = SplitTest(members, np.nan, np.zeros(0), 1, False), _one_part(len(members))
        else:
            linked = linkage_matrix if whole else None
            test, parts = _test_split(inner, members, rule, floor, margin, generator, linked)
        tests.append(test)
        if not test.split:
            labels_N[members] = following
            following += 1
        else:
            waiting += [members[parts == part] for part in range(parts.max() + 1)]
    return canonical_labels(labels_N), tuple(tests)


def least_size(num_items: int, rule: Rule) -> int:
    """The rule's `min_size`, but 2 among few items: an eighth of them is a group."""
    return min(rule.min_size, max(2, num_items // 8))


def structureless_cloud(axes_K: FloatArray, num_items: int, generator: np.random.Generator) -> FloatArray:
    """Distances of normally distributed points with these standard deviations along their axes."""
    points_NK = generator.normal(size=(num_items, len(axes_K))) * axes_K
    squares_N = (points_NK**2).sum(axis=1)
    squared_NN = squares_N[:, None] + squares_N[None, :] - 2 * points_NK @ points_NK.T
    cloud_NN = np.sqrt(np.maximum(squared_NN, 0))
    np.fill_diagonal(cloud_NN, 0)
    return cloud_NN


def principal_axes(distances_NN: FloatArray) -> FloatArray:
    """Standard deviations of the items along their principal axes (classical scaling)."""
    squared_NN = np.asarray(distances_NN, dtype=np.float64) ** 2
    centred_NN = squared_NN - squared_NN.mean(axis=0) - squared_NN.mean(axis=1)[:, None] + squared_NN.mean()
    values = np.linalg.eigvalsh(-centred_NN / 2)
    return np.sqrt(values[values > 0] / len(distances_NN))


def separating_threshold(linkage_matrix: FloatArray, labels_N: IntArray) -> float:
    """The largest threshold that merges no two of the given clusters' cores: what newcomers are held to."""
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


def _test_split(
    distances_NN: FloatArray,
    members: IntArray,
    rule: Rule,
    floor: float,
    margin: float,
    generator: np.random.Generator,
    linkage_matrix: FloatArray | None,
) -> tuple[SplitTest, IntArray]:
    n, one = len(distances_NN), _one_part(len(distances_NN))
    if linkage_matrix is None:
        linkage_matrix = link(distances_NN, rule.linkage)
    silhouette, parts = best_cut(distances_NN, linkage_matrix, rule.min_size)
    if parts.max() == 0 or silhouette < floor:
        shown = silhouette if parts.max() else np.nan
        return SplitTest(members, shown, np.zeros(0), int(parts.max()) + 1, False), one
    clouds = []
    sample = np.arange(n) if n <= CLOUD_ITEMS else np.sort(generator.choice(n, CLOUD_ITEMS, replace=False))
    axes_K = principal_axes(distances_NN[np.ix_(sample, sample)])
    for _ in range(rule.clouds):
        cloud = structureless_cloud(axes_K, len(sample), generator)
        clouds.append(max(best_cut(cloud, link(cloud, rule.linkage), rule.min_size)[0], 0.0))
    clouds_R = np.array(clouds)
    real = silhouette > clouds_R.max(initial=0) + margin
    return SplitTest(members, silhouette, clouds_R, int(parts.max()) + 1, bool(real)), parts if real else one


CLOUD_ITEMS = 200
"""A cloud has at most this many items; larger matrices are sampled for its shape."""


def _one_part(num_items: int) -> IntArray:
    return np.zeros(num_items, dtype=np.int64)


def _mean_distance(distances_NN: FloatArray) -> float:
    n = len(distances_NN)
    return float(distances_NN.sum(dtype=np.float64)) / max(n * (n - 1), 1)


def _plateau_lengths(cuts: Cuts) -> IntArray:
    """For every threshold, over how many neighbouring thresholds its partition stays the same."""
    same = [
        np.array_equal(a, b) for a, b in zip(cuts.partitions_TN[:-1], cuts.partitions_TN[1:], strict=True)
    ]
    run_T = np.cumsum([0, *(not s for s in same)])
    return np.bincount(run_T)[run_T]
