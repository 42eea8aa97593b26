# SPDX-License-Identifier: Apache-2.0
"""Data angles cleared of sampling noise: the default in place of Eqs. 5 and 6.

Principal vectors of n samples are not those of the distribution: two samples of the same class lie apart by

    E sin² θ_ij = a_i / n_i + a_j / n_j

so that small classes look different from everything. The level a of an item's class is seen at its nearest
companions; what it explains is subtracted, and classes count by how well they are known:

    ν_ij = b_i / n_i + b_j / n_j,     b = 10% quantile over j of  sin² θ_ij / (1/n_i + 1/n_j)
    D_ij = Σ_c (sin² θ_ijc - 1.4 ν_ijc) / ν_ijc²  /  Σ_c 1 / ν_ijc²      with error σ_ij = (Σ_c 1 / ν_ijc²)^-½
    θ_ij = arcsin √(D_ij + σ̄),        σ̄ = median of all errors

σ̄ keeps the noise that is left in the linear part of the root: without it, clients that do not differ would
fall into arbitrary groups. Where the two items share only part of their samples' classes, θ goes up to a
right angle with u^1.5, u being the share of their samples that lie in classes which the other lacks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from feddag.clustering.angles import AngleBlock, AngleKind, KeptAngles, class_angle_blocks, present_classes
from feddag.clustering.arrays import (
    RIGHT_ANGLE,
    FloatArray,
    IntArray,
    add_transpose,
    block_places,
    row_blocks,
)
from feddag.clustering.subspaces import Subspaces

NEAREST = 0.1
"""Quantile that stands for an item's own kind: with eleven groups, only every eleventh is of its kind."""
MIDDLE = 1.4
"""The middle of same-kind values over their 10% quantile; image classes: 1.3 to 1.4."""
HIGHEST = 1 / MIDDLE
"""Of a level b: a = 1 means that half of a class's energy is off its first vector. More is a difference."""
LEAST = np.radians(0.1) ** 2
"""sin² of angles that are rounding, not data."""
COMPANIONS = 512
"""Levels are taken from at most so many other items."""
ABSENT_POWER = 1.5
"""u^1.5: a class of few samples that one item lacks hardly counts, disjoint classes count in full."""


@dataclass(frozen=True)
class Noise:
    """What sampling alone does to the angles of N items; kept, so that newcomers are measured alike."""

    levels_NC: FloatArray
    """b; the highest where the class has no vectors or no companion."""
    typical: float
    """σ̄."""


def reliable_angles(
    subspaces: Sequence[Subspaces],
    counts_NC: FloatArray,
    *,
    kind: AngleKind = "subspace",
    keep: KeptAngles | None = None,
) -> tuple[FloatArray, Noise]:
    """Angles in degrees between N items, and the noise that was taken out; `keep` collects on the way."""
    n, num_classes = counts_NC.shape
    levels_NC = np.full((n, num_classes), HIGHEST, dtype=np.float32)
    total_NN, evidence_NN = np.zeros((n, n), dtype=np.float32), np.zeros((n, n), dtype=np.float32)
    sizes_NC = _sizes(counts_NC)
    blocks = class_angle_blocks(subspaces, None, num_classes=num_classes, kind=kind)
    for label, of_class in _by_class(blocks):
        if keep is not None:
            for block in of_class:
                keep.add(block)
        known_N = _levels(of_class, sizes_NC[:, label], sizes_NC[:, label], n, n)
        levels_NC[:, label] = known_N
        while of_class:  # a block that has been added up is not needed again
            _add(total_NN, evidence_NN, of_class.pop(), sizes_NC, sizes_NC, levels_NC, levels_NC)
    add_transpose(total_NN)
    add_transpose(evidence_NN)
    noise = Noise(levels_NC, _typical_error(evidence_NN))
    present_NC = present_classes(subspaces, num_classes)
    _finish(total_NN, evidence_NN, noise, sizes_NC * present_NC, sizes_NC * present_NC)
    np.fill_diagonal(total_NN, 0)
    return total_NN, noise


def reliable_angles_between(
    new: Sequence[Subspaces],
    new_counts_MC: FloatArray,
    new_levels_MC: FloatArray,
    old: Sequence[Subspaces],
    old_counts_NC: FloatArray,
    noise: Noise,
    *,
    kind: AngleKind = "subspace",
) -> FloatArray:
    """The same for M new items against old ones, whose noise is known."""
    shape = len(new), len(old)
    total_MN, evidence_MN = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    sizes_MC, sizes_NC = _sizes(new_counts_MC), _sizes(old_counts_NC)
    num_classes = new_counts_MC.shape[1]
    for block in class_angle_blocks(new, old, num_classes=num_classes, kind=kind):
        _add(total_MN, evidence_MN, block, sizes_MC, sizes_NC, new_levels_MC, noise.levels_NC)
    new_MC, old_NC = present_classes(new, num_classes), present_classes(old, num_classes)
    _finish(total_MN, evidence_MN, noise, sizes_MC * new_MC, sizes_NC * old_NC)
    return total_MN


def newcomer_levels(
    new: Sequence[Subspaces],
    new_counts_MC: FloatArray,
    old: Sequence[Subspaces],
    old_counts_NC: FloatArray,
    *,
    kind: AngleKind = "subspace",
) -> FloatArray:
    """Noise levels of new items, seen at their nearest old companions."""
    sizes_MC, sizes_NC = _sizes(new_counts_MC), _sizes(old_counts_NC)
    levels_MC = np.full(sizes_MC.shape, HIGHEST, dtype=np.float32)
    blocks = class_angle_blocks(new, old, num_classes=sizes_MC.shape[1], kind=kind)
    for label, of_class in _by_class(blocks):
        levels_MC[:, label] = _levels(
            of_class, sizes_MC[:, label], sizes_NC[:, label], len(sizes_MC), len(sizes_NC)
        )
    return levels_MC


def unshared(new_sizes_MC: FloatArray, old_sizes_NC: FloatArray) -> FloatArray:
    """u: the share of two items' samples in classes that the other one lacks; 0 for two without any."""
    shares_MC, shares_NC = _shares(new_sizes_MC), _shares(old_sizes_NC)
    u_MN = 1 - (shares_MC @ (shares_NC > 0).T + (shares_MC > 0) @ shares_NC.T) / 2
    u_MN[np.ix_(~shares_MC.any(axis=1), ~shares_NC.any(axis=1))] = 0
    return np.clip(u_MN, 0, 1, out=u_MN)


def _by_class(blocks: Iterator[AngleBlock]) -> Iterator[tuple[int, list[AngleBlock]]]:
    for label, of_class in groupby(blocks, key=lambda block: block.label):
        yield label, list(of_class)


def _levels(
    blocks: Sequence[AngleBlock], sizes_M: FloatArray, sizes_N: FloatArray, m: int, n: int
) -> FloatArray:
    """b of one class: how far, times the number of samples, the nearest tenth of the others lie apart."""
    chosen = np.unique(np.linspace(0, n - 1, min(n, COMPANIONS)).astype(np.int64))
    place_N = np.full(n, -1)
    place_N[chosen] = np.arange(len(chosen))
    ratios_MK = np.full((m, len(chosen)), np.nan, dtype=np.float32)

    def note(rows_I: IntArray, columns_J: IntArray, degrees_IJ: FloatArray, other: bool) -> None:
        wanted_J = place_N[columns_J] >= 0
        columns_J = columns_J[wanted_J]
        sines_IJ = np.sin(np.radians(degrees_IJ[:, wanted_J])) ** 2
        x_IJ = 1 / sizes_M[rows_I][:, None] + 1 / sizes_N[columns_J][None, :]
        ratios_IJ = sines_IJ / x_IJ
        if other:  # an item is not its own companion
            ratios_IJ[rows_I[:, None] == columns_J[None, :]] = np.nan
        ratios_MK[np.ix_(rows_I, place_N[columns_J])] = ratios_IJ

    symmetric = any(block.diagonal for block in blocks)
    for block in blocks:
        note(block.rows_I, block.columns_J, block.degrees_IJ, symmetric)
        if symmetric and not block.diagonal:
            note(block.columns_J, block.rows_I, block.degrees_IJ.T, symmetric)
    return np.minimum(_low_quantile(ratios_MK), HIGHEST)


def _low_quantile(ratios_MK: FloatArray) -> FloatArray:
    """np.nanquantile of every row, which loops over rows; infinite where a row has nothing but NaN."""
    ordered_MK = np.sort(ratios_MK, axis=1)  # NaN last
    last_M = np.isfinite(ordered_MK).sum(axis=1) - 1
    place_M = NEAREST * np.maximum(last_M, 0)
    below_M = place_M.astype(np.int64)
    rows_M = np.arange(len(ordered_MK))
    low_M = ordered_MK[rows_M, below_M]
    high_M = ordered_MK[rows_M, np.minimum(below_M + 1, np.maximum(last_M, 0))]
    return np.where(last_M < 0, np.inf, low_M + (place_M - below_M) * (high_M - low_M)).astype(np.float32)


def _add(
    total: FloatArray,
    evidence: FloatArray,
    block: AngleBlock,
    row_sizes: FloatArray,
    column_sizes: FloatArray,
    row_levels: FloatArray,
    column_levels: FloatArray,
) -> None:
    """Add one block's (sin² θ - 1.4 ν) / ν² and 1 / ν²; of a diagonal block only the upper half."""
    label = block.label
    row_I = (row_levels[:, label] / row_sizes[:, label])[block.rows_I][:, None]
    column_J = (column_levels[:, label] / column_sizes[:, label])[block.columns_J][None, :]
    noise_IJ = np.maximum(row_I + column_J, np.float32(LEAST))
    evidence_IJ = 1 / np.square(noise_IJ)
    if block.diagonal:
        evidence_IJ = np.triu(evidence_IJ, 1)
    sines_IJ = np.square(np.sin(np.radians(block.degrees_IJ)))
    places = block_places(block.rows_I, block.columns_J)
    evidence[places] += evidence_IJ
    total[places] += evidence_IJ * (sines_IJ - np.float32(MIDDLE) * noise_IJ)


def _finish(
    total: FloatArray, evidence: FloatArray, noise: Noise, row_sizes: FloatArray, column_sizes: FloatArray
) -> None:
    """Turn sums into angles in degrees, in place; a pair that shares no class is at a right angle."""
    for rows in row_blocks(len(total)):
        known = np.asarray(evidence[rows] > 0)
        sines = np.where(known, total[rows] / np.where(known, evidence[rows], 1) + noise.typical, 1.0)
        angles = np.degrees(np.arcsin(np.sqrt(np.clip(sines, 0, 1))))
        apart = unshared(row_sizes[rows], column_sizes) ** ABSENT_POWER
        some_I, some_J = row_sizes[rows].sum(axis=1) > 0, column_sizes.sum(axis=1) > 0
        total[rows] = np.where(
            ~(some_I[:, None] | some_J[None, :]), 0, angles + (RIGHT_ANGLE - angles) * apart
        )


def _typical_error(evidence_NN: FloatArray) -> float:
    """The median of (Σ 1/ν²)^-½ over all pairs that share a class; of very many rows, every k-th."""
    every = max(len(evidence_NN) // 2000, 1)
    rows = evidence_NN[::every]
    shared = np.extract(rows > 0, rows)
    return float(np.median(1 / np.sqrt(shared))) if len(shared) else 0.0


def _sizes(counts: FloatArray) -> FloatArray:
    """Class sizes; at least one sample stands behind a vector, whatever a noisy count says."""
    return np.maximum(counts, 1).astype(np.float32)


def _shares(sizes: FloatArray) -> FloatArray:
    return sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)
