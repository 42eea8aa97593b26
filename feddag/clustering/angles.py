# SPDX-License-Identifier: Apache-2.0
"""Angles between the principal vectors of many items, class by class and block by block."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, IntArray, checked_matrix, row_blocks
from feddag.clustering.options import AngleKind
from feddag.clustering.subspaces import Subspaces

BLOCK_ITEMS = 256
"""Items handled at once: with 3 vectors each, a block of cosines is 2.4 MB."""

KEPT_BYTES = 512 * 2**20
"""Memory for angles that are needed twice: 10 classes of 5,000 items. Beyond that they are not kept."""


@dataclass(frozen=True)
class VectorBlock:
    """Unit vectors of one class of some items: first all first vectors, then all second ones, and so on.

    Items with more vectors come first, so that slot k holds the k-th vectors of the first len(slot) items.
    """

    items_I: IntArray
    vectors_RD: FloatArray
    slots: tuple[slice, ...]


@dataclass(frozen=True)
class AngleBlock:
    """Angles of one class between some items (rows) and some others (columns), in degrees."""

    label: int
    rows_I: IntArray
    columns_J: IntArray
    degrees_IJ: FloatArray
    diagonal: bool
    """Rows and columns are the same items: only entries above the diagonal count."""


class KeptAngles:
    """All blocks of one pass, for a second use of the same angles; none if they need too much memory."""

    def __init__(self, limit: int | None = None) -> None:
        self.bytes_left = KEPT_BYTES if limit is None else limit
        self.blocks: list[AngleBlock] | None = []

    def add(self, block: AngleBlock) -> None:
        """Keep one block, or forget all blocks when there is no memory left."""
        self.bytes_left -= block.degrees_IJ.nbytes
        if self.bytes_left < 0:
            self.blocks = None
        elif self.blocks is not None:
            self.blocks.append(block)


def gather_class(subspaces: Sequence[Subspaces], label: int, orthonormal: bool = False) -> list[VectorBlock]:
    """One class of all items that have it, in blocks; only one class is ever copied."""
    found, parts = [], []
    for i, item in enumerate(subspaces):
        rows = np.flatnonzero(item.classes_P == label)
        if len(rows):
            found.append(i)
            parts.append(np.asarray(item.vectors_PD)[_span(rows)])
    if not found:
        return []
    owners_R = np.repeat(found, [len(part) for part in parts])
    vectors_RD, owners_R = _unit_rows(np.concatenate(parts, dtype=np.float32), owners_R)
    del parts
    if orthonormal:
        vectors_RD, owners_R = _orthonormal_rows(vectors_RD, owners_R)
    items_M, starts_M, counts_M = np.unique(owners_R, return_index=True, return_counts=True)
    order_M = np.argsort(-counts_M, kind="stable")
    items_M, starts_M, counts_M = items_M[order_M], starts_M[order_M], counts_M[order_M]
    blocks = []
    for block in row_blocks(len(items_M), BLOCK_ITEMS):
        starts, counts = starts_M[block], counts_M[block]
        places = [starts[counts > k] + k for k in range(counts.max())]
        ends = np.cumsum([0, *map(len, places)])
        slots = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
        blocks.append(VectorBlock(items_M[block], vectors_RD[np.concatenate(places)], slots))
    return blocks


def class_angle_blocks(
    subspaces: Sequence[Subspaces],
    others: Sequence[Subspaces] | None = None,
    *,
    num_classes: int,
    angles: AngleKind,
    only: Sequence[int] | None = None,
) -> Iterator[AngleBlock]:
    """V' of Eq. 4 for every class, over items that have it; without `others`, each pair of items once.

    `pairs` takes the two nearest vectors, as Eq. 4 is written. `subspace` takes the smallest principal angle
    of the two spans, which does not depend on the basis. A class that an item lacks yields no block.
    `only` names the classes, if not all are wanted.
    """
    nearest = _nearest_pairs if angles == "pairs" else _nearest_spans
    for label in range(num_classes) if only is None else only:
        left = gather_class(subspaces, label, orthonormal=angles == "subspace")
        right = left if others is None else gather_class(others, label, orthonormal=angles == "subspace")
        for i, rows in enumerate(left):
            # One class of one set: the blocks below the diagonal are known by symmetry.
            for j, columns in enumerate(right[i:] if others is None else right):
                cosines_IJ = nearest(rows, columns)
                yield AngleBlock(
                    label, rows.items_I, columns.items_I, degrees(cosines_IJ), others is None and j == 0
                )


def mean_blocks(
    means: Sequence[Subspaces], others: Sequence[Subspaces] | None, classes: Iterable[int]
) -> Iterator[AngleBlock]:
    """Class means in [0, 1] compared like angles: the sine is the root mean square of their differences."""
    for label in classes:
        left = _class_means(means, label)
        right = left if others is None else _class_means(others, label)
        for i, (rows_I, rows_IK) in enumerate(left):
            for j, (columns_J, columns_JK) in enumerate(right[i:] if others is None else right):
                squares_IJ = (
                    np.square(rows_IK).sum(axis=1)[:, None]
                    + np.square(columns_JK).sum(axis=1)[None, :]
                    - 2 * rows_IK @ columns_JK.T
                ) / max(rows_IK.shape[1], 1)
                sines_IJ = np.sqrt(np.clip(squares_IJ, 0, 1))
                degrees_IJ = np.degrees(np.arcsin(sines_IJ)).astype(np.float32)
                yield AngleBlock(label, rows_I, columns_J, degrees_IJ, others is None and j == 0)


def _class_means(means: Sequence[Subspaces], label: int) -> list[tuple[IntArray, FloatArray]]:
    """Items that tell the mean of a class, and the means in double precision, in blocks."""
    rows = [(i, np.flatnonzero(item.classes_P == label)) for i, item in enumerate(means)]
    found = [(i, means[i].vectors_PD[r[0]]) for i, r in rows if len(r) and means[i].vectors_PD.shape[1]]
    return [
        (
            np.array([i for i, _ in found[block]], dtype=np.int64),
            np.array([mean for _, mean in found[block]], dtype=np.float64),
        )
        for block in row_blocks(len(found), BLOCK_ITEMS)
    ]


def update_blocks(sketches_NK: FloatArray, others_NK: FloatArray | None) -> Iterator[AngleBlock]:
    """Half the angle of two updates, as one class: opposite updates are at a right angle."""
    unit_NK = unit_sketches(sketches_NK, "sketches")
    columns_NK = unit_NK if others_NK is None else unit_sketches(others_NK, "old sketches")
    for rows in row_blocks(len(unit_NK), BLOCK_ITEMS):
        for columns in row_blocks(len(columns_NK), BLOCK_ITEMS):
            if others_NK is None and columns.start < rows.start:
                continue
            halves_IJ = degrees(unit_NK[rows] @ columns_NK[columns].T) / 2
            places = (np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))
            yield AngleBlock(0, *places, halves_IJ, others_NK is None and rows.start == columns.start)


def degrees(cosines: FloatArray) -> FloatArray:
    """arccos in degrees, after clipping: rounding makes cosines of equal vectors exceed 1."""
    angles = np.clip(cosines, -1, 1)
    np.arccos(angles, out=angles)
    return np.degrees(angles, out=angles)


def _nearest_pairs(left: VectorBlock, right: VectorBlock) -> FloatArray:
    """The largest |cosine| of two vectors."""
    products = left.vectors_RD @ right.vectors_RD.T
    np.abs(products, out=products)
    # Every item has a first vector, so this plane covers all pairs; the maximum is collected in it.
    largest_IJ = products[left.slots[0], right.slots[0]]
    for a, rows in enumerate(left.slots):
        for b, columns in enumerate(right.slots):
            if a or b:
                plane = products[rows, columns]
                part = largest_IJ[: plane.shape[0], : plane.shape[1]]
                np.maximum(part, plane, out=part)
    return largest_IJ


def _nearest_spans(left: VectorBlock, right: VectorBlock) -> FloatArray:
    """The cosine of the smallest principal angle: the largest singular value of all products of two bases."""
    products = left.vectors_RD @ right.vectors_RD.T
    shape = (len(left.items_I), len(right.items_I))
    if len(left.slots) == len(right.slots) == 1:
        return np.abs(products)

    def plane(a: int, b: int) -> FloatArray:
        if a >= len(left.slots) or b >= len(right.slots):
            return np.zeros(shape, dtype=products.dtype)
        values = products[left.slots[a], right.slots[b]]
        if values.shape == shape:
            return values
        padded = np.zeros(shape, dtype=products.dtype)
        padded[: values.shape[0], : values.shape[1]] = values
        return padded

    side = max(3, len(left.slots), len(right.slots))
    planes = [[plane(a, b) for b in range(side)] for a in range(side)]
    if side == 3:
        return largest_singular_value(planes).astype(np.float32)
    cosines_IJ = np.empty(shape, dtype=np.float32)
    for i in range(shape[0]):  # row by row: all blocks of p x p at once would take p^2 planes more
        small = np.array([[planes[a][b][i] for b in range(side)] for a in range(side)], dtype=np.float64)
        cosines_IJ[i] = np.linalg.svd(np.moveaxis(small, 2, 0), compute_uv=False)[:, 0]
    return cosines_IJ


def largest_singular_value(planes_33: Sequence[Sequence[FloatArray]] | FloatArray) -> FloatArray:
    """Of many 3 x 3 matrices at once: the trigonometric root of the cubic of M M^T, in double precision."""
    m = planes_33
    b00, b11, b22, b01, b02, b12 = (
        (m[a][0] * m[b][0] + m[a][1] * m[b][1] + m[a][2] * m[b][2]).astype(np.float64, copy=False)
        for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    )
    mean = (b00 + b11 + b22) / 3
    b00 -= mean
    b11 -= mean
    b22 -= mean
    s01, s02, s12 = b01 * b01, b02 * b02, b12 * b12
    spread = np.sqrt((b00 * b00 + b11 * b11 + b22 * b22 + 2 * (s01 + s02 + s12)) / 6)
    determinant = b00 * (b11 * b22 - s12) + 2 * b01 * b02 * b12 - b11 * s02 - b22 * s01
    # cos(phi) = det / (2 spread^3); the root wants cos(phi / 3), a smooth function of cos(phi / 2).
    half = determinant / np.maximum(4 * spread * spread * spread, 1e-300)
    half += 0.5
    np.clip(half, 0, 1, out=half)
    np.sqrt(half, out=half)
    root = np.full_like(half, THIRD_OF_ANGLE[-1])
    for coefficient in THIRD_OF_ANGLE[-2::-1]:
        root *= half
        root += coefficient
    root *= 2 * spread
    root += mean
    return np.sqrt(np.maximum(root, 0, out=root), out=root)


def _third_of_angle(half: FloatArray) -> FloatArray:
    """cos(phi / 3) from cos(phi / 2)."""
    return np.cos(np.arccos(half) * 2 / 3)


THIRD_OF_ANGLE = Chebyshev.interpolate(_third_of_angle, 12, domain=[0, 1]).convert(kind=Polynomial).coef
"""`_third_of_angle` as a polynomial on [0, 1], exact to 1e-11; arccos and cos cost more than the rest."""


def unit_sketches(sketches: ArrayLike, name: str) -> FloatArray:
    """Rows of length 1; a zero row stays zero."""
    sketches_NK = checked_matrix(sketches, name)
    # Scale by the largest entry first: squares of very large or very small updates leave float range.
    largest_N = np.abs(sketches_NK).max(axis=1, initial=0)[:, None].astype(np.float64)
    scaled_NK = sketches_NK / np.where(largest_N > 0, largest_N, 1)
    norms_N = np.linalg.norm(scaled_NK, axis=1, keepdims=True)
    return (scaled_NK / np.where(norms_N > 0, norms_N, 1)).astype(np.float32)


def _span(rows: IntArray) -> slice | IntArray:
    """Neighbouring rows as a slice, which copies nothing."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    return slice(first, last) if last - first == len(rows) else rows


def _unit_rows(vectors_RD: FloatArray, owners_R: IntArray) -> tuple[FloatArray, IntArray]:
    """Rows of length 1, in place where none is zero; all-zero rows are left out."""
    norms_R = np.empty(len(vectors_RD), dtype=np.float32)
    for rows in row_blocks(len(vectors_RD)):
        norms_R[rows] = np.linalg.norm(vectors_RD[rows], axis=1)
    if not norms_R.all():
        kept_R = norms_R > 0
        vectors_RD, owners_R, norms_R = vectors_RD[kept_R], owners_R[kept_R], norms_R[kept_R]
    vectors_RD /= norms_R[:, None]
    return vectors_RD, owners_R


def _orthonormal_rows(vectors_RD: FloatArray, owners_R: IntArray) -> tuple[FloatArray, IntArray]:
    """An orthonormal basis of each owner's span: vectors that were sent with noise are not orthogonal."""
    starts_M = np.flatnonzero(np.diff(owners_R, prepend=-1))
    counts_M = np.diff(starts_M, append=len(owners_R))
    keep_R = np.ones(len(owners_R), dtype=bool)
    for count in np.unique(counts_M):
        of_count = starts_M[counts_M == count]
        for block in row_blocks(len(of_count), BLOCK_ITEMS):
            bases_Mpd = vectors_RD[of_count[block][:, None] + np.arange(count)]
            grams_Mpp = bases_Mpd @ bases_Mpd.transpose(0, 2, 1)
            skewed_M = np.abs(grams_Mpp - np.eye(count)).max(axis=(1, 2)) >= 1e-5
            for k in np.flatnonzero(skewed_M):
                _, values, basis = np.linalg.svd(bases_Mpd[k].astype(np.float64), full_matrices=False)
                first, rank = of_count[block][k], len(values)  # fewer than vectors in few dimensions
                vectors_RD[first : first + rank] = basis
                keep_R[first : first + rank] = values > 1e-6 * max(values[0], 1e-30)
                keep_R[first + rank : first + count] = False
    return (vectors_RD, owners_R) if keep_R.all() else (vectors_RD[keep_R], owners_R[keep_R])
