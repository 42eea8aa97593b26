# SPDX-License-Identifier: Apache-2.0
"""The signature of a client: what it learns alone, how its classes look, how many samples it has (§3)."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.items import Items
from feddag.clustering.options import SvdMethod
from feddag.clustering.subspaces import Subspaces, class_subspaces
from feddag.core.contract import Known
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, options, public, sensitive
from feddag.core.params import Layout, Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, sgd_task
from feddag.learning.sgd import sgd

NO_ERRORS = np.zeros(0, dtype=np.float32)


@options
class SignatureOptions:
    """What a client computes and sends as its signature."""

    # t_g, rounds of training alone before the signature; a request says 0 where no update is needed.
    warmup_rounds: Annotated[int, Ge(1)] = 2
    warmup_update: Literal["total", "last"] = "total"  # the update of all warm-up rounds, or of the last one
    sketch_share: Annotated[float, Gt(0), Le(1)] = 0.02  # share of the update's coordinates that is sent
    vectors: Annotated[float, Gt(0)] = 3.0  # p, principal vectors per class; below 1: a share of the class
    svd: SvdMethod = "exact"
    min_samples_per_vector: Annotated[float, Ge(0)] = 0.0  # 50 where signatures leave real sites

    def __post_init__(self) -> None:
        """Refuse a number of vectors that is neither a count nor a share."""
        if self.vectors > 1 and self.vectors != int(self.vectors):
            raise ValueError(f"vectors = {self.vectors:g}: expected a whole number, or a share below 1")


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
    return sketch_size(known.request.signature.sketch_share, known.request.start.layout.size)


def _most_rows(known: Known) -> int:
    """A class has no more principal vectors than were asked for, and no more than a sample has numbers."""
    wanted, features = known.request.signature.vectors, prod(known.problem.input_shape)
    return known.problem.num_classes * (min(int(wanted), features) if wanted >= 1 else features)


@message
class Signature:
    """What the server knows about a client."""

    # Δ̃, the update at the mask's coordinates
    sketch: np.ndarray = sensitive("update", shape=(_sketch_size,), dtype="float32")
    # U_c, rows of length 1, all classes
    vectors: np.ndarray = sensitive(
        "subspaces", shape=("rows", "features"), dtype="float32", least=-1.01, most=1.01, most_rows=_most_rows
    )
    # the class of each row
    classes: np.ndarray = sensitive("subspaces", shape=("rows",), dtype="int64", least=0, below="classes")
    # known error of each row (sin²) from noise that protects privacy; empty: there is none
    errors: np.ndarray = sensitive(
        "subspaces",
        shape=("error rows",),
        dtype="float32",
        least=0,
        most=1,
        most_rows=_most_rows,
        default_factory=lambda: NO_ERRORS,
    )
    counts: np.ndarray = sensitive("counts", shape=("classes",), dtype="int64", least=0)  # of each class
    withheld: int = public(least=0)  # number of classes too small to send (`min_samples_per_vector`)


@sgd_task
def sign(request: Sign, client: Client) -> Signature:
    """Warm up without federation, keep the warm model, and describe data and update."""
    asked = request.signature
    warm = before = request.start
    local = replace(request.local, prior_correction=0.0)  # the update should show which labels a client has
    with client.work.phase("warm-up"):
        for t in range(asked.warmup_rounds):
            before, warm = warm, sgd(client, warm, local, seed=client.seed / "warm-up" / t)
    if request.keep:
        client.memory["warm"] = warm
    update = (warm - (request.start if asked.warmup_update == "total" else before)).parameters.numpy()
    subspaces = own_subspaces(client, asked)
    return Signature(
        sketch=update[sketch_mask(request.mask, asked.sketch_share, len(update))],
        vectors=subspaces.vectors_PD,
        classes=subspaces.classes_P,
        errors=NO_ERRORS if subspaces.errors_P is None else subspaces.errors_P,
        counts=client.train.counts(),
        withheld=len(subspaces.withheld),
    )


def own_subspaces(client: Client, asked: SignatureOptions) -> Subspaces:
    """The principal vectors of the client's classes, as exact as its privacy allows."""
    least = asked.min_samples_per_vector
    if client.privacy is not None:
        noisy = client.privacy.subspaces(client.train.x, client)
        if noisy is not None:
            return Subspaces(noisy.vectors_PD, noisy.classes_P, noisy.withheld, noisy.errors_P)
        least = max(least, client.privacy.samples_per_vector)
    return class_subspaces(
        client.train.x,
        client.train.y,
        client.train.num_classes,
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
    return Items.of(
        [Subspaces(s.vectors, s.classes, errors_P=s.errors if len(s.errors) else None) for s in values],
        np.stack([s.counts for s in values]),
        np.stack([s.sketch for s in values]),
    )
