# SPDX-License-Identifier: Apache-2.0
"""Angles between the principal vectors of many items, class by class and block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray, row_blocks
from feddag.clustering.subspaces import Subspaces

AngleKind = Literal["pairs", "subspace"]

BLOCK_ITEMS = 256
"""Items handled at once: with 3 vectors each, a block of cosines is 2.4 MB."""


@dataclass(frozen=True)
class ClassVectors:
    """Unit vectors of one class: slot k holds the k-th vectors of the first len(slot) items of `items_M`."""

    items_M: IntArray
    slots: tuple[FloatArray, ...]

    def rows(self, block: slice) -> tuple[FloatArray, list[slice]]:
        """The block's vectors, slot after slot, and where each slot lies."""
        parts, places, start = [], [], 0
        for slot_MD in self.slots:
            part = slot_MD[block]
            parts.append(part)
            places.append(slice(start, start + len(part)))
            start += len(part)
        return np.concatenate(parts), places


@dataclass(frozen=True)
class AngleBlock:
    """Angles of one class between some items (rows) and some others (columns), in degrees."""

    label: int
    rows_I: IntArray
    columns_J: IntArray
    degrees_IJ: FloatArray
    diagonal: bool
    """Rows and columns are the same items: only entries above the diagonal count."""


def check_subspaces(subspaces: Sequence[Subspaces], num_classes: int, name: str = "subspaces") -> None:
    """Refuse NaN, wrong shapes and unknown classes, naming the item."""
    widths = {int(item.vectors_PD.shape[1]) for item in subspaces if item.vectors_PD.ndim == 2}
    for i, item in enumerate(subspaces):
        if item.vectors_PD.ndim != 2 or item.classes_P.shape != item.vectors_PD.shape[:1]:
            raise ValueError(
                f"{name} of item {i}: vectors {item.vectors_PD.shape} and classes {item.classes_P.shape} "
                "do not fit; one class per vector is expected"
            )
        if not np.isfinite(item.vectors_PD).all():
            raise ValueError(f"{name} of item {i} contains NaN or infinity")
        if len(item.classes_P) and not 0 <= item.classes_P.min() <= item.classes_P.max() < num_classes:
            raise ValueError(f"{name} of item {i} names a class outside 0 to {num_classes - 1}")
    if len(widths) > 1:
        raise ValueError(f"{name} have vectors of different lengths: {sorted(widths)}")


def present_classes(subspaces: Sequence[Subspaces], num_classes: int) -> np.ndarray:
    """Items x classes: does the item have at least one vector (not all zero) of the class?"""
    present_NC = np.zeros((len(subspaces), num_classes), dtype=bool)
    for i, item in enumerate(subspaces):
        present_NC[i, item.classes_P[np.abs(item.vectors_PD).max(axis=1, initial=0) > 0]] = True
    return present_NC


def gather_class(subspaces: Sequence[Subspaces], label: int, orthonormal: bool = False) -> ClassVectors:
    """One class of all items, ordered so that each slot is a prefix; only one class is ever copied."""
    found: list[tuple[int, FloatArray]] = []
    for i, item in enumerate(subspaces):
        vectors_pD = item.vectors_PD[item.classes_P == label].astype(np.float32, copy=False)
        vectors_pD = _orthonormal_rows(vectors_pD) if orthonormal else _unit_rows(vectors_pD)
        if len(vectors_pD):
            found.append((i, vectors_pD))
    found.sort(key=lambda entry: -len(entry[1]))
    most = len(found[0][1]) if found else 0
    return ClassVectors(
        items_M=np.array([i for i, _ in found], dtype=np.int64),
        slots=tuple(np.stack([v[k] for _, v in found if len(v) > k]) for k in range(most)),
    )


def class_angle_blocks(
    subspaces: Sequence[Subspaces],
    others: Sequence[Subspaces] | None = None,
    *,
    num_classes: int,
    kind: AngleKind = "pairs",
) -> Iterator[AngleBlock]:
    """V' of Eq. 4 for every class, over items that have it; without `others`, each pair of items once.

    `pairs` takes the nearest two vectors, as Eq. 4 is written; `subspace` the smallest principal angle
    of the spans, which does not depend on the basis. Absent classes yield nothing: see `similarity`.
    """
    if kind not in ("pairs", "subspace"):
        raise ValueError(f"angle kind must be pairs or subspace, not {kind!r}")
    for label in range(num_classes):
        left = gather_class(subspaces, label, orthonormal=kind == "subspace")
        right = left if others is None else gather_class(others, label, orthonormal=kind == "subspace")
        if not left.slots or not right.slots:
            continue
        for rows in row_blocks(len(left.items_M), BLOCK_ITEMS):
            for columns in row_blocks(len(right.items_M), BLOCK_ITEMS):
                diagonal = others is None and rows == columns
                if others is None and columns.start < rows.start:
                    continue
                cosines_IJ = _block_cosines(left, rows, right, columns, kind)
                yield AngleBlock(
                    label, left.items_M[rows], right.items_M[columns], degrees(cosines_IJ), diagonal
                )


def degrees(cosines: FloatArray) -> FloatArray:
    """arccos in degrees, after clipping: rounding makes cosines of equal vectors exceed 1."""
    return np.degrees(np.arccos(np.clip(cosines, -1, 1)))


def _block_cosines(
    left: ClassVectors, rows: slice, right: ClassVectors, columns: slice, kind: AngleKind
) -> FloatArray:
    left_rows, left_places = left.rows(rows)
    right_rows, right_places = right.rows(columns)
    shape = (len(left.items_M[rows]), len(right.items_M[columns]))
    products = left_rows @ right_rows.T
    if kind == "subspace":
        planes = np.zeros((max(len(left_places), 3), max(len(right_places), 3), *shape), dtype=np.float64)
        for a, place_a in enumerate(left_places):
            for b, place_b in enumerate(right_places):
                plane = products[place_a, place_b]
                planes[a, b, : plane.shape[0], : plane.shape[1]] = plane
        if planes.shape[:2] == (3, 3):
            return largest_singular_value(planes).astype(np.float32)
        return np.linalg.svd(np.moveaxis(planes, (0, 1), (2, 3)), compute_uv=False)[..., 0].astype(np.float32)
    np.abs(products, out=products)
    largest_IJ = np.zeros(shape, dtype=products.dtype)
    for place_a in left_places:
        for place_b in right_places:
            plane = products[place_a, place_b]
            part = largest_IJ[: plane.shape[0], : plane.shape[1]]
            np.maximum(part, plane, out=part)
    return largest_IJ


def largest_singular_value(planes_33: FloatArray) -> FloatArray:
    """Of many 3 x 3 matrices at once, by the trigonometric root of the characteristic cubic."""
    m = planes_33
    b00, b11, b22 = ((m[k] ** 2).sum(axis=0) for k in range(3))
    b01, b02, b12 = ((m[a] * m[b]).sum(axis=0) for a, b in ((0, 1), (0, 2), (1, 2)))
    mean = (b00 + b11 + b22) / 3
    b00, b11, b22 = b00 - mean, b11 - mean, b22 - mean
    spread = np.sqrt((b00**2 + b11**2 + b22**2 + 2 * (b01**2 + b02**2 + b12**2)) / 6)
    determinant = b00 * (b11 * b22 - b12**2) - b01 * (b01 * b22 - b12 * b02) + b02 * (b01 * b12 - b11 * b02)
    cube = np.where(spread > 0, spread, 1) ** 3
    angle = np.arccos(np.clip(determinant / (2 * cube), -1, 1)) / 3
    return np.sqrt(np.maximum(mean + 2 * spread * np.cos(angle), 0))


def _unit_rows(vectors_pD: FloatArray) -> FloatArray:
    norms_p = np.linalg.norm(vectors_pD, axis=1)
    return vectors_pD[norms_p > 0] / norms_p[norms_p > 0, None]


def _orthonormal_rows(vectors_pD: FloatArray) -> FloatArray:
    """An orthonormal basis of the rows' span: vectors that were sent with noise are not orthogonal."""
    gram_pp = vectors_pD @ vectors_pD.T
    if np.abs(gram_pp - np.eye(len(gram_pp))).max(initial=0) < 1e-5:
        return vectors_pD
    _, values, basis = np.linalg.svd(vectors_pD.astype(np.float64), full_matrices=False)
    return basis[values > 1e-6 * max(values[0], 1e-30)].astype(np.float32)
