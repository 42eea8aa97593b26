# SPDX-License-Identifier: Apache-2.0
"""Data angles weighted by class frequency, as the paper writes them (Eqs. 5 and 6)."""

from dataclasses import replace

import numpy as np

from feddag.clustering.angles import KeptAngles, class_angle_blocks
from feddag.clustering.arrays import (
    RIGHT_ANGLE,
    FloatArray,
    add_transpose,
    block_places,
    row_blocks,
)
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.core.message import message


@message
class FrequencyAngles:
    """W' of Eq. 6: ratios of log counts (Eq. 5), mapped from [low, high] to [1 - delta, 1 + delta].

    `fit` finds the range of the ratios. It is kept, so that newcomers are weighted by the same rule.
    """

    options: ClusteringOptions
    low: float = 1.0
    high: float = 1.0

    def fit(self, items: Items, keep: KeptAngles | None = None) -> tuple["FrequencyAngles", FloatArray]:
        """The fitted weights, and V of Eq. 6 in degrees; `keep` collects the class-wise angles."""
        present_NC = items.present()
        fitted = self._with_range(items.counts_NC, present_NC)
        total_NN = np.zeros((len(items), len(items)), dtype=np.float32)
        fitted._add_shared(total_NN, items, None, keep)
        # Add one half, then the transpose: so the sum is symmetric to the last bit.
        _add_absent(total_NN, fitted._absence_cost(items.counts_NC, present_NC), present_NC)
        add_transpose(total_NN)
        np.fill_diagonal(total_NN, 0)
        total_NN /= max(items.num_classes, 1)
        return fitted, total_NN

    def newcomers(self, new: Items, old: Items) -> "FrequencyAngles":
        """The weights of new items: those of the old ones."""
        return self

    def joined(self, newcomers: "FrequencyAngles") -> "FrequencyAngles":
        """The weights of old and new items together: unchanged."""
        return self

    def between(self, new: Items, old: Items, of_new: "FrequencyAngles | None" = None) -> FloatArray:
        """Rows of Eq. 6 for M new items against N old ones, in degrees."""
        total_MN = np.zeros((len(new), len(old)), dtype=np.float32)
        new_present_MC, old_present_NC = new.present(), old.present()
        self._add_shared(total_MN, new, old)
        _add_absent(total_MN, self._absence_cost(new.counts_NC, new_present_MC), old_present_NC)
        _add_absent(total_MN.T, self._absence_cost(old.counts_NC, old_present_NC), new_present_MC)
        total_MN /= max(old.num_classes, 1)
        return total_MN

    def weights(self, ratios: FloatArray) -> FloatArray:
        """Ratios as weights; ratios outside [low, high] (newcomers) are clipped, equal ones give 1."""
        if self.high <= self.low:
            return np.ones_like(ratios)
        share = np.clip((ratios - self.low) / (self.high - self.low), 0, 1)
        return 1 - self.options.delta + 2 * self.options.delta * share

    def _with_range(self, counts_NC: FloatArray, present_NC: np.ndarray) -> "FrequencyAngles":
        """The range of Eq. 5, over all classes and all pairs of items that both have the class."""
        lowest, highest = np.inf, -np.inf
        for label in range(counts_NC.shape[1]):
            logs_M = np.sort(self._log_counts(counts_NC[present_NC[:, label], label]))
            if len(logs_M) > 1:
                # The smallest ratio is between neighbours in size, the largest between the extremes.
                lowest = min(lowest, float((logs_M[1:] / logs_M[:-1]).min()))
                highest = max(highest, float(logs_M[-1] / logs_M[0]))
            if self.options.weigh_absent and 0 < len(logs_M) < len(counts_NC):
                ratios_M = logs_M / np.float32(np.log(self.options.epsilon))
                lowest, highest = min(lowest, float(ratios_M[0])), max(highest, float(ratios_M[-1]))
        if highest < lowest:
            lowest = highest = 1.0
        return replace(self, low=lowest, high=highest)

    def _log_counts(self, counts: FloatArray) -> FloatArray:
        """ln(|D| + epsilon)."""
        return np.log(counts + self.options.epsilon).astype(np.float32)

    def _add_shared(
        self, total: FloatArray, rows: Items, columns: Items | None, keep: KeptAngles | None = None
    ) -> None:
        """Add the weighted angles of classes that both items have; of diagonal blocks only the upper half."""
        row_logs = self._log_counts(rows.counts_NC)
        column_logs = row_logs if columns is None else self._log_counts(columns.counts_NC)
        others = None if columns is None else columns.subspaces
        for block in class_angle_blocks(
            rows.subspaces, others, num_classes=rows.num_classes, angles=self.options.angles
        ):
            if keep is not None:
                keep.add(block)
            logs_I = row_logs[block.rows_I, block.label][:, None]
            logs_J = column_logs[block.columns_J, block.label][None, :]
            term_IJ = self.weights(np.maximum(logs_I, logs_J) / np.minimum(logs_I, logs_J))
            term_IJ *= block.degrees_IJ
            if not self.options.weigh_absent:
                # A class that both have is never farther apart than a class that only one of them has.
                np.minimum(term_IJ, RIGHT_ANGLE, out=term_IJ)
            places = block_places(block.rows_I, block.columns_J)
            total[places] += np.triu(term_IJ, 1) if block.diagonal else term_IJ

    def _absence_cost(self, counts: FloatArray, present: np.ndarray) -> FloatArray:
        """The cost of a class that only this item has: 90 degrees, times the weight if that is asked for."""
        if not self.options.weigh_absent:
            return (RIGHT_ANGLE * present).astype(np.float32)
        ratios = self._log_counts(counts) / np.float32(np.log(self.options.epsilon))
        return (RIGHT_ANGLE * present * self.weights(ratios)).astype(np.float32)


def _add_absent(total: FloatArray, row_cost: FloatArray, column_present: np.ndarray) -> None:
    """Add the cost of each class that the row's item has and the column's item lacks."""
    column_lacks = (~column_present).astype(np.float32)
    for rows in row_blocks(len(total)):
        total[rows] += row_cost[rows] @ column_lacks.T
