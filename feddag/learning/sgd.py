# SPDX-License-Identifier: Apache-2.0
"""The one local-training loop: parameters in, trained parameters out.

trained = sgd(client, params, local)                                          # FedAvg
trained = sgd(client, params, local, proximal=(mu, params))                   # FedProx
trained = sgd(client, params, local, network="dual", train=("primary.", "head."))
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from feddag import native
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.backends import native_sgd, select_backend
from feddag.learning.dpsgd import check_plain, noisy_gradients
from feddag.learning.losses import Loss, cross_entropy
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.optimisers import AdamStep, MomentumStep
from feddag.learning.prior import LabelPrior
from feddag.learning.stacked import StackedNetwork, stacked_batches

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
    training = Training(
        client, module, start, local, train, loss, sample_weights, proximal, correction, seed, epoch_losses
    )
    if selected.plan is not None:
        trained = _run_natively(training, selected.plan)
    else:
        trained = run((training,))[0] if client.together is None else client.together(training)
    return prior.removed(trained, params, train)


@dataclass(frozen=True)
class Training:
    """One call of `sgd`; what PyTorch computes may run alone or with those of other clients."""

    client: Client
    module: torch.nn.Module
    start: Params
    local: LocalTraining
    train: tuple[str, ...]
    loss: Loss
    sample_weights: Tensor | None
    proximal: tuple[float, Params] | None
    correction: Params | None
    seed: Seed
    epoch_losses: list[float] | None

    def steps(self, pairs: bool) -> list[tuple[int, Tensor]]:
        """(epoch, row numbers) of each batch; with `pairs` a batch of one sample is left out."""
        found = batches(len(self.client.train), self.local, self.seed)
        return [(epoch, rows) for epoch, rows in found if len(rows) > pairs]


def _run_natively(training: Training, plan: native.NetworkPlan) -> Params:
    """The same training by the kernels, which take all batches at once."""
    client, local, train = training.client, training.local, training.train
    steps = list(batches(len(client.train), local, training.seed))
    trained, values = native_sgd(
        plan,
        training.module,
        training.start,
        client.train,
        steps,
        local,
        train,
        training.sample_weights,
        training.proximal,
        training.seed,
    )
    client.work.samples += sum(len(rows) for _, rows in steps)
    if training.epoch_losses is not None:
        training.epoch_losses.extend(_epoch_means(steps, values))
    return trained


def run(trainings: Sequence[Training]) -> list[Params]:
    """The loop: the trained parameters of one client, or of several at once, who differ in samples only."""
    first = trainings[0]
    with (first.seed / "training").ambient():
        model = load(trainings)
        pairs = needs_pairs(model)
        steps = [training.steps(pairs) for training in trainings]
        make_step = MomentumStep if first.local.optimiser == "sgd" else AdamStep
        centres = [t.proximal[1] for t in trainings if t.proximal]
        corrections = [t.correction for t in trainings if t.correction is not None]
        proximal = (first.proximal[0], centres) if first.proximal else None
        step = make_step(model, first.local, proximal, corrections or None)
        losses: list[Tensor] = []  # on the device: reading a number in every step would stop the queue
        for batch in feed(model, trainings, steps):
            with model.autocast():
                value = first.loss(cast(LoadedNetwork, model), batch)  # a stack stands for one network
            step(model.gradient(value))
            if first.epoch_losses is not None:
                losses.append(value.detach())
    for training, own in zip(trainings, steps, strict=True):
        training.client.work.samples += sum(len(rows) for _, rows in own)
    if first.epoch_losses is not None:
        first.epoch_losses.extend(_epoch_means(steps[0], torch.stack(losses).tolist() if losses else []))
    trained = model.params()
    return trained if isinstance(trained, list) else [trained]


def load(trainings: Sequence[Training]) -> LoadedNetwork | StackedNetwork:
    """The network with the parameters of one client, or of several, those with most samples first."""
    first = trainings[0]
    if len(trainings) == 1:
        return LoadedNetwork(first.module, first.start, first.train)
    starts, seeds = [t.start for t in trainings], [t.seed / "training" for t in trainings]
    return StackedNetwork(first.module, starts, first.train, seeds)


def feed(
    model: LoadedNetwork | StackedNetwork,
    trainings: Sequence[Training],
    steps: Sequence[Sequence[tuple[int, Tensor]]],
) -> Iterator[Batch]:
    """The batches of every step; what does not change is computed and moved to the device first."""
    if isinstance(model, StackedNetwork):
        own = [training.client.train for training in trainings]
        known = [LoadedNetwork(t.module, t.start, t.train).frozen_features(t.client.train) for t in trainings]
        given = [t.sample_weights for t in trainings if t.sample_weights is not None]
        rows_of = [[rows for _, rows in of_client] for of_client in steps]
        yield from stacked_batches(model, own, rows_of, known, given or None)
        return
    (training,), train, local = trainings, trainings[0].client.train, trainings[0].local
    examples = model.placed(train)
    known_here = model.frozen_features(train)
    every_sample = not local.local_steps or local.local_steps * local.batch_size >= len(train)
    prepared = model.prepared(train) if every_sample else None
    weights = None if training.sample_weights is None else training.sample_weights.to(model.device)
    for rows in [rows.to(model.device) for _, rows in steps[0]]:
        own_weights = None if weights is None else weights[rows]
        yield Batch(examples, rows, {name: f[rows] for name, f in known_here.items()}, own_weights, prepared)


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
        centre = (proximal[0], [proximal[1]]) if proximal else None
        step = (MomentumStep if local.optimiser == "sgd" else AdamStep)(model, local, centre)
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


def count_steps(client: Client, local: LocalTraining, network: str = "single") -> int:
    """How many steps `sgd` takes when it trains everything."""
    pairs = any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in client.network(network).modules()
    )
    n = len(client.train)
    return sum(1 for _, rows in batches(n, local, client.seed) if len(rows) > pairs) if n else 0


def needs_pairs(model: LoadedNetwork | StackedNetwork) -> bool:
    """Whether a batch of one sample is an error: batch normalisation has no variance then."""
    return any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training for m in model.module.modules()
    )
