# SPDX-License-Identifier: Apache-2.0
"""Data and gradient angles between items (Eqs. 3 to 6 of the paper), and their normalisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import e
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.angles import (
    AngleKind,
    KeptAngles,
    check_subspaces,
    class_angle_blocks,
    degrees,
    present_classes,
)
from feddag.clustering.arrays import (
    RIGHT_ANGLE,
    FloatArray,
    add_transpose,
    block_places,
    checked_counts,
    checked_matrix,
    off_diagonal,
    row_blocks,
)
from feddag.clustering.reliable import Noise, newcomer_levels, reliable_angles, reliable_angles_between
from feddag.clustering.subspaces import Subspaces

Weighting = Literal["frequency", "reliability"]

RESOLUTION = 0.1
"""Degrees. Angles of equal float32 vectors come out as up to 0.04; a smaller spread is rounding, not data."""


@dataclass(frozen=True)
class CountWeights:
    """W' of Eq. 6: ratio of log counts (Eq. 5), mapped from [low, high] to [1 - delta, 1 + delta]."""

    low: float
    high: float
    delta: float = 0.6
    epsilon: float = e
    """With epsilon = e, ln(0 + e) = 1: every ratio is finite and at least 1."""
    weigh_absent: bool = False
    """Literally, the weight also multiplies the 90 degrees of an absent class; then nothing is capped."""

    def log_counts(self, counts: FloatArray) -> FloatArray:
        """ln(|D| + epsilon)."""
        return np.log(counts + self.epsilon).astype(np.float32)

    def normalise(self, ratios: FloatArray) -> FloatArray:
        """Ratios as weights; ratios outside [low, high] (newcomers) are clipped, equal ones give 1."""
        if self.high <= self.low:
            return np.ones_like(ratios)
        share = np.clip((ratios - self.low) / (self.high - self.low), 0, 1)
        return 1 - self.delta + 2 * self.delta * share


@dataclass(frozen=True)
class MinMax:
    """Constants of a min-max normalisation, kept so that newcomers are measured with the same rule."""

    low: float
    high: float

    def apply(self, angles: FloatArray) -> FloatArray:
        """(angles - low) / (high - low), clipped to [0, 1]; a constant matrix becomes 0."""
        if self.high <= self.low:
            return np.zeros_like(angles)
        scaled = (angles - self.low) / (self.high - self.low)
        return np.clip(scaled, 0, 1, out=scaled)


def count_weights(
    counts: ArrayLike,
    present_NC: np.ndarray | None = None,
    *,
    delta: float = 0.6,
    epsilon: float = e,
    weigh_absent: bool = False,
) -> CountWeights:
    """The weights' range, over all classes and all pairs of items that both have the class (Eq. 5)."""
    if delta < 0 or delta > 1:
        raise ValueError(f"delta must lie in [0, 1], got {delta}")
    if epsilon <= 1:
        raise ValueError(f"epsilon must exceed 1, got {epsilon}: ln(0 + epsilon) would be 0 or negative")
    counts_NC = checked_counts(counts)
    present_NC = counts_NC > 0 if present_NC is None else present_NC
    lowest, highest = np.inf, -np.inf
    for label in range(counts_NC.shape[1]):
        logs_M = np.sort(np.log(counts_NC[present_NC[:, label], label] + epsilon).astype(np.float32))
        if len(logs_M) > 1:
            # The smallest ratio is between neighbours in size, the largest between the extremes.
            lowest = min(lowest, float((logs_M[1:] / logs_M[:-1]).min()))
            highest = max(highest, float(logs_M[-1] / logs_M[0]))
        if weigh_absent and 0 < len(logs_M) < len(counts_NC):
            ratios_M = logs_M / np.float32(np.log(epsilon))
            lowest, highest = min(lowest, float(ratios_M[0])), max(highest, float(ratios_M[-1]))
    if highest < lowest:
        lowest = highest = 1.0
    return CountWeights(lowest, highest, delta, epsilon, weigh_absent)


def data_angles(
    subspaces: Sequence[Subspaces],
    counts: ArrayLike,
    weights: CountWeights | None = None,
    *,
    kind: AngleKind = "pairs",
    weighting: Weighting = "frequency",
    keep: KeptAngles | None = None,
) -> FloatArray:
    """V of Eq. 6: class-wise angles, weighted, averaged over all classes; in degrees.

    `frequency` weighs by the ratio of class sizes, as Eqs. 5 and 6 say: unequal sizes are farther apart.
    `reliability` takes out what sampling explains: see `reliable`. `keep` collects the class-wise angles on
    the way, for `cluster_alignment`.
    """
    if weighting == "reliability":
        return data_angles_and_noise(subspaces, counts, kind=kind, keep=keep)[0]
    counts_NC = _checked_pair(subspaces, counts)
    if weighting != "frequency":
        raise ValueError(f"weighting must be frequency or reliability, not {weighting!r}")
    present_NC = present_classes(subspaces, counts_NC.shape[1])
    total_NN = np.zeros((len(counts_NC), len(counts_NC)), dtype=np.float32)
    if weights is None:
        weights = count_weights(counts_NC, present_NC)
    _add_weighted(total_NN, subspaces, counts_NC, None, counts_NC, weights, kind, keep)
    # One half each, then the transpose: so the sum is symmetric to the last bit.
    _add_absent(total_NN, _absence_cost(present_NC, counts_NC, weights), present_NC)
    add_transpose(total_NN)
    np.fill_diagonal(total_NN, 0)
    total_NN /= max(counts_NC.shape[1], 1)
    return total_NN


def data_angles_and_noise(
    subspaces: Sequence[Subspaces], counts: ArrayLike, *, kind: AngleKind, keep: KeptAngles | None = None
) -> tuple[FloatArray, Noise]:
    """Data angles under `reliability`, and the noise that was taken out, which newcomers need."""
    return reliable_angles(subspaces, _checked_pair(subspaces, counts), kind=kind, keep=keep)


def data_angles_between(
    new: Sequence[Subspaces],
    new_counts: ArrayLike,
    old: Sequence[Subspaces],
    old_counts: ArrayLike,
    weights: CountWeights | None = None,
    *,
    kind: AngleKind = "pairs",
    weighting: Weighting = "frequency",
    noise: Noise | None = None,
    new_levels_MC: FloatArray | None = None,
) -> FloatArray:
    """Rows of Eq. 6 for new items against old ones, measured by what is known of the old ones.

    `frequency` needs their weights' range, `reliability` their noise; `new_levels_MC` is that of the new
    items where it is known already.
    """
    counts_MC, counts_NC = _checked_pair(new, new_counts, "new"), _checked_pair(old, old_counts, "old")
    if counts_MC.shape[1] != counts_NC.shape[1]:
        raise ValueError(f"new items have {counts_MC.shape[1]} classes, old ones {counts_NC.shape[1]}")
    if weighting == "reliability":
        if noise is None:
            raise ValueError("weighting 'reliability' needs the noise of the old items: pass noise=")
        if new_levels_MC is None:
            new_levels_MC = newcomer_levels(new, counts_MC, old, counts_NC, kind=kind)
        return reliable_angles_between(new, counts_MC, new_levels_MC, old, counts_NC, noise, kind=kind)
    if weights is None:
        raise ValueError("weighting 'frequency' needs the weights' range of the old items: pass weights=")
    total_MN = np.zeros((len(counts_MC), len(counts_NC)), dtype=np.float32)
    new_present_MC = present_classes(new, counts_MC.shape[1])
    old_present_NC = present_classes(old, counts_NC.shape[1])
    _add_weighted(total_MN, new, counts_MC, old, counts_NC, weights, kind)
    _add_absent(total_MN, _absence_cost(new_present_MC, counts_MC, weights), old_present_NC)
    _add_absent(total_MN.T, _absence_cost(old_present_NC, counts_NC, weights), new_present_MC)
    total_MN /= max(counts_NC.shape[1], 1)
    return total_MN


def gradient_angles(sketches: ArrayLike) -> FloatArray:
    """G of Eq. 3: angles between updates in degrees, 0 to 180; an all-zero update is at 90 to every other."""
    unit_NK = _unit_sketches(sketches, "sketches")
    angles_NN = np.zeros((len(unit_NK), len(unit_NK)), dtype=np.float32)
    for rows in row_blocks(len(unit_NK)):
        # Columns left of the block are known by symmetry; copying them makes the matrix exactly symmetric.
        angles_NN[rows, rows.start :] = degrees(unit_NK[rows] @ unit_NK[rows.start :].T)
        angles_NN[rows, : rows.start] = angles_NN[: rows.start, rows].T
        square = angles_NN[rows, rows]
        lower = np.tril_indices(len(square), -1)
        square[lower] = square.T[lower]
    np.fill_diagonal(angles_NN, 0)
    return angles_NN


def gradient_angles_between(new: ArrayLike, old: ArrayLike) -> FloatArray:
    """Rows of Eq. 3 for new items against old ones."""
    new_MK, old_NK = _unit_sketches(new, "new sketches"), _unit_sketches(old, "old sketches")
    if new_MK.shape[1] != old_NK.shape[1]:
        raise ValueError(f"new sketches have {new_MK.shape[1]} coordinates, old ones {old_NK.shape[1]}")
    return degrees(new_MK @ old_NK.T)


def min_max(angles_NN: FloatArray, resolution: float = RESOLUTION) -> MinMax:
    """Smallest and largest entry off the diagonal; a spread below `resolution` counts as none."""
    low = min((float(row.min()) for row in off_diagonal(angles_NN)), default=0.0)
    high = max((float(row.max()) for row in off_diagonal(angles_NN)), default=0.0)
    return MinMax(low, high) if high - low > resolution else MinMax(low, low)


def normalised(angles_NN: FloatArray, constants: MinMax) -> FloatArray:
    """A square matrix by its constants, with a zero diagonal."""
    scaled_NN = constants.apply(angles_NN)
    np.fill_diagonal(scaled_NN, 0)
    return scaled_NN


def _add_weighted(
    total: FloatArray,
    rows: Sequence[Subspaces],
    row_counts: FloatArray,
    columns: Sequence[Subspaces] | None,
    column_counts: FloatArray,
    weights: CountWeights,
    kind: AngleKind,
    keep: KeptAngles | None = None,
) -> None:
    """Add weighted angles of classes that both items have; on the diagonal blocks only the upper half."""
    row_logs, column_logs = weights.log_counts(row_counts), weights.log_counts(column_counts)
    for block in class_angle_blocks(rows, columns, num_classes=row_counts.shape[1], kind=kind):
        if keep is not None:
            keep.add(block)
        logs_I = row_logs[block.rows_I, block.label][:, None]
        logs_J = column_logs[block.columns_J, block.label][None, :]
        term_IJ = weights.normalise(np.maximum(logs_I, logs_J) / np.minimum(logs_I, logs_J))
        term_IJ *= block.degrees_IJ
        if not weights.weigh_absent:
            # A class that both have is never farther apart than one that only one of them has.
            np.minimum(term_IJ, RIGHT_ANGLE, out=term_IJ)
        places = block_places(block.rows_I, block.columns_J)
        total[places] += np.triu(term_IJ, 1) if block.diagonal else term_IJ


def _absence_cost(present: np.ndarray, counts: FloatArray, weights: CountWeights) -> FloatArray:
    """What a class costs when only this item has it: 90 degrees, times the weight if that is asked for."""
    if not weights.weigh_absent:
        return (RIGHT_ANGLE * present).astype(np.float32)
    ratios = weights.log_counts(counts) / np.float32(np.log(weights.epsilon))
    return (RIGHT_ANGLE * present * weights.normalise(ratios)).astype(np.float32)


def _add_absent(total: FloatArray, row_cost: FloatArray, column_present: np.ndarray) -> None:
    """Add the cost of each class that the row's item has and the column's lacks; absent in both adds 0."""
    column_lacks = (~column_present).astype(np.float32)
    for rows in row_blocks(len(total)):
        total[rows] += row_cost[rows] @ column_lacks.T


def _unit_sketches(sketches: ArrayLike, name: str) -> FloatArray:
    sketches_NK = checked_matrix(sketches, name)
    # Scale by the largest entry first: squares of very large or very small updates leave float range.
    largest_N = np.abs(sketches_NK).max(axis=1, initial=0)[:, None].astype(np.float64)
    scaled_NK = sketches_NK / np.where(largest_N > 0, largest_N, 1)
    norms_N = np.linalg.norm(scaled_NK, axis=1, keepdims=True)
    return (scaled_NK / np.where(norms_N > 0, norms_N, 1)).astype(np.float32)


def _checked_pair(subspaces: Sequence[Subspaces], counts: ArrayLike, name: str = "") -> FloatArray:
    counts_NC = checked_counts(counts, f"{name} counts".strip())
    if len(counts_NC) != len(subspaces):
        raise ValueError(f"{len(subspaces)} items with subspaces, but {len(counts_NC)} rows of counts")
    check_subspaces(subspaces, counts_NC.shape[1], f"{name} subspaces".strip())
    return counts_NC
