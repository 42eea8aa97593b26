# SPDX-License-Identifier: Apache-2.0
"""Do two clusters mean the same by their labels? Looks may differ, names may not.

Two clusters hold the same labels, and yet their clients were split. There are two reasons:

    other looks    class 3 looks different here and there, and no other class of the other cluster is nearer
    other names    what one calls class 3 is what the other calls class 6

The difference shows without any training: *if the classes of one cluster are given the names under which both
clusters are nearest* (the best assignment), looks stay apart and names do not. The distance of two classes is
1 − cos(M, M'), where M = Σ n U Uᵀ is the sum of the members' projectors on their principal vectors.
"""

from collections.abc import Sequence

import numpy as np
import scipy

from feddag.clustering.arrays import FloatArray
from feddag.clustering.items import Items

VIEWS = ("pixels", "shape")  # those with principal vectors; mean texture and tones hardly tell classes apart
MOST = 16  # members of a cluster that are looked at, those with the most samples
# At this part of the distance or less, other names explain it. Seen where classes were renamed: at most 0.61,
# and less in the other view; where they look different: at least 0.82, nearly always 0.96.
RENAMED = 0.75
# Within one cluster a class must be so much nearer to itself than to others: else nothing can be told.
VISIBLE = 0.9


def mean_the_same(items: Items, members: Sequence[Sequence[int]]) -> np.ndarray:
    """Z x Z: whether two clusters call the same things by the same names, as far as it can be seen.

    Nobody means the same if that cannot be seen: there is no view with principal vectors, or classes
    look alike in it, or a cluster has one member only.
    """
    Z = len(members)
    same_ZZ, renamed_ZZ = np.eye(Z, dtype=bool), np.zeros((Z, Z), dtype=bool)
    largest = [sorted(of_z, key=lambda i: -items.counts_NC[i].sum())[:MOST] for of_z in members]
    for view in (view for view in VIEWS if view in items.views()):
        seen = [z for z in range(Z) if _classes_are_seen(items, view, largest[z])]
        for k, a in enumerate(seen):
            for b in seen[:k]:
                told = _by_other_names(class_distances(items, view, largest[a], largest[b]))
                same_ZZ[a, b] = same_ZZ[b, a] = same_ZZ[a, b] or not np.isnan(told)
                renamed_ZZ[a, b] = renamed_ZZ[b, a] = renamed_ZZ[a, b] or told <= RENAMED
    return same_ZZ & ~renamed_ZZ


def class_distances(items: Items, view: str, rows: Sequence[int], others: Sequence[int]) -> FloatArray:
    """C x C: 1 − cos between the classes of some items and those of others; NaN where one has no vectors."""
    left, right = _scaled(items, view, rows), _scaled(items, view, others)
    alike_CC = _products(left, right)
    lengths_C, other_C = (np.sqrt(np.diagonal(_products(part, part))) for part in (left, right))
    with np.errstate(invalid="ignore", divide="ignore"):
        return 1 - alike_CC / np.outer(lengths_C, other_C)


def _scaled(items: Items, view: str, rows: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Principal vectors of some items, scaled by the root of the samples behind them; rows of class flags."""
    told = [items.class_vectors(view)[i] for i in rows]
    samples = [items.counts_NC[i, t.classes_P] for i, t in zip(rows, told, strict=True)]
    vectors_PD = np.concatenate([t.vectors_PD for t in told]).astype(np.float64)
    flags_PC = np.concatenate([np.eye(items.num_classes)[t.classes_P] for t in told])
    return vectors_PD * np.sqrt(np.maximum(np.concatenate(samples), 0))[:, None], flags_PC


def _products(left: tuple[FloatArray, FloatArray], right: tuple[FloatArray, FloatArray]) -> FloatArray:
    """C x C: tr(M M') of two sets of projectors, by the squares of the products of all their vectors."""
    (vectors_PD, flags_PC), (others_QD, flags_QC) = left, right
    return flags_PC.T @ np.square(vectors_PD @ others_QD.T) @ flags_QC


def _classes_are_seen(items: Items, view: str, rows: Sequence[int]) -> bool:
    """Whether members of one cluster tell its classes apart: two halves of them agree."""
    if len(rows) < 2:
        return False
    distances_CC = class_distances(items, view, rows[::2], rows[1::2])
    own_C = np.diagonal(distances_CC)
    other = distances_CC[~np.eye(len(own_C), dtype=bool)]
    return bool(np.nanmean(own_C) <= VISIBLE * np.nanmean(other)) if _any(own_C) and _any(other) else False


def _any(values: FloatArray) -> bool:
    return bool(np.isfinite(values).any())


def _by_other_names(distances_CC: FloatArray) -> float:
    """What part of the distance is left if classes get the best names; NaN with fewer than two classes."""
    both = np.flatnonzero(np.isfinite(np.diagonal(distances_CC)))
    if len(both) < 2:
        return float("nan")
    shared_CC = distances_CC[np.ix_(both, both)]
    named = float(np.trace(shared_CC))
    best = float(shared_CC[scipy.optimize.linear_sum_assignment(shared_CC)].sum())
    return best / named if named > 0 else 1.0
