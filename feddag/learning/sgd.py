# SPDX-License-Identifier: Apache-2.0
"""The one local-training loop: parameters in, trained parameters out.

trained = sgd(client, params, local)                                          # FedAvg
trained = sgd(client, params, local, proximal=(mu, params))                   # FedProx
trained = sgd(client, params, local, network="dual", train=("primary.", "head."))
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.backends import native_sgd, select_backend
from feddag.learning.losses import Loss, cross_entropy
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.prior import LabelPrior

EVERYTHING = ("",)  # the prefix of every name


def sgd(
    client: Client,
    params: Params,
    local: LocalTraining,
    *,
    network: str = "single",
    train: tuple[str, ...] = EVERYTHING,
    loss: Loss = cross_entropy,
    sample_weights: Tensor | None = None,
    proximal: tuple[float, Params] | None = None,
    seed: Seed | None = None,
    epoch_losses: list[float] | None = None,
) -> Params:
    """Train the parts of a model whose names start with `train` on the client's own data.

    The rest is frozen: it runs in evaluation mode, and a frozen encoder's features are computed once, not
    once per step. `proximal` = (μ, centre) adds μ/2·‖w − centre‖² to the loss. SGD is torch.optim.SGD's,
    fresh in each call. `epoch_losses`, if given, receives the mean loss of every epoch. `client.backend`
    says who computes: batches are the same, each backend draws dropout from its own generator.
    `local.prior_correction` is explained in feddag.learning.prior.
    """
    if len(client.train) == 0:
        return params
    prior = LabelPrior.of(client, params, local.prior_correction)
    start = prior.added(params)
    if proximal is not None:
        proximal = (proximal[0], prior.added(proximal[1]))
    seed = seed or client.seed
    module = client.network(network)
    selected = select_backend(client.backend, module, client.train.x.shape[1:], loss=loss, train=train)
    if selected.plan is not None:
        steps = list(batches(len(client.train), local, seed))
        trained, values = native_sgd(
            selected.plan, module, start, client.train, steps, local, train, sample_weights, proximal, seed
        )
        if epoch_losses is not None:
            epoch_losses.extend(_epoch_means(steps, values))
        return prior.removed(trained, params, train)
    with (seed / "training").ambient():
        model = LoadedNetwork(module, start, train)
        known = model.frozen_features(client.train)
        every_sample = not local.local_steps or local.local_steps * local.batch_size >= len(client.train)
        prepared = model.prepared(client.train) if every_sample else None
        step = MomentumStep(model, local, proximal)
        done: list[tuple[int, Tensor]] = []
        values = []
        for epoch, rows in batches(len(client.train), local, seed):
            if len(rows) == 1 and needs_pairs(model):
                continue
            weights = None if sample_weights is None else sample_weights[rows]
            batch = Batch(client.train, rows, {name: f[rows] for name, f in known.items()}, weights, prepared)
            value = loss(model, batch)
            step(model.gradient(value))
            if epoch_losses is not None:
                done.append((epoch, rows))
                values.append(value.item())
    if epoch_losses is not None:
        epoch_losses.extend(_epoch_means(done, values))
    return prior.removed(model.params(), params, train)


def _epoch_means(steps: list[tuple[int, Tensor]], values: list[float]) -> list[float]:
    """Mean loss of every epoch, from the losses of its batches."""
    by_epoch: dict[int, list[float]] = {}
    for (epoch, _), value in zip(steps, values, strict=True):
        by_epoch.setdefault(epoch, []).append(value)
    return [sum(losses) / len(losses) for losses in by_epoch.values()]


def batches(n: int, local: LocalTraining, seed: Seed) -> Iterator[tuple[int, Tensor]]:
    """(epoch, row numbers) of each batch: a new order every epoch, the last partial batch kept."""
    generator = (seed / "batches").numpy()
    step, epoch = 0, 0
    while step < local.local_steps if local.local_steps else epoch < local.local_epochs:
        for rows in torch.from_numpy(generator.permutation(n)).split(local.batch_size):
            if local.local_steps and step == local.local_steps:
                return
            yield epoch, rows
            step += 1
        epoch += 1


class MomentumStep:
    """SGD with momentum, weight decay and a proximal term on the flat vector of a loaded network."""

    def __init__(
        self, model: LoadedNetwork, local: LocalTraining, proximal: tuple[float, Params] | None = None
    ) -> None:
        self.model, self.local = model, local
        self.mu = proximal[0] if proximal else 0.0
        self.centre = model.working(proximal[1]) if proximal else None
        self.momenta: list[Tensor] = []

    def __call__(self, gradient: list[Tensor]) -> None:
        """Apply one gradient, given as one vector for each of the model's spans."""
        for i, (span, g) in enumerate(zip(self.model.spans, gradient, strict=True)):
            weights = self.model.vector[span]
            if self.local.weight_decay:
                g.add_(weights, alpha=self.local.weight_decay)
            if self.centre is not None:
                g.add_(weights - self.centre[span], alpha=self.mu)
            if self.local.momentum:
                if len(self.momenta) == i:
                    self.momenta.append(g)
                else:
                    g = self.momenta[i].mul_(self.local.momentum).add_(g)
            weights.add_(g, alpha=-self.local.lr)


def needs_pairs(model: LoadedNetwork) -> bool:
    """Whether a batch of one sample is an error: batch normalisation has no variance then."""
    return any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training for m in model.module.modules()
    )
