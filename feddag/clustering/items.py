# SPDX-License-Identifier: Apache-2.0
"""Items: what is known of N clients (or data sets) before they are compared, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, IntArray, checked_counts, checked_matrix
from feddag.clustering.subspaces import Subspaces

CLASS_VIEWS = ("pixels", "shape", "texture", "tones")
"""Views that compare samples class by class."""
MEAN_VIEWS = ("texture", "tones")
"""Those of them that tell the mean of each class, in place of principal vectors."""


@dataclass(frozen=True)
class Items:
    """Class subspaces, class counts and, where known, more views of N items, in the same order."""

    subspaces: Sequence[Subspaces]
    counts_NC: FloatArray
    sketches_NK: FloatArray | None = None
    shapes: Sequence[Subspaces] = ()
    textures: Sequence[Subspaces] = ()
    """Class means in place of vectors: one row per class."""
    tones: Sequence[Subspaces] = ()
    """Class means, too."""

    @classmethod
    def of(
        cls,
        subspaces: Sequence[Subspaces],
        counts: ArrayLike,
        sketches: ArrayLike | None = None,
        shapes: Sequence[Subspaces] = (),
        textures: Sequence[Subspaces] = (),
        tones: Sequence[Subspaces] = (),
    ) -> "Items":
        """Check all arrays; an error names the first item that is wrong."""
        counts_NC = checked_counts(counts)
        told = {"subspaces": subspaces, "shapes": shapes, "textures": textures, "tones": tones}
        for name, views in told.items():
            if len(counts_NC) != len(views) and (len(views) or name == "subspaces"):
                raise ValueError(f"{len(views)} items with {name}, but {len(counts_NC)} rows of counts")
            check_subspaces(views, counts_NC.shape[1], name)
        sketches_NK = None if sketches is None else checked_matrix(sketches, "sketches")
        if sketches_NK is not None and len(sketches_NK) != len(counts_NC):
            raise ValueError(f"{len(counts_NC)} rows of counts, but {len(sketches_NK)} sketches")
        return cls(subspaces, counts_NC, sketches_NK, shapes, textures, tones)

    def __len__(self) -> int:
        return len(self.subspaces)

    def take(self, rows: Sequence[int] | IntArray) -> "Items":
        """Some of the items, in the given order."""
        some = np.asarray(rows, dtype=np.int64)
        picked = [
            [told[i] for i in some.tolist()] if len(told) else ()
            for told in map(self.class_vectors, CLASS_VIEWS)
        ]
        sketches_NK = None if self.sketches_NK is None else self.sketches_NK[some]
        return Items(picked[0], self.counts_NC[some], sketches_NK, *picked[1:])

    @classmethod
    def joined(cls, parts: Sequence["Items"]) -> "Items":
        """The items of all parts, one after the other; a view that one part lacks is left out."""
        sketches = [part.sketches_NK for part in parts if part.sketches_NK is not None]
        views = [[part.class_vectors(view) for part in parts] for view in CLASS_VIEWS]
        told = [tuple(chain(*of_view)) if all(map(len, of_view)) else () for of_view in views]
        counts_NC = np.concatenate([part.counts_NC for part in parts])
        together_NK = np.concatenate(sketches) if len(sketches) == len(parts) else None
        return cls(told[0], counts_NC, together_NK, *told[1:])

    @property
    def num_classes(self) -> int:
        """Number of classes, absent ones included."""
        return self.counts_NC.shape[1]

    def class_vectors(self, view: str) -> Sequence[Subspaces]:
        """The class-wise rows of a data view."""
        told = self.subspaces, self.shapes, self.textures, self.tones
        return told[CLASS_VIEWS.index(view)]

    def views(self) -> tuple[str, ...]:
        """The data views that somebody told something in, and that can tell items apart."""
        told = [v for v in CLASS_VIEWS if any(i.vectors_PD.size for i in self.class_vectors(v))]
        return tuple(view for view in told if view != "shape" or not self._shapes_always_meet())

    def _shapes_always_meet(self) -> bool:
        """Whether spans of shapes have no room to differ: p + p vectors in at most 2 p dimensions.

        A shape has lost one dimension, its mean. So rows of a table with few columns have no shape.
        """
        most = max(
            (int(np.bincount(i.classes_P).max(initial=0)) for i in self.shapes if len(i.classes_P)), default=0
        )
        return self.shapes[0].vectors_PD.shape[1] - 1 < 2 * most

    def present(self) -> np.ndarray:
        """Items x classes: whether the item has at least one vector of the class that is not all zero."""
        present_NC = np.zeros(self.counts_NC.shape, dtype=bool)
        for i, item in enumerate(self.subspaces):
            present_NC[i, item.classes_P[np.abs(item.vectors_PD).max(axis=1, initial=0) > 0]] = True
        return present_NC

    def known_errors(self, view: str = "pixels") -> FloatArray:
        """Items x classes: known error (sin²) of the first vector of each class; 0 where there is none."""
        if view == "gradient":
            return np.zeros((len(self), 1), dtype=np.float32)
        errors_NC = np.zeros(self.counts_NC.shape, dtype=np.float32)
        for i, item in enumerate(self.class_vectors(view)):
            if item.errors_P is not None:
                # Differences of class means are means over their numbers, so their errors are, too.
                errors_P = item.errors_P / (item.vectors_PD.shape[1] if view in MEAN_VIEWS else 1)
                errors_NC[i, item.classes_P[::-1]] = errors_P[::-1]  # of several vectors the first stays
        return errors_NC


def check_subspaces(subspaces: Sequence[Subspaces], num_classes: int, name: str = "subspaces") -> None:
    """Refuse NaN, wrong shapes and unknown classes; the error names the item."""
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


def sketches_of(items: Items) -> FloatArray:
    """The update sketches; a view that needs them must have them."""
    if items.sketches_NK is None:
        raise ValueError("the updates of old and new items are compared, but some items sent no sketch")
    return items.sketches_NK
