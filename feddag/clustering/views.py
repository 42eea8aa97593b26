# SPDX-License-Identifier: Apache-2.0
"""The views of N items as distance matrices, and how newcomers are measured in the same way.

`labels` comes from class counts alone. `pixels`, `shape`, `texture` and `tones` compare the classes that two
items share, `gradient` compares their updates; all of these are cleared of noise (`reliable.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from feddag.clustering.angles import KeptAngles
from feddag.clustering.arrays import FloatArray
from feddag.clustering.compose import Split, ViewMatrix
from feddag.clustering.evidence import ABSENT_POWER, unshared
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.reliable import ReliableAngles
from feddag.clustering.similarity import MinMax, min_max, normalised
from feddag.core.message import message

LABELS = "labels"


@message
class ViewFit:
    """How one view was measured, and how much it counts in the proximity."""

    name: str
    angles: ReliableAngles | None = None  # None for labels
    scale: MinMax = MinMax(low=0.0, high=1.0)
    weight: float = 0.0

    @property
    def unit(self) -> str:
        """What the numbers of `between` mean, for people."""
        return "0 same classes, 1 none in common" if self.angles is None else "degrees"

    def fit(self, items: Items, keep: KeptAngles | None = None) -> tuple["ViewFit", ViewMatrix]:
        """The view of N items; `keep` collects class-wise angles."""
        if self.angles is None:
            return self, ViewMatrix(self.name, _symmetric(self.between(items, items, self)))
        fitted, angles_NN = self.angles.fit(items, keep)
        done = replace(self, angles=fitted, scale=min_max(angles_NN))
        return done, ViewMatrix(
            self.name,
            normalised(angles_NN, done.scale),
            np.square(np.sin(np.radians(angles_NN))),
            fitted.errors_N,
            fitted.typical_error,
            partial(fitted.halves, items),
        )

    def newcomers(self, new: Items, old: Items) -> "ViewFit":
        """The view of new items: the old constants, with the newcomers' own noise."""
        return self if self.angles is None else replace(self, angles=self.angles.newcomers(new, old))

    def joined(self, of_new: "ViewFit") -> "ViewFit":
        """The view of old and new items together."""
        if self.angles is None or of_new.angles is None:
            return self
        return replace(self, angles=self.angles.joined(of_new.angles))

    def between(self, new: Items, old: Items, of_new: "ViewFit") -> FloatArray:
        """M new items against N old ones: u^1.5 for labels, else degrees."""
        if self.angles is None:
            return (unshared(new.counts_NC, old.counts_NC) ** ABSENT_POWER).astype(np.float32)
        return self.angles.between(new, old, of_new.angles)

    def measured(self, new: Items, old: Items) -> tuple["ViewFit", FloatArray]:
        """`newcomers` and `between` in one pass."""
        if self.angles is None:
            return self, self.between(new, old, self)
        of_new, angles_MN = self.angles.measured(new, old)
        return replace(self, angles=of_new), angles_MN


def unfitted_views(items: Items, options: ClusteringOptions) -> list[ViewFit]:
    """The views that these items tell something in."""
    updates = ("gradient",) if items.sketches_NK is not None else ()
    measured = [
        ViewFit(name=name, angles=ReliableAngles(options=options, view=name, shared_only=True))
        for name in (*items.views(), *updates)
    ]
    return [ViewFit(name=LABELS), *measured]


def weighted(fits: Sequence[ViewFit], splits: Sequence[Split]) -> tuple[ViewFit, ...]:
    """Views that split something count equally, the others not at all; if nothing was split, all count."""
    used = {split.view for split in splits if split.view} or {fit.name for fit in fits}
    return tuple(replace(fit, weight=(fit.name in used) / len(used)) for fit in fits)


def fused(fits: Sequence[ViewFit], matrices: Sequence[ViewMatrix]) -> FloatArray:
    """The proximity: the weighted mean of all views, each on the scale [0, 1]."""
    counted = [(f.weight, m.distances_NN) for f, m in zip(fits, matrices, strict=True) if f.weight]
    weight, distances_NN = counted[0]
    total_NN = np.float32(weight) * distances_NN
    for weight, distances_NN in counted[1:]:
        total_NN += np.float32(weight) * distances_NN
    np.fill_diagonal(total_NN, 0)
    return total_NN


def proximity_between(
    fits: Sequence[ViewFit], new: Items, old: Items, of_new: Sequence[ViewFit]
) -> FloatArray:
    """The proximity of M new items to N old ones, by the constants and weights of the old ones."""
    total_MN = np.zeros((len(new), len(old)), dtype=np.float32)
    for fit, fit_new in zip(fits, of_new, strict=True):
        if fit.weight:
            total_MN += np.float32(fit.weight) * fit.scale.apply(fit.between(new, old, fit_new))
    return total_MN


def among(fits: Sequence[ViewFit], items: Items) -> FloatArray:
    """The proximity of items whose views are known: nothing is found anew."""
    return _symmetric(proximity_between(fits, items, items, fits))


def _symmetric(matrix_NN: FloatArray) -> FloatArray:
    """The mean of both halves, with a zero diagonal."""
    result_NN = (matrix_NN + matrix_NN.T) / 2
    np.fill_diagonal(result_NN, 0)
    return result_NN
