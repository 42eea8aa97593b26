# SPDX-License-Identifier: Apache-2.0
"""The cut rule `structure`: split while a silhouette is better than that of clouds without structure."""

from dataclasses import dataclass

import numpy as np

from feddag.clustering.agglomerative import link
from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels
from feddag.clustering.options import ClusteringOptions, Linkage, StructureRule
from feddag.clustering.silhouette import best_cut
from feddag.clustering.similarity import min_max, normalised

CLOUD_ITEMS = 200
"""A cloud has at most this number of items; a larger matrix is sampled to find the shape of its clouds."""


@dataclass(frozen=True)
class SplitTest:
    """One test of the rule: do these items fall into parts?"""

    members: IntArray
    silhouette: float
    clouds: FloatArray
    """Best silhouettes of structureless clouds of the same shape; empty where none were needed."""
    parts: int
    split: bool


def split_while_real(
    distances_NN: FloatArray, linkage_matrix: FloatArray, options: ClusteringOptions
) -> tuple[IntArray, tuple[SplitTest, ...]]:
    """Split by the best silhouette, if it is real, and test again inside every part that is not tight."""
    rule = options.structure
    generator = np.random.default_rng(rule.seed)
    labels_N = np.full(len(distances_NN), -1, dtype=np.int64)
    tests: list[SplitTest] = []
    waiting = [np.arange(len(distances_NN))]
    next_label = 0
    while waiting:
        members = waiting.pop(0)
        whole = len(members) == len(distances_NN)
        inner = distances_NN if whole else distances_NN[np.ix_(members, members)]
        spread = mean_distance(inner)
        floor, margin = _limits(rule, spread, whole)
        # Pairs count among few items, but not inside a part: four items fall into two pairs by chance.
        min_size = least_size(len(members), rule) if whole else rule.min_size
        test = SplitTest(members, np.nan, np.zeros(0), 1, False)
        parts: IntArray = np.zeros(len(members), dtype=np.int64)
        if len(members) >= 2 * min_size and spread > 0 and (whole or spread >= rule.tight):
            # A part is put on the scale [0, 1], as the whole was, because the test is the same.
            inner = inner if whole else normalised(inner, min_max(inner, resolution=0.0))
            linked = linkage_matrix if whole else link(inner, options.linkage)
            silhouette, parts = best_cut(inner, linked, min_size)
            clouds_R: FloatArray = np.zeros(0)
            real = parts.max() > 0 and silhouette >= floor
            if real:
                clouds_R = cloud_silhouettes(inner, rule.clouds, min_size, options.linkage, generator)
                real = silhouette > clouds_R.max(initial=0) + margin
            shown = silhouette if parts.max() else np.nan
            test = SplitTest(members, shown, clouds_R, int(parts.max()) + 1, bool(real))
        tests.append(test)
        if test.split:
            waiting += [members[parts == part] for part in range(parts.max() + 1)]
        else:
            labels_N[members] = next_label
            next_label += 1
    return canonical_labels(labels_N), tuple(tests)


def least_size(num_items: int, rule: StructureRule) -> int:
    """The rule's `min_size`, but 2 among few items, where an eighth of them is a group."""
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


def _limits(rule: StructureRule, spread: float, whole: bool) -> tuple[float, float]:
    """Least silhouette of a split, and by how much it must exceed the clouds."""
    if whole:
        return rule.floor, rule.margin
    close = spread < rule.close
    return (rule.close_floor, rule.close_margin) if close else (rule.inner_floor, rule.margin)


def cloud_silhouettes(
    distances_NN: FloatArray,
    clouds: int,
    min_size: int,
    linkage: Linkage,
    generator: np.random.Generator,
    until: float = np.inf,
) -> FloatArray:
    """Best silhouettes of structureless clouds with the shape of the items; at least 0.

    No further cloud is asked when one has reached `until`.
    """
    n = len(distances_NN)
    sample = np.arange(n) if n <= CLOUD_ITEMS else np.sort(generator.choice(n, CLOUD_ITEMS, replace=False))
    axes_K = principal_axes(distances_NN[np.ix_(sample, sample)])
    found = []
    for _ in range(clouds):
        cloud = structureless_cloud(axes_K, len(sample), generator)
        found.append(max(best_cut(cloud, link(cloud, linkage), min_size)[0], 0.0))
        if found[-1] >= until:
            break
    return np.array(found)


def mean_distance(distances_NN: FloatArray) -> float:
    """The mean distance of two different items."""
    n = len(distances_NN)
    return float(distances_NN.sum(dtype=np.float64)) / max(n * (n - 1), 1)
