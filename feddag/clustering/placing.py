# SPDX-License-Identifier: Apache-2.0
"""Placing very many items: each is compared with anchors, some members of every cluster, and no others."""

from dataclasses import dataclass, replace

import numpy as np

from feddag.clustering.again import of_items
from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.items import CLASS_VIEWS, Items
from feddag.clustering.newcomers import joined, newcomer_distances, newcomer_frame
from feddag.clustering.outliers import far_from, nearer_half, typical_distances
from feddag.clustering.proximity import Frame
from feddag.clustering.views import ViewFit

ANCHORS, LEAST_ANCHORS = 256, 16
"""Items that others are compared with, in all; and of every cluster, if it has so many members."""


@dataclass(frozen=True)
class Placed:
    """What is known of M items after they were placed."""

    labels_M: IntArray
    sure_M: FloatArray
    """(b - a) / max(a, b) of the mean distances to the own and to the next cluster, like a silhouette."""
    second_M: IntArray
    """The second nearest cluster; -1 if there is only one."""
    unlike_M: np.ndarray
    """Whether an item is far from every cluster, from each in some view."""


@dataclass(frozen=True)
class Anchors:
    """Members of every cluster, how they were measured, and how far a typical one is from its cluster."""

    rows_A: IntArray
    """Which of all items they are."""
    items: Items
    labels_A: IntArray
    frame: Frame
    typical_VZ: tuple[FloatArray, ...]
    """For each view (sin², or u^1.5 for labels) and cluster: the median of its anchors' mean distances."""

    @classmethod
    def of(cls, rows_A: IntArray, items: Items, labels_A: IntArray, frame: Frame) -> "Anchors":
        """The anchors with these signatures; every cluster has at least one."""
        typical = []
        for fit in frame.fits:
            distances_AA = _compared(fit, fit.between(items, items, fit))
            typical.append(typical_distances(nearer_half(distances_AA, labels_A, members=True), labels_A))
        return cls(rows_A, items, labels_A, frame, tuple(typical))

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.labels_A.max(initial=-1)) + 1

    def views(self) -> tuple[str, ...]:
        """What an item must tell to be placed."""
        if self.frame.fits:
            return tuple(fit.name for fit in self.frame.fits)
        return CLASS_VIEWS + (("gradient",) if self.frame.told != "data" else ())

    def place(self, new: Items) -> Placed:
        """Every item joins the cluster that is nearest on average, by the frame of the anchors."""
        far_ZM = np.zeros((self.count, len(new)), dtype=bool)
        if self.frame.fits:
            distances_MA = np.zeros((len(new), len(self.items)), dtype=np.float32)
            for fit, typical_Z in zip(self.frame.fits, self.typical_VZ, strict=True):
                of_new, angles_MA = fit.measured(new, self.items)
                if fit.weight:
                    distances_MA += np.float32(fit.weight) * fit.scale.apply(angles_MA)
                far_ZM |= far_from(
                    nearer_half(_compared(fit, angles_MA), self.labels_A, members=False),
                    typical_Z,
                    None if of_new.angles is None else of_new.angles.errors_N,
                    0.0 if fit.angles is None else fit.angles.typical_error,
                )
        else:
            of_all = newcomer_frame(new, self.items, self.frame)
            distances_MA, _ = newcomer_distances(new, of_all, self.items, self.frame)
        return _placed(self.means(distances_MA), np.asarray(far_ZM.all(axis=0)))

    def means(self, distances_MA: FloatArray) -> FloatArray:
        """Items x clusters: the mean distance to a cluster's anchors."""
        inside_AZ = (self.labels_A[:, None] == np.arange(self.count)).astype(np.float32)
        return distances_MA @ (inside_AZ / inside_AZ.sum(axis=0))

    def with_clusters(self, items: Items, rows_M: IntArray, labels_M: IntArray, used: set[str]) -> "Anchors":
        """The anchors and those of new clusters; views that split somebody count from now on."""
        frame = joined(self.frame, newcomer_frame(items, self.items, self.frame))
        fits = tuple(replace(fit, weight=(fit.name in used) / len(used)) for fit in frame.fits)
        return Anchors.of(
            np.concatenate([self.rows_A, rows_M]),
            Items.joined([self.items, items]),
            np.concatenate([self.labels_A, labels_M]),
            replace(frame, fits=fits),
        )


@dataclass(frozen=True)
class Everyone:
    """N items of which only some, the landmarks, were compared with each other."""

    rows_N: IntArray
    """The items that could be read, in order; all arrays below follow it."""
    labels_N: IntArray
    counts_NC: FloatArray
    sure_N: FloatArray
    second_N: IntArray
    unlike_N: np.ndarray
    landmarks: IntArray
    """Rows of the landmarks: the items of frame, distances, cut and splits."""
    anchors: Anchors
    opened_from: dict[int, int]
    """For each cluster that no landmark is in, the nearest cluster that has landmarks."""


def choose_anchors(
    labels_N: IntArray, unlike_N: np.ndarray, rng: np.random.Generator, most: int = ANCHORS
) -> IntArray:
    """Positions of the anchors: equally many of every cluster, or all members where there are fewer.

    Items that resemble nobody are anchors only where there are no others.
    """
    count = int(labels_N.max(initial=-1)) + 1
    quota = max(most // max(count, 1), LEAST_ANCHORS)
    chosen = []
    for z in range(count):
        inside_N = labels_N == z
        members = np.flatnonzero(inside_N & ~unlike_N if (inside_N & ~unlike_N).any() else inside_N)
        chosen.append(rng.choice(members, quota, replace=False) if len(members) > quota else members)
    return np.sort(np.concatenate(chosen))


def anchors_at(items: Items, rows_N: IntArray, chosen: IntArray, labels_N: IntArray, frame: Frame) -> Anchors:
    """Some of the clustered items as anchors; updates are left out unless they count."""
    frame, some = of_items(frame, chosen.tolist()), items.take(chosen)
    if frame.fits:
        counted = tuple(fit for fit in frame.fits if fit.name != "gradient" or fit.weight)
        some = some if len(counted) == len(frame.fits) else replace(some, sketches_NK=None)
        frame = replace(frame, fits=counted)
    return Anchors.of(rows_N[chosen], some, labels_N[chosen], frame)


def _compared(fit: ViewFit, distances: FloatArray) -> FloatArray:
    """sin² of angles in degrees; distances of labels as they are."""
    return distances if fit.angles is None else np.square(np.sin(np.radians(distances)))


def _placed(means_MZ: FloatArray, unlike_M: np.ndarray) -> Placed:
    labels_M = means_MZ.argmin(axis=1)
    nobody = np.full(len(labels_M), -1)
    if means_MZ.shape[1] < 2:
        return Placed(labels_M, np.zeros(len(labels_M)), nobody, unlike_M)
    ordered_MZ = np.sort(means_MZ, axis=1)
    nearest_M, next_M = ordered_MZ[:, 0], ordered_MZ[:, 1]
    second_M = np.argsort(means_MZ, axis=1, kind="stable")[:, 1]
    sure_M = np.where(next_M > 0, (next_M - nearest_M) / np.where(next_M > 0, next_M, 1), 0.0)
    return Placed(labels_M, sure_M, second_M, unlike_M)
