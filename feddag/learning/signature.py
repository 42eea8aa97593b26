# SPDX-License-Identifier: Apache-2.0
"""The signature of a client: what it learns alone, how its classes look, how many samples it has (§3)."""

from dataclasses import replace

import numpy as np

from feddag.clustering.subspaces import Subspaces, class_subspaces
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.learning.sgd import sgd


@message
class Sign:
    """Train alone for a while from this common start, then tell who you are."""

    start: Params = public()
    local: LocalTraining
    warmup_rounds: int
    update: str  # which update is sketched: "total" over the warm-up, or of its "last" round
    mask: int  # names the coordinates of the sketch: the same for all, now and later
    sketch_share: float
    vectors: float  # principal vectors a class: a count, or below 1 a share of the class
    svd: str
    min_samples_per_vector: float
    keep: bool  # whether the warmed-up model will be asked for


@message
class Signature:
    """A client as the server knows it."""

    sketch: np.ndarray = sensitive("update")  # Δ̃, the update at the mask's coordinates
    vectors: np.ndarray = sensitive("subspaces")  # U_c, rows, all classes
    classes: np.ndarray = sensitive("subspaces")  # the class of each row
    counts: np.ndarray = sensitive("counts")  # samples of each class
    withheld: int = public()  # classes too small to be told (`min_samples_per_vector`)

    @property
    def examples(self) -> int:
        """Number of samples behind it."""
        return int(self.counts.sum())

    @property
    def subspaces(self) -> Subspaces:
        """Its principal vectors as the clustering functions take them."""
        return Subspaces(self.vectors, self.classes)


@client_task
def sign(request: Sign, client: Client) -> Signature:
    """Warm up without federation, keep the warm model, and describe data and update."""
    warm = before = request.start
    local = replace(request.local, prior_correction=0.0)  # which labels it has is what an update should tell
    for t in range(request.warmup_rounds):
        before, warm = warm, sgd(client, warm, local, seed=client.seed / "warm-up" / t)
    if request.keep:
        client.memory["warm"] = warm
    update = warm - (request.start if request.update == "total" else before)
    subspaces = class_subspaces(
        client.train.x,
        client.train.y,
        client.train.num_classes,
        request.vectors if request.vectors < 1 else int(request.vectors),
        method=request.svd,  # type: ignore[arg-type]
        min_samples_per_vector=request.min_samples_per_vector,
        generator=(client.seed / "svd").numpy(),
    )
    return Signature(
        sketch=update.vector.numpy()[sketch_mask(request.mask, request.sketch_share, update.layout.size)],
        vectors=subspaces.vectors_PD,
        classes=subspaces.classes_P,
        counts=client.train.counts(),
        withheld=len(subspaces.withheld),
    )


@message
class ShareWarm:
    """Send these parts of what you warmed up."""

    prefixes: tuple[str, ...]


@message
class Warm:
    """Parts of a warmed-up model."""

    params: Params = sensitive("update")


@client_task
def share_warm(request: ShareWarm, client: Client) -> Warm:
    """Send the remembered warm-up model, or its encoder alone; it is not needed any longer."""
    warm = client.memory.pop("warm")
    assert isinstance(warm, Params)
    return Warm(params=warm.select(*request.prefixes))


def sketch_mask(mask: int, share: float, size: int) -> np.ndarray:
    """The coordinates every sketch keeps, drawn from a number that all share, so no indices are sent."""
    kept = max(1, round(share * size))
    return np.sort((Seed(mask) / "mask").numpy().choice(size, size=kept, replace=False))


def columns(signatures: dict[str, Signature]) -> tuple[list[Subspaces], np.ndarray, np.ndarray]:
    """Subspaces, class counts and sketches of all clients, in the order of the signatures."""
    values = list(signatures.values())
    return (
        [s.subspaces for s in values],
        np.stack([s.counts for s in values]),
        np.stack([s.sketch for s in values]),
    )
