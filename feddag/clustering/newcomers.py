# SPDX-License-Identifier: Apache-2.0
"""Which cluster each newcomer joins, while all old clients stay in theirs."""

from dataclasses import dataclass, replace

import numpy as np

from feddag.clustering.agglomerative import cut, link
from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.fusion import pair_weights
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.proximity import Frame, fused_between, proximity_among, scaled, views_between
from feddag.clustering.views import proximity_between


@dataclass(frozen=True)
class Placement:
    """Clusters of M newcomers; old clusters keep their numbers, new ones are appended."""

    labels_M: IntArray
    opened_from: tuple[int, ...]
    """For each new cluster, the old cluster that is nearest to its first member."""
    weak_M: np.ndarray
    """Whether the newcomer is farther from its cluster than the threshold: it is served, but fits badly."""
    frame: Frame
    """The frame of old items and newcomers together, in this order."""


def place_newcomers(
    new: Items, old: Items, labels_N: IntArray, frame: Frame, threshold: float, least_new: int = 3
) -> Placement:
    """Clusters of newcomers; old items never move, and all constants are those of the first clustering.

    Everyone is clustered once at the kept threshold. A newcomer joins the old cluster in its group; if there
    are several, the nearest of them. In a group without old items, `least_new` or more newcomers open a
    cluster; fewer join the nearest one.
    """
    of_new = newcomer_frame(new, old, frame)
    distances_MN, weights_M = newcomer_distances(new, of_new, old, frame)
    of_new = replace(of_new, weights_N=weights_M)
    distances_NN, among_MM = proximity_among(old, frame), proximity_among(new, of_new)
    everyone = np.block([[distances_NN, distances_MN.T], [distances_MN, among_MM]])
    groups = cut(link(everyone.astype(np.float64), frame.options.linkage), threshold)
    n, count = len(labels_N), int(labels_N.max(initial=-1)) + 1
    far_M = np.full(len(new), np.inf)  # from a cluster none of whose members is known
    near_MZ = np.stack(
        [
            distances_MN[:, labels_N == z].mean(axis=1) if (labels_N == z).any() else far_M
            for z in range(count)
        ],
        axis=1,
    )
    nearest_M = near_MZ.argmin(axis=1)
    labels: list[int] = []
    opened: dict[int, int] = {}
    opened_from: list[int] = []
    for m, group in enumerate(groups[n:].tolist()):
        companions = labels_N[groups[:n] == group]
        if len(companions):
            among = np.unique(companions)
            labels.append(int(among[near_MZ[m, among].argmin()]))
        elif int((groups[n:] == group).sum()) >= least_new:
            if group not in opened:
                opened[group] = count + len(opened)
                opened_from.append(int(nearest_M[m]))
            labels.append(opened[group])
        else:
            labels.append(int(nearest_M[m]))
    weak = [z < count and bool(near_MZ[m, z] > threshold) for m, z in enumerate(labels)]
    return Placement(
        labels_M=np.array(labels, dtype=np.int64),
        opened_from=tuple(opened_from),
        weak_M=np.array(weak, dtype=bool),
        frame=joined(frame, of_new),
    )


def newcomer_frame(new: Items, old: Items, frame: Frame) -> Frame:
    """The frame of the newcomers: the old constants, with the newcomers' own noise."""
    of_new = replace(frame, weights_N=np.full(len(new), frame.weights_N[0]))
    if frame.fits:
        return replace(of_new, fits=tuple(fit.newcomers(new, old) for fit in frame.fits))
    if frame.told == "gradient":
        return of_new
    return of_new.with_data_angles(frame.data_angles.newcomers(new, old))


def newcomer_distances(new: Items, of_new: Frame, old: Items, frame: Frame) -> tuple[FloatArray, FloatArray]:
    """Distances of M new items to N old ones, and the weights of the new items; old weights stay.

    Under entropy fusion each newcomer learns its own weight on its own row, as the paper says; the other
    fusions have one weight for all.
    """
    if frame.fits:
        return proximity_between(frame.fits, new, old, of_new.fits), of_new.weights_N
    options, views = frame.options, views_between(frame, new, old, of_new)
    weights_M = np.full(len(new), frame.weights_N[0])
    if frame.told == "fused" and options.fusion in ("entropy", "mlp"):
        rows = zip(*scaled(frame, views), strict=True)
        weights_M = np.array(
            [_own_weight(data_N, gradient_N, frame.weights_N, options) for data_N, gradient_N in rows]
        )
    n, everyone = len(old), np.concatenate([frame.weights_N, weights_M])
    # Newcomers come after all others: with the row rule their weight is never used (w_i for i < j).
    pairs_MN = pair_weights(everyone, slice(n, len(everyone)), options.fusion_rule)[:, :n]
    return fused_between(frame, views, pairs_MN), weights_M


def joined(frame: Frame, of_new: Frame) -> Frame:
    """The frame of old and new items together."""
    together = replace(frame, weights_N=np.concatenate([frame.weights_N, of_new.weights_N]))
    if frame.fits:
        fits = zip(frame.fits, of_new.fits, strict=True)
        return replace(together, fits=tuple(fit.joined(fit_new) for fit, fit_new in fits))
    if frame.told == "gradient":
        return together
    return together.with_data_angles(frame.data_angles.joined(of_new.data_angles))  # type: ignore[arg-type]


def _own_weight(
    data_N: FloatArray, gradient_N: FloatArray, others_N: FloatArray, options: ClusteringOptions
) -> float:
    """A newcomer's weight: the least entropy of its own row (Eq. 8), its distance 0 to itself included."""
    entropy = options.entropy
    grid = np.linspace(0, 1, 101)
    best, least = 0.5, np.inf
    for weight in grid[np.argsort(np.abs(grid - 0.5), kind="stable")]:
        extended = np.append(others_N, weight)
        pairs = pair_weights(extended, slice(len(others_N), len(extended)), options.fusion_rule)[0, :-1]
        row = (data_N + pairs * (gradient_N - data_N)) * entropy.sign / entropy.temperature
        row = np.append(row, 0.0) if entropy.diagonal else row
        shares = np.exp(row - row.max())
        shares /= shares.sum()
        loss = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
        if loss < least - 1e-12:
            best, least = float(weight), loss
    return best
