# SPDX-License-Identifier: Apache-2.0
"""FedMix (Yoon et al., 2021): mixup with means of other clients' samples, in first-order approximation.

With u = (1−λ)x and a mean (x̄, ȳ) of other samples:
    L = (1−λ)·ℓ(f(u), y) + λ·ℓ(f(u), ȳ) + λ(1−λ)·⟨∇ᵤℓ(f(u), y), x̄⟩
"""

import math
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor
from torch.nn.functional import cross_entropy

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.losses import Loss
from feddag.learning.modules import Batch, LoadedNetwork, device_of
from feddag.learning.remember import hand_out, remember
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained


@message
class Share:
    """Send means, each of `group_size` samples."""

    group_size: int


@message
class Means:
    """Mean network inputs and mean one-hot labels of groups of samples, (groups, …)."""

    inputs: np.ndarray = sensitive("means", shape=("groups", "input"), dtype="float32")
    labels: np.ndarray = sensitive("means", shape=("groups", "classes"), dtype="float32", least=0, most=1.01)


@message
class Train:
    """Train this model on mixed samples."""

    params: Params = public()
    mix: float  # λ
    local: LocalTraining


@message
class State:
    """The global model, the pool of means, and who holds the pool already."""

    params: Params = public()
    pool: Means
    holders: tuple[str, ...]


@client_task
def share_means(request: Share, client: Client) -> Means:
    """Means over a random division of own samples into groups, none of a single sample."""
    n = len(client.train)
    number = min(math.ceil(n / request.group_size), n // 2)
    groups = np.array_split(client.seed.numpy().permutation(n), max(1, number))[:number]
    labels_NC = torch.eye(client.train.num_classes)[client.train.labels]
    inputs = client.train.inputs()
    nothing = torch.empty((0, *inputs.shape[1:])), torch.empty((0, client.train.num_classes))
    means = [(inputs[group].mean(0), labels_NC[group].mean(0)) for group in groups]
    inputs, labels = (torch.stack(part) for part in zip(*means, strict=True)) if means else nothing
    return Means(inputs=inputs.numpy(), labels=labels.numpy())


@client_task
def train(request: Train, client: Client) -> Trained:
    """Train on own samples mixed with means from the pool; plainly if there is no pool."""
    inputs, labels = (client.memory.get(f"pool {part}", np.empty(0)) for part in ("inputs", "labels"))
    if len(inputs):
        device = device_of(client.network("single"))
        pool = [torch.from_numpy(np.asarray(part)).to(device) for part in (inputs, labels)]
        loss = mixed_loss(pool[0], pool[1], request.mix, (client.seed / "mix").numpy())
        trained = sgd(client, request.params, request.local, loss=loss)
    else:
        trained = sgd(client, request.params, request.local)
    return Trained(update=trained - request.params, examples=len(client.train))


def mixed_loss(inputs: Tensor, labels: Tensor, mix: float, generator: np.random.Generator) -> Loss:
    """The loss L with one mean drawn for every sample."""

    def loss(model: LoadedNetwork, batch: Batch) -> Tensor:
        draws = torch.from_numpy(generator.integers(len(inputs), size=len(batch)))
        u = ((1 - mix) * batch.x).requires_grad_()
        logits = model.module(u)
        own = cross_entropy(logits, batch.y)
        (slope,) = torch.autograd.grad(own, u, create_graph=True, allow_unused=True)
        if slope is None:
            raise InvalidInput("fedmix mixes inputs, but this network has no gradient with respect to them")
        # `own` is a mean over the batch, so `slope` carries 1/B already: the inner products are summed.
        others = cross_entropy(logits, labels[draws])
        return (1 - mix) * own + mix * others + mix * (1 - mix) * (slope * inputs[draws]).sum()

    return loss


@algorithm
class FedMix:
    """FedAvg on samples mixed with averaged samples of other clients."""

    local: LocalTraining = LocalTraining()
    mix: Annotated[float, Ge(0), Lt(1)] = 0.1  # λ; a public re-implementation on CIFAR
    group_size: Annotated[int, Ge(2)] = 10  # samples behind one mean; the same source. 1 would be raw data
    pool_size: Annotated[int, Ge(1)] = 256  # largest number of means that every client gets; ours

    tasks = (share_means, remember, train)

    def start(self, server: Server) -> State:
        """Collect means from all, give everyone the same random part of them."""
        if self.group_size < 5:
            server.note(warning=f"means of {self.group_size} samples reveal much of each: better 5 or more")
        replies = server.ask(share_means, broadcast(Share(group_size=self.group_size), server.cohort))
        inputs = np.concatenate([reply.inputs for reply in replies.values()])
        labels = np.concatenate([reply.labels for reply in replies.values()])
        kept = np.sort((server.seed / "pool").numpy().permutation(len(inputs))[: self.pool_size])
        pool = Means(inputs=inputs[kept], labels=labels[kept])
        state = State(params=server.initial_params(), pool=pool, holders=())
        return self.equip(state, server)

    def equip(self, state: State, server: Server) -> State:
        """Give the pool to those of the cohort who do not hold it yet."""
        arrays = {"pool inputs": state.pool.inputs, "pool labels": state.pool.labels}
        return replace(state, holders=hand_out(arrays, server.cohort, state.holders, server))

    def round(self, state: State, server: Server) -> State:
        """FedAvg's round."""
        state = self.equip(state, server)
        request = Train(params=state.params, mix=self.mix, local=self.local)
        means = server.ask_mean(train, broadcast(request, server.cohort))
        return replace(state, params=add_mean(state.params, means))

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone; inputs are not scaled when it is used."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state
