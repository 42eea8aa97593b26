# SPDX-License-Identifier: Apache-2.0
"""Data angles cleared of sampling noise: the default in place of Eqs. 5 and 6.

The principal vectors of n samples differ from those of the distribution by chance. Two independent samples of
the same class therefore lie apart by

    E sin² θ_ij = a_i / n_i + a_j / n_j

and small classes look different from everything. The noise level a of an item's class is estimated from its
nearest neighbours. What the noise explains is subtracted, and well known classes count more:

    ν_ij = b_i / n_i + b_j / n_j,     b = 10% quantile over j of  sin² θ_ij / (1/n_i + 1/n_j)
    D_ij = Σ_c (sin² θ_ijc - 1.4 ν_ijc) / ν_ijc²  /  Σ_c 1 / ν_ijc²      with error σ_ij = (Σ_c 1 / ν_ijc²)^-½
    θ_ij = arcsin √(D_ij + σ̄),        σ̄ = median of all errors

Vectors that carry noise on purpose (feddag.privacy) have a known error e, the expected sin² that it adds.
e_i + e_j is subtracted from sin² θ_ij first, and added to ν_ij where it weighs the evidence.

σ̄ keeps the remaining noise in the linear part of the root. Without it, clients that do not differ would
fall into arbitrary groups. If two items share only some classes, θ moves towards a right angle by u^1.5,
where u is the share of their samples that lie in classes which the other item lacks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from feddag.clustering.angles import AngleBlock, KeptAngles, class_angle_blocks
from feddag.clustering.arrays import (
    RIGHT_ANGLE,
    FloatArray,
    IntArray,
    add_transpose,
    block_places,
    row_blocks,
)
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.core.message import message, public

NEIGHBOUR_QUANTILE = 0.1
"""10%, so that even with eleven equal groups a same-group neighbour is included."""
MEDIAN_PER_QUANTILE = 1.4
"""The median of same-group values divided by their 10% quantile; 1.3 to 1.4 for image classes."""
MAX_NOISE = 1 / MEDIAN_PER_QUANTILE
"""Largest noise level b. Then a = 1: half of a class's energy is off its first vector."""
MIN_NOISE = np.radians(0.1) ** 2
"""sin² of the largest angle that is rounding, not data."""
MAX_NEIGHBOURS = 512
"""Noise levels are estimated from at most this number of other items."""
ABSENT_POWER = 1.5
"""u^1.5: a class of few samples that one item lacks counts little, disjoint classes count in full."""


@message
class ReliableAngles:
    """Data angles cleared of noise. `fit` estimates the noise, which is kept to measure newcomers alike."""

    options: ClusteringOptions
    levels_NC: np.ndarray = public(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))  # b
    typical_error: float = 0.0  # σ̄

    def fit(self, items: Items, keep: KeptAngles | None = None) -> tuple["ReliableAngles", FloatArray]:
        """The estimated noise, and the angles of N items in degrees; `keep` collects class-wise angles."""
        n = len(items)
        sizes_NC = _sizes(items.counts_NC)
        errors_NC = items.known_errors()
        levels_NC = np.full(sizes_NC.shape, MAX_NOISE, dtype=np.float32)
        total_NN, evidence_NN = np.zeros((n, n), dtype=np.float32), np.zeros((n, n), dtype=np.float32)
        for label, blocks in self._blocks(items, None):
            if keep is not None:
                for block in blocks:
                    keep.add(block)
            errors = errors_NC[:, label], errors_NC[:, label]
            levels_NC[:, label] = _levels(blocks, sizes_NC[:, label], sizes_NC[:, label], errors)
            noise_N = levels_NC[:, label] / sizes_NC[:, label]
            while blocks:  # a block that has been added is not needed again
                _add(total_NN, evidence_NN, blocks.pop(), noise_N, noise_N, errors)
        add_transpose(total_NN)
        add_transpose(evidence_NN)
        fitted = replace(self, levels_NC=levels_NC, typical_error=_typical_error(evidence_NN))
        present_NC = items.present()
        _finish(total_NN, evidence_NN, fitted.typical_error, sizes_NC * present_NC, sizes_NC * present_NC)
        np.fill_diagonal(total_NN, 0)
        return fitted, total_NN

    def newcomers(self, new: Items, old: Items) -> "ReliableAngles":
        """The noise of new items, estimated from their nearest old neighbours."""
        sizes_MC, sizes_NC = _sizes(new.counts_NC), _sizes(old.counts_NC)
        levels_MC = np.full(sizes_MC.shape, MAX_NOISE, dtype=np.float32)
        errors_MC, errors_NC = new.known_errors(), old.known_errors()
        for label, blocks in self._blocks(new, old):
            errors = errors_MC[:, label], errors_NC[:, label]
            levels_MC[:, label] = _levels(blocks, sizes_MC[:, label], sizes_NC[:, label], errors)
        return replace(self, levels_NC=levels_MC)

    def joined(self, newcomers: "ReliableAngles") -> "ReliableAngles":
        """The noise of old and new items together."""
        return replace(self, levels_NC=np.concatenate([self.levels_NC, newcomers.levels_NC]))

    def between(self, new: Items, old: Items, of_new: "ReliableAngles | None" = None) -> FloatArray:
        """Angles of M new items to N old ones, in degrees; `of_new` is the noise of the new items."""
        of_new = of_new or self.newcomers(new, old)
        total_MN = np.zeros((len(new), len(old)), dtype=np.float32)
        evidence_MN = np.zeros_like(total_MN)
        sizes_MC, sizes_NC = _sizes(new.counts_NC), _sizes(old.counts_NC)
        noise_MC, noise_NC = of_new.levels_NC / sizes_MC, self.levels_NC / sizes_NC
        errors_MC, errors_NC = new.known_errors(), old.known_errors()
        for label, blocks in self._blocks(new, old):
            errors = errors_MC[:, label], errors_NC[:, label]
            for block in blocks:
                _add(total_MN, evidence_MN, block, noise_MC[:, label], noise_NC[:, label], errors)
        _finish(total_MN, evidence_MN, self.typical_error, sizes_MC * new.present(), sizes_NC * old.present())
        return total_MN

    def _blocks(self, rows: Items, columns: Items | None) -> Iterator[tuple[int, list[AngleBlock]]]:
        """Class by class, all blocks of angles."""
        others = None if columns is None else columns.subspaces
        blocks = class_angle_blocks(
            rows.subspaces, others, num_classes=rows.num_classes, angles=self.options.angles
        )
        for label, of_class in groupby(blocks, key=lambda block: block.label):
            yield label, list(of_class)


def unshared(new_sizes_MC: FloatArray, old_sizes_NC: FloatArray) -> FloatArray:
    """u: the share of two items' samples in classes that the other one lacks; 0 for two without samples."""
    shares_MC, shares_NC = _shares(new_sizes_MC), _shares(old_sizes_NC)
    u_MN = 1 - (shares_MC @ (shares_NC > 0).T + (shares_MC > 0) @ shares_NC.T) / 2
    u_MN[np.ix_(~shares_MC.any(axis=1), ~shares_NC.any(axis=1))] = 0
    return np.clip(u_MN, 0, 1, out=u_MN)


Errors = tuple[FloatArray, FloatArray]  # known errors of rows and of columns, of one class


def _known_errors(errors: Errors | None, rows_I: IntArray, columns_J: IntArray) -> FloatArray | None:
    """e_i + e_j; None where there is no known error at all."""
    if errors is None or not (errors[0].any() or errors[1].any()):
        return None
    return errors[0][rows_I][:, None] + errors[1][columns_J][None, :]


def _levels(
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
        known_IJ = _known_errors(errors, rows_I, columns_J)
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
    return np.minimum(_low_quantile(ratios_MK), MAX_NOISE)


def _low_quantile(ratios_MK: FloatArray) -> FloatArray:
    """np.nanquantile of every row without its loop over rows; infinite where a row is all NaN."""
    ordered_MK = np.sort(ratios_MK, axis=1)  # NaN last
    last_M = np.isfinite(ordered_MK).sum(axis=1) - 1
    place_M = NEIGHBOUR_QUANTILE * np.maximum(last_M, 0)
    below_M = place_M.astype(np.int64)
    rows_M = np.arange(len(ordered_MK))
    low_M = ordered_MK[rows_M, below_M]
    high_M = ordered_MK[rows_M, np.minimum(below_M + 1, np.maximum(last_M, 0))]
    return np.where(last_M < 0, np.inf, low_M + (place_M - below_M) * (high_M - low_M)).astype(np.float32)


def _add(
    total: FloatArray,
    evidence: FloatArray,
    block: AngleBlock,
    row_noise: FloatArray,
    column_noise: FloatArray,
    errors: Errors | None = None,
) -> None:
    """Add (sin² θ - 1.4 ν) / ν² and 1 / ν² of one block; of a diagonal block only the upper half."""
    noise_IJ = row_noise[block.rows_I][:, None] + column_noise[block.columns_J][None, :]
    noise_IJ = np.maximum(noise_IJ, np.float32(MIN_NOISE))
    known_IJ = _known_errors(errors, block.rows_I, block.columns_J)
    evidence_IJ = 1 / np.square(noise_IJ if known_IJ is None else noise_IJ + known_IJ)
    if block.diagonal:
        evidence_IJ = np.triu(evidence_IJ, 1)
    sines_IJ = np.square(np.sin(np.radians(block.degrees_IJ)))
    if known_IJ is not None:
        sines_IJ = sines_IJ - known_IJ
    places = block_places(block.rows_I, block.columns_J)
    evidence[places] += evidence_IJ
    total[places] += evidence_IJ * (sines_IJ - np.float32(MEDIAN_PER_QUANTILE) * noise_IJ)


def _finish(
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


def _typical_error(evidence_NN: FloatArray) -> float:
    """The median of (Σ 1/ν²)^-½ over all pairs that share a class; of very many rows, every k-th."""
    every = max(len(evidence_NN) // 2000, 1)
    rows = evidence_NN[::every]
    shared = np.extract(rows > 0, rows)
    return float(np.median(1 / np.sqrt(shared))) if len(shared) else 0.0


def _sizes(counts: FloatArray) -> FloatArray:
    """Class sizes; at least 1, because a vector comes from at least one sample, even if counts are noisy."""
    return np.maximum(counts, 1).astype(np.float32)


def _shares(sizes: FloatArray) -> FloatArray:
    return sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)
