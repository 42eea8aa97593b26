# SPDX-License-Identifier: Apache-2.0
"""Clustering again: which rows stay, whether a new clustering is better for certain, and who is who in it."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy

from feddag.clustering.agglomerative import agreement
from feddag.clustering.arrays import FloatArray, IntArray

T = TypeVar("T")
SUBSAMPLES, SUBSAMPLE_SHARE = 5, 0.9


def of_items(frame: T, rows: Sequence[int]) -> T:
    """A frame with some of its items, in the given order.

    Shapes are in names: in every array whose last word begins with N the first axis counts items.
    """
    changes: dict[str, Any] = {}
    for f in fields(frame):  # type: ignore[arg-type]
        value = getattr(frame, f.name)
        counts_items = f.name.rpartition("_")[2].startswith("N") and "_" in f.name
        if isinstance(value, np.ndarray) and counts_items and len(value):  # empty: that view is not used
            changes[f.name] = value[np.asarray(rows, dtype=np.int64)]
        elif isinstance(value, tuple) and value and all(is_dataclass(part) for part in value):
            changes[f.name] = tuple(of_items(part, rows) for part in value)
        elif is_dataclass(value) and not isinstance(value, type):
            changes[f.name] = of_items(value, rows)
    return replace(frame, **changes)  # type: ignore[type-var]


def separation(distances_NN: FloatArray, labels_N: IntArray) -> float:
    """Mean silhouette; 0 where it is not defined: one cluster, or each item alone."""
    from sklearn.metrics import silhouette_score  # takes long to import

    if not 1 < len(np.unique(labels_N)) < len(labels_N):
        return 0.0
    square_NN = np.array(distances_NN, dtype=np.float64)
    np.fill_diagonal(square_NN, 0)
    return float(silhouette_score(square_NN, labels_N, metric="precomputed"))


def stability(
    labels_N: IntArray, cluster_rows: Callable[[np.ndarray], IntArray], rng: np.random.Generator
) -> float:
    """Mean agreement of the labels with those of five clusterings of 90% of the items."""
    n = len(labels_N)
    size = max(2, round(SUBSAMPLE_SHARE * n))
    found = []
    for _ in range(SUBSAMPLES):
        rows = np.sort(rng.choice(n, size=min(size, n), replace=False))
        found.append(agreement(cluster_rows(rows), labels_N[rows]))
    return float(np.mean(found))


def renumbered(new_N: IntArray, old_N: IntArray, weights_N: FloatArray) -> IntArray:
    """The new labels with the numbers of the old clusters they overlap most with; other ones come last."""
    overlap = overlaps(new_N, old_N, weights_N)
    rows, columns = scipy.optimize.linear_sum_assignment(-overlap)
    heir = {int(k): int(z) for k, z in zip(rows, columns, strict=True) if overlap[k, z] > 0}
    order = sorted(range(len(overlap)), key=lambda k: (k not in heir, heir.get(k, k)))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[new_N]


def overlaps(new_N: IntArray, old_N: IntArray, weights_N: FloatArray) -> FloatArray:
    """Weight of the items that are in new cluster k and old cluster z."""
    table = np.zeros((int(new_N.max()) + 1, int(old_N.max()) + 1))
    np.add.at(table, (new_N, old_N), weights_N)
    return table
