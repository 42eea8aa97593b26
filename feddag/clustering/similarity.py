# SPDX-License-Identifier: Apache-2.0
"""Gradient angles between items (Eq. 3 of the paper), and the normalisation of angles."""

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.angles import degrees, unit_sketches
from feddag.clustering.arrays import FloatArray, off_diagonal, row_blocks
from feddag.core.message import message

RESOLUTION = 0.1
"""Degrees. Angles of equal float32 vectors reach 0.04, so a smaller spread is rounding, not data."""


@message
class MinMax:
    """Constants of a min-max normalisation, kept so that newcomers are measured by the same rule."""

    low: float = 0.0
    high: float = 0.0

    def apply(self, angles: FloatArray) -> FloatArray:
        """(angles - low) / (high - low), clipped to [0, 1]; a constant matrix becomes 0."""
        if self.high <= self.low:
            return np.zeros_like(angles)
        scaled = (angles - self.low) / (self.high - self.low)
        return np.clip(scaled, 0, 1, out=scaled)


def gradient_angles(sketches: ArrayLike) -> FloatArray:
    """G of Eq. 3: angles between updates in degrees, 0 to 180; a zero update is at 90 to all others."""
    unit_NK = unit_sketches(sketches, "sketches")
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
    new_MK, old_NK = unit_sketches(new, "new sketches"), unit_sketches(old, "old sketches")
    if new_MK.shape[1] != old_NK.shape[1]:
        raise ValueError(f"new sketches have {new_MK.shape[1]} coordinates, old ones {old_NK.shape[1]}")
    return degrees(new_MK @ old_NK.T)


def min_max(angles_NN: FloatArray, resolution: float = RESOLUTION) -> MinMax:
    """Smallest and largest entry off the diagonal; a spread below `resolution` counts as none."""
    low = min((float(row.min()) for row in off_diagonal(angles_NN)), default=0.0)
    high = max((float(row.max()) for row in off_diagonal(angles_NN)), default=0.0)
    return MinMax(low=low, high=high if high - low > resolution else low)


def normalised(angles_NN: FloatArray, constants: MinMax) -> FloatArray:
    """A square matrix, normalised by its constants, with a zero diagonal."""
    scaled_NN = constants.apply(angles_NN)
    np.fill_diagonal(scaled_NN, 0)
    return scaled_NN
