# SPDX-License-Identifier: Apache-2.0
"""The one local-training loop: parameters in, trained parameters out.

trained = sgd(client, params, local)                                          # FedAvg
trained = sgd(client, params, local, proximal=(mu, params))                   # FedProx
trained = sgd(client, params, local, network="dual", train=("primary.", "head."))
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.backends import native_sgd, select_backend
from feddag.learning.dpsgd import check_plain, noisy_gradients
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
    correction: Params | None = None,
    seed: Seed | None = None,
    epoch_losses: list[float] | None = None,
) -> Params:
    """Train the parts of a model whose names start with `train` on the client's own data.

    The rest is frozen: it runs in evaluation mode, and a frozen encoder's features are computed once, not
    once per step. `proximal` = (μ, centre) adds μ/2·‖w − centre‖² to the loss; `correction` is added to
    every gradient. `local.optimiser` is that of torch.optim, fresh in each call. `epoch_losses`, if given,
    receives the mean loss of every epoch. `client.backend` says who computes: batches are the same, each
    backend draws dropout from its own generator. `local.lr` is the rate of this round, whatever the schedule.
    `local.prior_correction` is explained in feddag.learning.prior. A client whose privacy asks for it trains
    with noisy gradients (feddag.learning.dpsgd).
    """
    if len(client.train) == 0:
        return params
    seed = seed or client.seed
    if client.privacy is not None and client.privacy.trains_noisily:
        check_plain(
            another_loss=loss is not cross_entropy,
            sample_weights=sample_weights is not None,
            correction=correction is not None,
            prior_correction=local.prior_correction,
            losses=epoch_losses is not None,
        )
        return _noisy_sgd(client, params, local, client.network(network), train, proximal, seed)
    prior = LabelPrior.of(client, params, local.prior_correction)
    start = prior.added(params)
    if proximal is not None:
        proximal = (proximal[0], prior.added(proximal[1]))
    module = client.network(network)
    selected = select_backend(
        client.backend,
        module,
        client.train.x.shape[1:],
        loss=loss,
        train=train,
        optimiser=local.optimiser,
        corrected=correction is not None,
    )
    if selected.plan is not None:
        steps = list(batches(len(client.train), local, seed))
        trained, values = native_sgd(
            selected.plan, module, start, client.train, steps, local, train, sample_weights, proximal, seed
        )
        client.work.samples += sum(len(rows) for _, rows in steps)
        if epoch_losses is not None:
            epoch_losses.extend(_epoch_means(steps, values))
        return prior.removed(trained, params, train)
    with (seed / "training").ambient():
        model = LoadedNetwork(module, start, train)
        examples = model.placed(client.train)
        known = model.frozen_features(client.train)
        every_sample = not local.local_steps or local.local_steps * local.batch_size >= len(client.train)
        prepared = model.prepared(client.train) if every_sample else None
        make_step = MomentumStep if local.optimiser == "sgd" else AdamStep
        step = make_step(model, local, proximal, correction)
        if sample_weights is not None:
            sample_weights = sample_weights.to(model.device)
        done: list[tuple[int, Tensor]] = []
        losses: list[Tensor] = []  # on the device: reading a number in every step would stop the queue
        for epoch, rows in [(e, rows.to(model.device)) for e, rows in batches(len(examples), local, seed)]:
            if len(rows) == 1 and needs_pairs(model):
                continue
            weights = None if sample_weights is None else sample_weights[rows]
            batch = Batch(examples, rows, {name: f[rows] for name, f in known.items()}, weights, prepared)
            value = loss(model, batch)
            step(model.gradient(value))
            client.work.samples += len(rows)
            if epoch_losses is not None:
                done.append((epoch, rows))
                losses.append(value.detach())
    if epoch_losses is not None:
        epoch_losses.extend(_epoch_means(done, torch.stack(losses).tolist() if losses else []))
    return prior.removed(model.params(), params, train)


def _noisy_sgd(
    client: Client,
    params: Params,
    local: LocalTraining,
    module: torch.nn.Module,
    train: tuple[str, ...],
    proximal: tuple[float, Params] | None,
    seed: Seed,
) -> Params:
    """The same loop over gradients that hide single samples; weight decay and proximal term need no noise."""
    with (seed / "training").ambient():
        model = LoadedNetwork(module, params, train)
        step = (MomentumStep if local.optimiser == "sgd" else AdamStep)(model, local, proximal)
        known = model.frozen_features(client.train)
        part = "/".join(seed.path[len(client.seed.path) :])
        for gradient in noisy_gradients(model, client, local, known, part):
            step(gradient)
    return model.params()


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


class OptimiserStep(ABC):
    """One step on a loaded network's flat vector: weight decay, proximal term and correction, then `move`."""

    def __init__(
        self,
        model: LoadedNetwork,
        local: LocalTraining,
        proximal: tuple[float, Params] | None = None,
        correction: Params | None = None,
    ) -> None:
        self.model, self.local = model, local
        self.mu = proximal[0] if proximal else 0.0
        self.centre = model.working(proximal[1]) if proximal else None
        self.correction = model.working(correction) if correction is not None else None
        self.penalty = local.weight_decay if local.optimiser != "adamw" else 0.0

    def __call__(self, gradient: list[Tensor]) -> None:
        """Apply one gradient, given as one vector for each of the model's spans."""
        for i, (span, g) in enumerate(zip(self.model.spans, gradient, strict=True)):
            weights = self.model.vector[span]
            if self.penalty:
                g.add_(weights, alpha=self.penalty)
            if self.centre is not None:
                g.add_(weights - self.centre[span], alpha=self.mu)
            if self.correction is not None:
                g.add_(self.correction[span])
            self.move(i, weights, g)

    @abstractmethod
    def move(self, i: int, weights: Tensor, g: Tensor) -> None:
        """Change the weights of span i in place; g may be kept and changed."""


class MomentumStep(OptimiserStep):
    """torch.optim.SGD with momentum."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.momenta: list[Tensor] = []

    def move(self, i: int, weights: Tensor, g: Tensor) -> None:
        """v ← m·v + g, w ← w − lr·v; the first v is g."""
        if self.local.momentum:
            if len(self.momenta) == i:
                self.momenta.append(g)
            else:
                g = self.momenta[i].mul_(self.local.momentum).add_(g)
        weights.add_(g, alpha=-self.local.lr)


class AdamStep(OptimiserStep):
    """torch.optim.Adam (weight decay as a penalty) and AdamW (weight decay shrinks the weights directly)."""

    BETAS, EPS = (0.9, 0.999), 1e-8  # torch's defaults

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        sizes = [span.stop - span.start for span in self.model.spans]
        self.moments = [tuple(torch.zeros(size, device=self.model.device) for _ in "mv") for size in sizes]
        self.steps = [0] * len(sizes)

    def move(self, i: int, weights: Tensor, g: Tensor) -> None:
        """w ← w − lr·m̂ / (√v̂ + ε), with bias-corrected means m̂ of the gradient and v̂ of its square."""
        if self.local.optimiser == "adamw":
            weights.mul_(1 - self.local.lr * self.local.weight_decay)
        (first, second), (beta1, beta2) = self.moments[i], self.BETAS
        self.steps[i] += 1
        first.lerp_(g, 1 - beta1)
        second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        scale1, scale2 = (1 - beta ** self.steps[i] for beta in self.BETAS)
        weights.addcdiv_(first, second.sqrt().div_(scale2**0.5).add_(self.EPS), value=-self.local.lr / scale1)


def count_steps(client: Client, local: LocalTraining, network: str = "single") -> int:
    """How many steps `sgd` takes when it trains everything."""
    pairs = any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in client.network(network).modules()
    )
    n = len(client.train)
    return sum(1 for _, rows in batches(n, local, client.seed) if len(rows) > pairs) if n else 0


def needs_pairs(model: LoadedNetwork) -> bool:
    """Whether a batch of one sample is an error: batch normalisation has no variance then."""
    return any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training for m in model.module.modules()
    )
