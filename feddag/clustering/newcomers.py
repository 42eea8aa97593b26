# SPDX-License-Identifier: Apache-2.0
"""Where newcomers go, while everyone else stays (the paper's generalisation to newcomers, made safe)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.agglomerative import cut, link
from feddag.clustering.arrays import FloatArray, IntArray, checked_counts
from feddag.clustering.pipeline import Frame, newcomer_distances
from feddag.clustering.reliable import newcomer_levels
from feddag.clustering.subspaces import Subspaces

Signatures = tuple[Sequence[Subspaces], np.ndarray, np.ndarray]  # subspaces, class counts, sketches


@dataclass(frozen=True)
class Placement:
    """Clusters of M newcomers; old clusters keep their numbers, new ones are appended."""

    labels_M: IntArray
    nearest_M: IntArray
    """The old cluster with the least mean distance."""
    weak_M: np.ndarray
    """Farther from their cluster than the threshold: served, but not at home."""
    weights_M: FloatArray
    """Their fusion weights."""
    noise_MC: FloatArray
    """Their noise levels; 0 where the frame knows none."""


def place_newcomers(
    new: Signatures,
    old: Signatures,
    old_distances: ArrayLike,
    labels_N: IntArray,
    frame: Frame,
    least_new: int = 3,
) -> Placement:
    """Clusters of newcomers; old items never move, and all constants are those of the first clustering.

    One pass at the kept threshold: a newcomer joins the old cluster most common in its group. In a group
    without old items it joins the nearest one, unless `least_new` newcomers are together: they open one.
    """
    noise_MC: FloatArray = np.zeros(np.shape(new[1]), dtype=np.float32)
    if frame.noise is not None:
        noise_MC = newcomer_levels(
            new[0], checked_counts(new[1]), old[0], checked_counts(old[1]), kind=frame.options.kind
        )
    distances_MN, weights_M = newcomer_distances(frame, *new, *old, noise_MC)
    own = replace(frame, weights_N=weights_M)
    if frame.noise is not None:
        own = replace(own, noise=replace(frame.noise, levels_NC=noise_MC))
    among_MM = newcomer_distances(own, *new, *new, noise_MC)[0]
    among_MM = (among_MM + among_MM.T) / 2  # the row rule is not symmetric among newcomers
    np.fill_diagonal(among_MM, 0)
    everyone = np.block([[np.asarray(old_distances), distances_MN.T], [distances_MN, among_MM]])
    groups = cut(link(everyone.astype(np.float64), frame.options.rule.linkage), frame.threshold)
    n, count = len(labels_N), int(labels_N.max(initial=-1)) + 1
    near_MZ = np.stack([distances_MN[:, labels_N == z].mean(axis=1) for z in range(count)], axis=1)
    labels: list[int] = []
    opened: dict[int, int] = {}
    for m, group in enumerate(groups[n:].tolist()):
        companions = labels_N[groups[:n] == group]
        if len(companions):
            labels.append(int(np.bincount(companions).argmax()))
        elif int((groups[n:] == group).sum()) >= least_new:
            labels.append(opened.setdefault(group, count + len(opened)))
        else:
            labels.append(int(near_MZ[m].argmin()))
    weak = [z < count and bool(near_MZ[m, z] > frame.threshold) for m, z in enumerate(labels)]
    return Placement(
        labels_M=np.array(labels, dtype=np.int64),
        nearest_M=near_MZ.argmin(axis=1),
        weak_M=np.array(weak, dtype=bool),
        weights_M=weights_M,
        noise_MC=noise_MC,
    )
