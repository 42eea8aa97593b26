# SPDX-License-Identifier: Apache-2.0
"""Sums of class-wise evidence about pairs of items, and the angles that they become; see `reliable`."""

import numpy as np

from feddag.clustering.angles import AngleBlock
from feddag.clustering.arrays import RIGHT_ANGLE, FloatArray, block_places, row_blocks
from feddag.clustering.levels import MEDIAN_PER_QUANTILE, Errors, known_errors

MIN_NOISE = np.radians(0.1) ** 2
"""sin² of the largest angle that is rounding, not data."""
ABSENT_POWER = 1.5
"""u^1.5: a class of few samples that one item lacks counts little, disjoint classes count in full."""


def unshared(new_sizes_MC: FloatArray, old_sizes_NC: FloatArray) -> FloatArray:
    """u: the share of two items' samples in classes that the other one lacks; 0 for two without samples."""
    shares_MC, shares_NC = _shares(new_sizes_MC), _shares(old_sizes_NC)
    u_MN = 1 - (shares_MC @ (shares_NC > 0).T + (shares_MC > 0) @ shares_NC.T) / 2
    u_MN[np.ix_(~shares_MC.any(axis=1), ~shares_NC.any(axis=1))] = 0
    return np.clip(u_MN, 0, 1, out=u_MN)


def add_block(
    total: FloatArray,
    evidence: FloatArray,
    block: AngleBlock,
    row_noise: FloatArray,
    column_noise: FloatArray,
    errors: Errors | None = None,
    least_noise: float = MIN_NOISE,
) -> None:
    """Add (sin² θ - 1.4 ν) / ν² and 1 / ν² of one block; of a diagonal block only the upper half."""
    noise_IJ = row_noise[block.rows_I][:, None] + column_noise[block.columns_J][None, :]
    noise_IJ = np.maximum(noise_IJ, np.float32(least_noise))
    known_IJ = known_errors(errors, block.rows_I, block.columns_J)
    evidence_IJ = 1 / np.square(noise_IJ if known_IJ is None else noise_IJ + known_IJ)
    if block.diagonal:
        evidence_IJ = np.triu(evidence_IJ, 1)
    sines_IJ = np.square(np.sin(np.radians(block.degrees_IJ)))
    if known_IJ is not None:
        sines_IJ = sines_IJ - known_IJ
    places = block_places(block.rows_I, block.columns_J)
    evidence[places] += evidence_IJ
    total[places] += evidence_IJ * (sines_IJ - np.float32(MEDIAN_PER_QUANTILE) * noise_IJ)


def finish(
    total: FloatArray,
    evidence: FloatArray,
    typical_error: float,
    row_sizes: FloatArray,
    column_sizes: FloatArray,
) -> None:
    """Turn sums into angles in degrees, in place; two items without a shared class are at a right angle."""
    for rows in row_blocks(len(total)):
        known = np.asarray(evidence[rows] > 0)
        sines = np.where(known, total[rows] / np.where(known, evidence[rows], 1) + typical_error, 1.0)
        angles = np.degrees(np.arcsin(np.sqrt(np.clip(sines, 0, 1))))
        apart = unshared(row_sizes[rows], column_sizes) ** ABSENT_POWER
        some_I, some_J = row_sizes[rows].sum(axis=1) > 0, column_sizes.sum(axis=1) > 0
        total[rows] = np.where(
            ~(some_I[:, None] | some_J[None, :]), 0, angles + (RIGHT_ANGLE - angles) * apart
        )


def finish_shared(
    total: FloatArray, evidence: FloatArray, typical_error: float, unknown: float
) -> np.ndarray:
    """Turn sums into angles in degrees, in place; which pairs share a class, the others are at `unknown`."""
    known = evidence > 0
    for rows in row_blocks(len(total)):
        sines = total[rows] / np.where(known[rows], evidence[rows], 1) + np.float32(typical_error)
        angles = np.degrees(np.arcsin(np.sqrt(np.clip(sines, 0, 1))))
        total[rows] = np.where(known[rows], angles, np.float32(unknown))
    return known


def median_known(angles_NN: FloatArray, known_NN: np.ndarray) -> float:
    """The median of all known angles; of very many rows, every k-th."""
    every = max(len(angles_NN) // 2000, 1)
    found = angles_NN[::every][known_NN[::every]]
    return float(np.median(found)) if len(found) else 0.0


def median_error(evidence_NN: FloatArray) -> float:
    """The median of (Σ 1/ν²)^-½ over all pairs that share a class; of very many rows, every k-th."""
    every = max(len(evidence_NN) // 2000, 1)
    rows = evidence_NN[::every]
    shared = np.extract(rows > 0, rows)
    return float(np.median(1 / np.sqrt(shared))) if len(shared) else 0.0


def _shares(sizes: FloatArray) -> FloatArray:
    return sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)
