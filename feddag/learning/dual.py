# SPDX-License-Identifier: Apache-2.0
"""Training a model of two encoders: the primary phase and the secondary phase (§4, Eqs. 16–21)."""

from dataclasses import replace

import torch

from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.losses import Loss, cross_entropy
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.sgd import sgd

PRIMARY, SECONDARY = ("primary.", "head."), ("secondary.",)


@message
class TrainDual:
    """Train the cluster's primary encoder and head, and the visiting encoder of the clusters that learn."""

    model: Params = public()
    visiting: Params | None = public()  # Θ^{2f'}, the learners' combined secondary encoder
    primary: bool  # whether this round has a primary phase
    in_turn: bool  # whether the secondary phase sees what the primary phase has just learned
    diversity: float
    local: LocalTraining
    secondary_epochs: int  # 0: as in the primary phase


@message
class TrainedDual:
    """What both phases changed."""

    update: Params | None = sensitive("update")  # of primary encoder and head
    visiting: Params | None = sensitive("update")
    examples: int = sensitive("counts")


@client_task
def train_dual(request: TrainDual, client: Client) -> TrainedDual:
    """Primary phase on own data (Eq. 17); then the visitor, under primary encoder and head (Eq. 20)."""
    model, visiting = request.model, request.visiting
    trained, update, visited = model, None, None
    if request.primary:
        loss = diverse(request.diversity) if request.diversity else cross_entropy
        trained = sgd(client, model, request.local, network="dual", train=PRIMARY, loss=loss)
        update = (trained - model).select(*PRIMARY)
    if visiting is not None:
        seed = client.seed / "secondary"
        guest = (trained if request.in_turn else model).replace(visiting)
        local = request.local
        if request.secondary_epochs:
            local = replace(local, local_epochs=request.secondary_epochs, local_steps=0)
        guest = sgd(client, guest, local, network="dual", train=SECONDARY, seed=seed)
        visited = guest.select(*SECONDARY) - visiting
    return TrainedDual(update=update, visiting=visited, examples=len(client.train))


def widened(warm: Params, dual: Params) -> Params:
    """A one-encoder model as part of a two-encoder one: its head does not look at the second encoder yet."""
    if "head.weight" not in warm:
        return warm
    weight = torch.zeros_like(dual["head.weight"])
    weight[:, : weight.shape[1] // 2] = warm["head.weight"]
    return Params.of({**warm, "head.weight": weight})


def diverse(weight: float) -> Loss:
    """Cross-entropy + λ_div·E[cos²(φ¹(x), φ²(x))]: pushes both encoders' features apart (appendix)."""

    def loss(model: LoadedNetwork, batch: Batch) -> torch.Tensor:
        primary = model.module.encode("primary", batch.seen)  # type: ignore[operator]
        known = {**batch.known, "primary": primary}
        cosine = torch.nn.functional.cosine_similarity(primary, batch.known["secondary"], dim=1)
        logits = model.module(batch.seen, known)
        return torch.nn.functional.cross_entropy(logits, batch.y) + weight * (cosine**2).mean()

    return loss
