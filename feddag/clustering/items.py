# SPDX-License-Identifier: Apache-2.0
"""Items: what is known of N clients (or data sets) before they are compared, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, checked_counts, checked_matrix
from feddag.clustering.subspaces import Subspaces


@dataclass(frozen=True)
class Items:
    """Class subspaces, class counts and, where known, update sketches of N items, in the same order."""

    subspaces: Sequence[Subspaces]
    counts_NC: FloatArray
    sketches_NK: FloatArray | None = None

    @classmethod
    def of(
        cls, subspaces: Sequence[Subspaces], counts: ArrayLike, sketches: ArrayLike | None = None
    ) -> "Items":
        """Check all arrays; an error names the first item that is wrong."""
        counts_NC = checked_counts(counts)
        if len(counts_NC) != len(subspaces):
            raise ValueError(f"{len(subspaces)} items with subspaces, but {len(counts_NC)} rows of counts")
        check_subspaces(subspaces, counts_NC.shape[1])
        sketches_NK = None if sketches is None else checked_matrix(sketches, "sketches")
        if sketches_NK is not None and len(sketches_NK) != len(counts_NC):
            raise ValueError(f"{len(counts_NC)} rows of counts, but {len(sketches_NK)} sketches")
        return cls(subspaces, counts_NC, sketches_NK)

    def __len__(self) -> int:
        return len(self.subspaces)

    @property
    def num_classes(self) -> int:
        """Number of classes, absent ones included."""
        return self.counts_NC.shape[1]

    def present(self) -> np.ndarray:
        """Items x classes: whether the item has at least one vector of the class that is not all zero."""
        present_NC = np.zeros(self.counts_NC.shape, dtype=bool)
        for i, item in enumerate(self.subspaces):
            present_NC[i, item.classes_P[np.abs(item.vectors_PD).max(axis=1, initial=0) > 0]] = True
        return present_NC

    def known_errors(self) -> FloatArray:
        """Items x classes: known error (sin²) of the first vector of each class; 0 where there is none."""
        errors_NC = np.zeros(self.counts_NC.shape, dtype=np.float32)
        for i, item in enumerate(self.subspaces):
            if item.errors_P is not None:
                errors_NC[i, item.classes_P[::-1]] = item.errors_P[::-1]  # of several vectors the first stays
        return errors_NC


def check_subspaces(subspaces: Sequence[Subspaces], num_classes: int) -> None:
    """Refuse NaN, wrong shapes and unknown classes; the error names the item."""
    widths = {int(item.vectors_PD.shape[1]) for item in subspaces if item.vectors_PD.ndim == 2}
    for i, item in enumerate(subspaces):
        if item.vectors_PD.ndim != 2 or item.classes_P.shape != item.vectors_PD.shape[:1]:
            raise ValueError(
                f"subspaces of item {i}: vectors {item.vectors_PD.shape} and classes {item.classes_P.shape} "
                "do not fit; one class per vector is expected"
            )
        if not np.isfinite(item.vectors_PD).all():
            raise ValueError(f"subspaces of item {i} contains NaN or infinity")
        if len(item.classes_P) and not 0 <= item.classes_P.min() <= item.classes_P.max() < num_classes:
            raise ValueError(f"subspaces of item {i} names a class outside 0 to {num_classes - 1}")
    if len(widths) > 1:
        raise ValueError(f"subspaces have vectors of different lengths: {sorted(widths)}")
