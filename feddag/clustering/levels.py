# SPDX-License-Identifier: Apache-2.0
"""How noisy the classes of an item are, estimated from its nearest neighbours (see `reliable.py`)."""

from collections.abc import Sequence

import numpy as np

from feddag.clustering.angles import AngleBlock
from feddag.clustering.arrays import FloatArray, IntArray

NEIGHBOUR_QUANTILE = 0.1
"""10%, so that even with eleven equal groups a same-group neighbour is included."""
MEDIAN_PER_QUANTILE = 1.4
"""The median of same-group values divided by their 10% quantile; 1.3 to 1.4 for image classes."""
MAX_NOISE = 1 / MEDIAN_PER_QUANTILE
"""Largest noise level b. Then a = 1: half of a class's energy is off its first vector."""
MAX_NEIGHBOURS = 512
"""Noise levels are estimated from at most this number of other items."""

Errors = tuple[FloatArray, FloatArray]  # known errors of rows and of columns, of one class


def known_errors(errors: Errors | None, rows_I: IntArray, columns_J: IntArray) -> FloatArray | None:
    """e_i + e_j; None where there is no known error at all."""
    if errors is None or not (errors[0].any() or errors[1].any()):
        return None
    return errors[0][rows_I][:, None] + errors[1][columns_J][None, :]


def noise_levels(
    blocks: Sequence[AngleBlock], sizes_M: FloatArray, sizes_N: FloatArray, errors: Errors | None = None
) -> FloatArray:
    """b of one class: the low quantile of sin² θ / (1/n_i + 1/n_j) over the other items."""
    n = len(sizes_N)
    chosen = np.unique(np.linspace(0, n - 1, min(n, MAX_NEIGHBOURS)).astype(np.int64))
    place_N = np.full(n, -1)
    place_N[chosen] = np.arange(len(chosen))
    ratios_MK = np.full((len(sizes_M), len(chosen)), np.nan, dtype=np.float32)
    same_items = any(block.diagonal for block in blocks)

    def note(rows_I: IntArray, columns_J: IntArray, degrees_IJ: FloatArray) -> None:
        wanted_J = place_N[columns_J] >= 0
        columns_J = columns_J[wanted_J]
        sines_IJ = np.sin(np.radians(degrees_IJ[:, wanted_J])) ** 2
        known_IJ = known_errors(errors, rows_I, columns_J)
        if known_IJ is not None:
            sines_IJ = np.maximum(sines_IJ - known_IJ, 0)
        ratios_IJ = sines_IJ / (1 / sizes_M[rows_I][:, None] + 1 / sizes_N[columns_J][None, :])
        if same_items:  # an item is not its own neighbour
            ratios_IJ[rows_I[:, None] == columns_J[None, :]] = np.nan
        ratios_MK[np.ix_(rows_I, place_N[columns_J])] = ratios_IJ

    for block in blocks:
        note(block.rows_I, block.columns_J, block.degrees_IJ)
        if same_items and not block.diagonal:
            note(block.columns_J, block.rows_I, block.degrees_IJ.T)
    return np.minimum(low_quantile(ratios_MK), MAX_NOISE)


def low_quantile(ratios_MK: FloatArray) -> FloatArray:
    """np.nanquantile of every row without its loop over rows; infinite where a row is all NaN."""
    ordered_MK = np.sort(ratios_MK, axis=1)  # NaN last
    last_M = np.isfinite(ordered_MK).sum(axis=1) - 1
    place_M = NEIGHBOUR_QUANTILE * np.maximum(last_M, 0)
    below_M = place_M.astype(np.int64)
    rows_M = np.arange(len(ordered_MK))
    low_M = ordered_MK[rows_M, below_M]
    high_M = ordered_MK[rows_M, np.minimum(below_M + 1, np.maximum(last_M, 0))]
    return np.where(last_M < 0, np.inf, low_M + (place_M - below_M) * (high_M - low_M)).astype(np.float32)
