# SPDX-License-Identifier: Apache-2.0
"""The signature of a client: what it learns alone, how its classes look, how many samples it has (§3)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering import looks
from feddag.clustering.items import MEAN_VIEWS, Items
from feddag.clustering.options import SvdMethod
from feddag.clustering.subspaces import Subspaces, class_means, class_subspaces
from feddag.core.contract import Known
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples
from feddag.core.message import message, options, public, sensitive
from feddag.core.params import Layout, Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import Client, sgd_task
from feddag.learning.sgd import sgd

ViewName = Literal["pixels", "shape", "texture", "tones", "gradient"]
DATA_VIEWS: tuple[ViewName, ...] = ("pixels", "shape", "texture", "tones")
NO_ERRORS = np.zeros(0, dtype=np.float32)


@options
class SignatureOptions:
    """What a client computes and sends as its signature."""

    # What is looked at: see `feddag.clustering.looks`; "gradient" is the sketch of an update, for which every
    # client has to train at the start; (): what suits the data, see `suited`.
    views: tuple[ViewName, ...] = ()
    side: Annotated[int, Ge(0)] = 16  # images are averaged to at most this side; 0: samples as they are
    # t_g, rounds of training alone before the signature; a request says 0 where no update is needed.
    warmup_rounds: Annotated[int, Ge(1)] = 2
    warmup_update: Literal["total", "last"] = "total"  # the update of all warm-up rounds, or of the last one
    # τ of the warm-up's loss: 0, the update shows which labels a client has; 1, what it means by them
    prior_correction: Annotated[float, Ge(0), Le(1)] = 0.0
    sketch_share: Annotated[float, Gt(0), Le(1)] = 0.02  # share of the update's coordinates that is sent
    vectors: Annotated[float, Gt(0)] = 3.0  # p, principal vectors per class; below 1: a share of the class
    svd: SvdMethod = "exact"
    min_samples_per_vector: Annotated[float, Ge(0)] = 0.0  # 50 where signatures leave real sites

    def __post_init__(self) -> None:
        """Refuse a number of vectors that is neither a count nor a share."""
        unknown = [view for view in self.views if view not in get_args(ViewName)]
        if unknown or len(set(self.views)) < len(self.views):
            known = ", ".join(get_args(ViewName))
            raise ValueError(f"views = {list(self.views)}: expected some of {known}, once each")
        if self.vectors > 1 and self.vectors != int(self.vectors):
            raise ValueError(f"vectors = {self.vectors:g}: expected a whole number, or a share below 1")

    def suited(self, problem: Problem, noisy: bool = False) -> "SignatureOptions":
        """With the views that suit the data, unless some are named.

        Rows of a table have neither shape nor texture, and their few columns hardly tell classes apart, but
        to train on them is cheap: there updates are compared, too. Noise for privacy grows with the number
        of views, so tones are then left out.
        """
        table = len(problem.input_shape) == 1 and not problem.integer_codes
        data = tuple(view for view in DATA_VIEWS if view != "tones" or not noisy)
        suit: tuple[ViewName, ...] = (*data, "gradient") if table else data
        return replace(self, views=self.views or suit)

    def without_gradient(self) -> "SignatureOptions":
        """Views of the data alone, where updates of single clients may not be seen."""
        told = tuple(view for view in self.views if view != "gradient")
        if self.views and not told:
            raise InvalidInput(
                "algorithm.signature.views = ['gradient'] compares the updates of single clients, which "
                "privacy.level = 'private' does not let leave: name views of the data, or use level 'strict'"
            )
        return replace(self, views=told)

    def asked(self, warmup_rounds: int) -> "SignatureOptions":
        """What a client is asked for."""
        return replace(self, warmup_rounds=warmup_rounds, views=self.views or DATA_VIEWS)


@message
class Sign:
    """Train alone from this common start, then send a signature."""

    # Newcomers sign in later rounds: their updates are compared with those of the start.
    scheduled: ClassVar[bool] = False
    phase: ClassVar[str] = "signature"
    parts: ClassVar[Mapping[str, str]] = {"start": "warm-up"}

    start: Params = public()
    local: LocalTraining
    signature: SignatureOptions
    mask: int  # selects the coordinates of the sketch: the same for all clients, now and later
    keep: bool  # whether the warmed-up model will be asked for


def _sketch_size(known: Known) -> int:
    asked = known.request.signature
    return sketch_size(asked.sketch_share, known.request.start.layout.size) * ("gradient" in asked.views)


def _is_text(known: Known) -> bool:
    return known.problem.integer_codes and len(known.problem.input_shape) == 1


def _width(known: Known) -> int:
    return looks.pixel_width(known.problem.input_shape, known.request.signature.side, _is_text(known))


def _bands(known: Known) -> int:
    return looks.texture_width(known.problem.input_shape, _is_text(known))


def _steps(known: Known) -> int:
    return looks.tones_width(known.problem.input_shape, _is_text(known))


def _most_rows(view: ViewName) -> Callable[[Known], int]:
    """A class has no more vectors than were asked for, and no more than a sample has numbers."""

    def most(known: Known) -> int:
        wanted, classes = known.request.signature.vectors, known.problem.num_classes
        if view not in known.request.signature.views:
            return 0
        if view in MEAN_VIEWS:
            return classes
        return classes * (min(int(wanted), _width(known)) if wanted >= 1 else _width(known))

    return most


def _rows(view: ViewName, width: Callable[[Known], int]) -> Any:
    """Rows of one view, at most of length 1 or with numbers in [0, 1]: some for every class."""
    most = _most_rows(view)
    return sensitive(
        "subspaces", shape=(view, width), dtype="float32", least=-1.01, most=1.01, most_rows=most
    )


def _classes(view: ViewName) -> Any:
    """The class of each row of a view."""
    most = _most_rows(view)
    return sensitive("subspaces", shape=(view,), dtype="int64", least=0, below="classes", most_rows=most)


def _known(view: ViewName) -> Any:
    """Known error of each row (sin²) from noise that protects privacy; empty: there is none."""
    none = {"most_rows": _most_rows(view), "default_factory": lambda: NO_ERRORS}
    return sensitive("subspaces", shape=(f"{view} errors",), dtype="float32", least=0, most=1, **none)


@message
class Signature:
    """What the server knows about a client; of a view that was not asked for, nothing.

    All rows are bounded, so that noise of a known size can hide single samples.
    """

    pixels: np.ndarray = _rows("pixels", _width)  # U_c, principal vectors of length 1, all classes
    pixels_of: np.ndarray = _classes("pixels")
    pixels_errors: np.ndarray = _known("pixels")
    shape: np.ndarray = _rows("shape", _width)  # the same without brightness and contrast
    shape_of: np.ndarray = _classes("shape")
    shape_errors: np.ndarray = _known("shape")
    texture: np.ndarray = _rows("texture", _bands)  # class means of numbers in [0, 1]; with noise, directions
    texture_of: np.ndarray = _classes("texture")
    texture_errors: np.ndarray = _known("texture")
    tones: np.ndarray = _rows("tones", _steps)  # class means of roots of shares
    tones_of: np.ndarray = _classes("tones")
    tones_errors: np.ndarray = _known("tones")
    # Δ̃, the update at the mask's coordinates
    gradient: np.ndarray = sensitive("update", shape=(_sketch_size,), dtype="float32")
    counts: np.ndarray = sensitive("counts", shape=("classes",), dtype="int64", least=0)  # of each class
    withheld: int = public(least=0)  # number of classes too small to send (`min_samples_per_vector`)


@sgd_task
def sign(request: Sign, client: Client) -> Signature:
    """Warm up without federation, keep the warm model, and describe data and update."""
    asked = request.signature
    warm = before = request.start
    local = replace(request.local, prior_correction=asked.prior_correction)
    with client.work.phase("warm-up"):
        for t in range(asked.warmup_rounds):
            before, warm = warm, sgd(client, warm, local, seed=client.seed / "warm-up" / t)
    if request.keep:
        client.memory["warm"] = warm
    update = (warm - (request.start if asked.warmup_update == "total" else before)).parameters.numpy()
    sketch = update[sketch_mask(request.mask, asked.sketch_share, len(update))]
    told: dict[str, Subspaces] = {view: data_view(view, client, asked) for view in DATA_VIEWS}
    return Signature(
        **fields_of(told),
        gradient=sketch if "gradient" in asked.views else sketch[:0],
        counts=client.train.counts(),
        withheld=len({label for found in told.values() for label in found.withheld}),
    )


def fields_of(told: Mapping[str, Subspaces]) -> dict[str, np.ndarray]:
    """What a signature says in data views, by the names of its fields."""
    fields: dict[str, np.ndarray] = {}
    for view, found in told.items():
        fields[view], fields[f"{view}_of"] = found.vectors_PD, found.classes_P
        fields[f"{view}_errors"] = NO_ERRORS if found.errors_P is None else found.errors_P
    return fields


def seen_in(view: str, held: Examples, asked: SignatureOptions) -> tuple[np.ndarray, np.ndarray]:
    """Samples as a data view sees them: as rows, and in the form that they have (for example as images)."""
    x = held.x
    text = x.ndim == 2 and x.dtype.kind in "iu" and held.scaling.unit == 1.0
    if view in MEAN_VIEWS:
        rows = (looks.texture if view == "texture" else looks.tones)(x, text)
        return rows, rows
    rows = (looks.pixels if view == "pixels" else looks.shape)(x, asked.side, text)
    return rows, looks.reshaped(rows, x.shape[1:], asked.side, text)


def data_view(view: str, client: Client, asked: SignatureOptions) -> Subspaces:
    """One data view: principal vectors of the classes, or mean textures, as exact as privacy allows."""
    train, least = client.train, asked.min_samples_per_vector
    held = train if view in asked.views else train.take(np.empty(0, dtype=np.int64))
    seen, shaped = seen_in(view, held, asked)
    y = held.y
    if client.privacy is not None and view in asked.views and seen.shape[1]:
        told = len([name for name in DATA_VIEWS if name in asked.views])
        noisy = client.privacy.subspaces(shaped, client, view=view, num_views=told, sums=view == "shape")
        if noisy is not None:
            return Subspaces(noisy.vectors_PD, noisy.classes_P, noisy.withheld, noisy.errors_P)
        least = max(least, client.privacy.samples_per_vector)
    if view in MEAN_VIEWS:
        return class_means(seen, y, train.num_classes, least)
    return class_subspaces(
        seen,
        y,
        train.num_classes,
        asked.vectors,
        svd=asked.svd,
        min_samples_per_vector=least,
        generator=(client.seed / "svd").numpy(),
    )


@message
class ShareWarm:
    """Send these parts of the warmed-up model."""

    phase: ClassVar[str] = "warm-up"

    prefixes: tuple[str, ...]


def _warm_part(known: Known) -> Layout:
    return known.network_layout("single", known.request.prefixes)


@message
class Warm:
    """Parts of a warmed-up model, and the number of samples it was trained on."""

    params: Params = sensitive("update", like=_warm_part, difference=False)
    examples: int = sensitive("counts", least=0)


@sgd_task
def share_warm(request: ShareWarm, client: Client) -> Warm:
    """Send the wanted parts of the remembered warm-up model, and forget it."""
    warm = client.memory.pop("warm")
    assert isinstance(warm, Params)
    return Warm(params=warm.select(*request.prefixes), examples=len(client.train))


def sketch_mask(mask: int, share: float, size: int) -> np.ndarray:
    """The coordinates that every sketch keeps, drawn from a shared number, so no indices are sent."""
    kept = sketch_size(share, size)
    return np.sort((Seed(mask) / "mask").numpy().choice(size, size=kept, replace=False))


def sketch_size(share: float, size: int) -> int:
    """The number of coordinates that a sketch keeps."""
    return max(1, round(share * size))


def items_of(signatures: dict[str, Signature]) -> Items:
    """Signatures as the clustering functions take them, in the same order."""
    values = list(signatures.values())
    sketches_NK = np.stack([s.gradient for s in values])
    pixels, *others = ([_told(signature, view) for signature in values] for view in DATA_VIEWS)
    counts_NC = np.stack([s.counts for s in values])
    return Items.of(pixels, counts_NC, sketches_NK if sketches_NK.shape[1] else None, *others)


def _told(signature: Signature, view: str) -> Subspaces:
    rows, classes, errors = (getattr(signature, view + end) for end in ("", "_of", "_errors"))
    return Subspaces(rows, classes, errors_P=errors if len(errors) else None)
