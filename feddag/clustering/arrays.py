# SPDX-License-Identifier: Apache-2.0
"""Array types and the input checks that all of this package shares."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.floating]
IntArray = NDArray[np.integer]

RIGHT_ANGLE = 90.0

BLOCK_ROWS = 512
"""Rows handled at once: 512 x 512 float32 values stay in a core's cache."""


def row_blocks(num_rows: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Consecutive slices that cover `num_rows` rows."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def off_diagonal(matrix_NN: FloatArray) -> Iterator[FloatArray]:
    """The entries above the diagonal, row by row (views, no copy)."""
    for row, values_N in enumerate(matrix_NN[:-1]):
        yield values_N[row + 1 :]


def block_places(rows_I: IntArray, columns_J: IntArray) -> tuple:
    """Where a block lies in the whole matrix: slices where its items are neighbours, which is much faster."""

    def slice_of(items: IntArray) -> slice | None:
        neighbours = len(items) and (np.diff(items) == 1).all()
        return slice(int(items[0]), int(items[-1]) + 1) if neighbours else None

    rows, columns = slice_of(rows_I), slice_of(columns_J)
    return (rows, columns) if rows is not None and columns is not None else np.ix_(rows_I, columns_J)


def add_transpose(matrix_NN: FloatArray) -> None:
    """matrix + its transpose, in place and by blocks."""
    for rows in row_blocks(len(matrix_NN)):
        for columns in row_blocks(len(matrix_NN)):
            if columns.start >= rows.start:
                block = matrix_NN[rows, columns] + matrix_NN[columns, rows].T
                matrix_NN[rows, columns] = block
                matrix_NN[columns, rows] = block.T


def checked_matrix(values: ArrayLike, name: str) -> FloatArray:
    """`values` as a float array of two axes; a row with NaN or infinity is refused by its number."""
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, not {matrix.dtype}")
    if matrix.dtype.kind != "f":
        matrix = matrix.astype(np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two axes, not shape {matrix.shape}")
    for rows in row_blocks(len(matrix)):
        bad = ~np.isfinite(matrix[rows]).all(axis=1)
        if bad.any():
            raise ValueError(f"{name} of item {rows.start + int(bad.argmax())} contains NaN or infinity")
    return matrix


def checked_distances(values: ArrayLike, name: str = "distances") -> FloatArray:
    """`values` as a square, finite, non-negative, symmetric matrix with zero diagonal."""
    matrix_NN = checked_matrix(values, name)
    if matrix_NN.shape[0] != matrix_NN.shape[1]:
        raise ValueError(f"{name} must be square, not of shape {matrix_NN.shape}")
    for rows in row_blocks(len(matrix_NN)):
        if (matrix_NN[rows] < 0).any():
            item = rows.start + int((matrix_NN[rows] < 0).any(axis=1).argmax())
            raise ValueError(f"{name} of item {item} are negative; distances must be 0 or more")
        # np.isclose, written out: it is the slowest step of all on large matrices
        right = matrix_NN[rows, rows.start :]
        left = matrix_NN[rows.start :, rows].T
        unequal = (np.abs(right - left) > 1e-6 + 1e-5 * left).any(axis=1)
        if unequal.any():
            raise ValueError(f"{name} must be symmetric; row {rows.start + int(unequal.argmax())} is not")
    if len(matrix_NN) and np.abs(np.diagonal(matrix_NN)).max() > 1e-6:
        raise ValueError(f"{name} must have a zero diagonal")
    return matrix_NN


def checked_counts(values: ArrayLike, name: str = "counts") -> FloatArray:
    """`values` as a finite, non-negative items x classes matrix (noisy counts need not be whole)."""
    counts_NC = checked_matrix(values, name).astype(np.float64)
    negative = (counts_NC < 0).any(axis=1)
    if negative.any():
        raise ValueError(f"{name} of item {int(negative.argmax())} are negative")
    return counts_NC


def canonical_labels(labels: ArrayLike) -> IntArray:
    """Renumber clusters 0, 1, ... in the order of their smallest member."""
    _, first, inverse = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]
