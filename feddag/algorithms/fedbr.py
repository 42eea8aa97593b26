# SPDX-License-Identifier: Apache-2.0
"""FedBR (Guo et al., 2023): less biased local learning, with pseudo-data that belong to no class.

On a batch (X, Y) and as many pseudo-samples P, with encoder φ, head ψ, projector D, the received encoder φ_g:
    s_g = cos(Dφ(P), Dφ_g(P)),  s_x = cos(Dφ(P), Dφ(X)),  c = −mean log[e^{τ₁s_g} / (e^{τ₁s_g} + e^{τ₂s_x})]
    max:  D is moved to increase c
    min:  φ, ψ are moved to decrease CE(ψφ(X), Y) + μ·c + λ·CE(ψφ(P), uniform)
"""

from collections import Counter
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, softplus

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.losses import Loss
from feddag.learning.losses import cross_entropy as plain_loss
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.remember import hand_out, remember
from feddag.learning.sgd import sgd

LEARNING = ("primary.", "head.")
PROJECTOR = "projector."


@message
class MakePseudo:
    """Send `number` means, each of `samples` random samples."""

    number: int
    samples: int


def _asked(known: Known) -> int:
    return known.request.number


@message
class Pseudo:
    """Mean network inputs, (number, …)."""

    inputs: np.ndarray = sensitive("means", shape=("rows", "input"), dtype="float32", most_rows=_asked)


@message
class Balance:
    """The constants of the loss."""

    mu: float  # weight of the contrast c
    uniform: float  # λ, weight of the uniform target on pseudo-data
    tau_global: float  # τ₁
    tau_own: float  # τ₂


@message
class Train:
    """Train model and projector against each other."""

    params: Params = public()
    projector: Params = public()
    balance: Balance
    local: LocalTraining


@message
class TrainedBoth:
    """What training changed in the model and in the projector."""

    update: Params = sensitive("update", like="params")
    projector_update: Params = sensitive("update", like="projector")
    examples: int = sensitive("counts", least=0)


@message
class State:
    """The global model, the projector, the pseudo-data, and who holds these already."""

    params: Params = public()
    projector: Params = public()
    pseudo: Pseudo
    holders: tuple[str, ...]


@client_task
def make_pseudo(request: MakePseudo, client: Client) -> Pseudo:
    """Means of random own samples; none from a client with a single sample, for that would be raw data."""
    n = len(client.train)
    generator = client.seed.numpy()
    number = request.number if n > 1 else 0
    rows = [generator.choice(n, size=min(request.samples, n), replace=False) for _ in range(number)]
    means = [client.train.inputs(torch.from_numpy(r)).mean(0).numpy() for r in rows]
    return Pseudo(inputs=np.array(means, dtype=np.float32).reshape(number, *client.train.x.shape[1:]))


@client_task
def train(request: Train, client: Client) -> TrainedBoth:
    """Local training with the balancing loss; plainly if there are no pseudo-data."""
    start = Params.from_module(client.network("projected"))
    start = start.replace(request.params).replace(request.projector)
    loss: Loss = plain_loss
    pseudo = client.memory.get("pseudo")
    if isinstance(pseudo, np.ndarray) and len(pseudo):
        received = LoadedNetwork(client.network("projected"), start)
        inputs = torch.from_numpy(pseudo).to(received.device)
        with torch.no_grad():
            anchors = received.module.encode("primary", inputs)  # type: ignore[operator]
        generator = (client.seed / "pseudo").numpy()
        loss = balanced_loss(inputs, anchors, request.balance, request.local.lr, generator)
    trained = sgd(client, start, request.local, network="projected", train=LEARNING, loss=loss)
    return TrainedBoth(
        update=trained.select(*request.params) - request.params,
        projector_update=trained.select(PROJECTOR) - request.projector,
        examples=len(client.train),
    )


def balanced_loss(
    pseudo: Tensor, anchors: Tensor, balance: Balance, lr: float, generator: np.random.Generator
) -> Loss:
    """The min-loss of φ and ψ; before each of its steps the projector takes its own max-step."""

    def loss(model: LoadedNetwork, batch: Batch) -> Tensor:
        number = len(batch)  # cosines are row by row, so there are as many pseudo-samples as samples
        rows = torch.from_numpy(generator.choice(len(pseudo), number, replace=number > len(pseudo)))
        projector: nn.Module = model.module.projector  # type: ignore[assignment]
        encode = model.module.encode
        features, features_x = encode("primary", pseudo[rows]), encode("primary", batch.x)  # type: ignore[operator]
        projector.requires_grad_(True)
        weights = list(projector.parameters())
        c = contrast(projector, features.detach(), anchors[rows], features_x.detach(), balance)
        for weight, slope in zip(weights, torch.autograd.grad(c, weights), strict=True):
            weight.data.add_(slope, alpha=lr)  # uphill
        projector.requires_grad_(False)
        logits, logits_x = model.module.head(features), model.module.head(features_x)  # type: ignore[operator]
        uniform = torch.full_like(logits, 1 / logits.shape[1])
        c = contrast(projector, features, anchors[rows], features_x, balance)
        return (
            cross_entropy(logits_x, batch.y)
            + balance.mu * c
            + balance.uniform * cross_entropy(logits, uniform)
        )

    return loss


def contrast(projector: nn.Module, own: Tensor, anchors: Tensor, samples: Tensor, balance: Balance) -> Tensor:
    """c, written as softplus(τ₂s_x − τ₁s_g)."""
    projected = projector(own)
    similar_global = cosine_similarity(projected, projector(anchors))
    similar_own = cosine_similarity(projected, projector(samples))
    return softplus(balance.tau_own * similar_own - balance.tau_global * similar_global).mean()


@algorithm
class FedBR:
    """FedAvg whose clients train against pseudo-data, to be less biased towards their own classes."""

    local: LocalTraining = LocalTraining()
    mu: Annotated[float, Ge(0)] = 0.5  # μ, weight of the contrast; all defaults of this method: authors' code
    uniform: Annotated[float, Ge(0)] = 1.0  # λ, weight of the uniform target on pseudo-data
    tau_global: Annotated[float, Ge(0)] = 2.0  # τ₁, sharpness of the similarity to the received encoder
    tau_own: Annotated[float, Ge(0)] = 2.0  # τ₂, sharpness of the similarity to the own samples
    pseudo_size: Annotated[int, Ge(1)] = 32  # number of pseudo-samples
    pseudo_samples: Annotated[int, Ge(2)] = 10  # samples behind one pseudo-sample; 1 would be raw data

    tasks = (make_pseudo, remember, train)

    def start(self, server: Server) -> State:
        """Pseudo-data: each the mean of some samples of one random client; then everyone gets all."""
        clients = (server.seed / "pseudo").numpy().choice(server.cohort, size=self.pseudo_size)
        counts = Counter(clients.tolist())
        shared = {n: MakePseudo(number=n, samples=self.pseudo_samples) for n in set(counts.values())}
        replies = server.ask(make_pseudo, {client: shared[n] for client, n in sorted(counts.items())})
        state = State(
            params=server.initial_params(),
            projector=server.initial_params("projected").select(PROJECTOR),
            pseudo=Pseudo(inputs=np.concatenate([reply.inputs for reply in replies.values()])),
            holders=(),
        )
        return self.equip(state, server)

    def equip(self, state: State, server: Server) -> State:
        """Give the pseudo-data to those of the cohort who do not hold them yet."""
        arrays = {"pseudo": state.pseudo.inputs}
        return replace(state, holders=hand_out(arrays, server.cohort, state.holders, server))

    def round(self, state: State, server: Server) -> State:
        """Average model and projector."""
        state = self.equip(state, server)
        balance = Balance(mu=self.mu, uniform=self.uniform, tau_global=self.tau_global, tau_own=self.tau_own)
        request = Train(params=state.params, projector=state.projector, balance=balance, local=self.local)
        for mean in server.ask_mean(train, broadcast(request, server.cohort)).values():
            params = state.params + mean.reply.update
            state = replace(state, params=params, projector=state.projector + mean.reply.projector_update)
        return state

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone, without the projector."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state
