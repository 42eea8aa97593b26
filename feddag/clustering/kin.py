# SPDX-License-Identifier: Apache-2.0
"""Whether an item is of one kind with a cluster, however small the cluster is.

Clusters are found from silhouettes, which say nothing about groups of one or two. After an alarm another
question can be answered: is this item farther from a cluster than noise explains, and farther than the
cluster's own members are? In every view, in errors of the angles cleared of noise (`reliable.py`):

    misfit = min( m / limit,  m / (1.5 · the largest m of a member) ),     m = mean distance to the members

An item fits if its misfit is at most 1 in all views. The noise of an item is usually found from its nearest
neighbours. An item that is alone with its kind has none, and would pass for a noisy one. So here a noise
level is at most 1.5 times the median of its class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.views import unfitted_views

LEVEL = (1.5, 0.5)
"""A noise level is at most 1.5 times the median of its class."""
LIMITS = {"labels": 0.5, "pixels": 2.0, "shape": 2.0}
"""Errors that an item may be away from its cluster; of labels u^1.5, which has no error."""
OTHER_LIMIT = 10.0
"""The same for texture and updates, whose errors are estimated too small."""
BEYOND = 1.5
"""How many times as far as the farthest member."""
TINY = 1e-12


@dataclass(frozen=True)
class Kinship:
    """How far N items are apart in every view, over the limit of that view."""

    distances_VNN: FloatArray

    @classmethod
    def of(cls, items: Items, options: ClusteringOptions) -> "Kinship":
        """Measured anew: nothing of an earlier clustering counts."""
        found = []
        for view in unfitted_views(items, options):
            limit = LIMITS.get(view.name, OTHER_LIMIT)
            if view.angles is None:
                found.append(view.between(items, items, view) / limit)
                continue
            fitted, angles_NN = view.angles.fit(items, limit=LEVEL)
            error_N = np.maximum(np.maximum(fitted.errors_N, fitted.typical_error), TINY)
            error_NN = np.maximum(error_N[:, None], error_N[None, :])
            excess_NN = np.square(np.sin(np.radians(angles_NN))) - fitted.typical_error
            found.append(np.maximum(excess_NN, 0) / error_NN / limit)
        return cls(np.stack(found).astype(np.float64))

    def misfit(self, item: int, members: Sequence[int]) -> float:
        """How badly an item fits these others; above 1 it is of another kind."""
        others = [m for m in members if m != item]
        if not others:
            return 0.0
        away_V = self.distances_VNN[:, item, others].mean(axis=1)
        if len(others) == 1:
            return float(away_V.max())
        inner_VMM = self.distances_VNN[:, others][:, :, others]
        farthest_V = (inner_VMM.sum(axis=2) / (len(others) - 1)).max(axis=1)
        return float(np.minimum(away_V, away_V / np.maximum(BEYOND * farthest_V, TINY)).max())

    def apart(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Whether two clusters are of different kinds: farther from each other than their members are."""
        between_V = self.distances_VNN[:, one][:, :, other].mean(axis=(1, 2))
        within_V = np.maximum(*(self._within(who) for who in (one, other)))
        return bool((np.minimum(between_V, between_V / np.maximum(BEYOND * within_V, TINY)) > 1).any())

    def _within(self, members: Sequence[int]) -> FloatArray:
        inner_VMM = self.distances_VNN[:, members][:, :, members]
        return inner_VMM.sum(axis=(1, 2)) / max(len(members) * (len(members) - 1), 1)

    def joins(self, new_N: IntArray, now_N: IntArray) -> bool:
        """Whether the new clusters bring most of two clusters of different kinds together."""
        members = [np.flatnonzero(now_N == z).tolist() for z in np.unique(now_N)]
        home = []
        for who in members:
            sizes = np.bincount(new_N[who])
            home.append(int(sizes.argmax()) if 2 * sizes.max() > len(who) else -1)
        return any(
            home[a] == home[b] >= 0 and self.apart(members[a], members[b])
            for a in range(len(members))
            for b in range(a)
        )

    def place(
        self, items: Sequence[int], proposed: Sequence[int], members: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """The cluster of each of these items: the proposed one if they fit it, else the one they fit best.

        Who fits none opens a cluster, which those after it may fit.
        """
        opened: dict[int, list[int]] = {}
        found: list[int] = []
        for item, wanted in zip(items, proposed, strict=True):
            misfits = {z: self.misfit(item, who) for z, who in {**members, **opened}.items() if len(who)}
            best = min(misfits, key=lambda z: (misfits[z] > 1, z != wanted, misfits[z]))
            if misfits[best] > 1:
                best = max([*members, *opened]) + 1
            if best not in members:
                opened.setdefault(best, []).append(item)
            found.append(best)
        return found
