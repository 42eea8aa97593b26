# SPDX-License-Identifier: Apache-2.0
"""What a client does with a model: how it trains it (LocalTraining) and how it uses it (Deployment).

The learning rate may follow a schedule over communication rounds. Clients know nothing of it: the server
puts the rate of the round into every question, in one place for all methods (`requests_at_round`).
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from feddag.core.message import is_message, message, options, public
from feddag.core.params import Params

T = TypeVar("T")


@options
class LocalTraining:
    """How one client trains in one round; a fresh optimiser each time, the last partial batch kept."""

    local_epochs: Annotated[int, Ge(1)] = 10  # passes over the client's data
    local_steps: Annotated[int, Ge(0)] = 0  # if > 0: this many batches instead of whole epochs
    batch_size: Annotated[int, Ge(1)] = 64  # samples per step of SGD
    lr: Annotated[float, Gt(0)] = 0.01  # learning rate
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.5  # of SGD; Adam has its own, 0.9 and 0.999
    weight_decay: Annotated[float, Ge(0)] = 1e-4  # L2 penalty of SGD and Adam; AdamW shrinks the weights
    # τ: how far a loss is corrected for the label shares of the client: 0 not at all, 1 fully (LabelPrior)
    prior_correction: Annotated[float, Ge(0), Le(1)] = 0.0
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"  # Adam and AdamW want a smaller lr, about 0.001
    # over communication rounds: constant, cosine (falls to lr_decay · lr in the last round), or step (is
    # multiplied by lr_decay every lr_step rounds)
    lr_schedule: Literal["constant", "cosine", "step"] = "constant"
    lr_decay: Annotated[float, Gt(0), Le(1)] = 0.1  # of lr_schedule
    lr_step: Annotated[int, Ge(1)] = 10  # rounds between two steps of lr_schedule = "step"
    lr_warmup: Annotated[int, Ge(0)] = 0  # rounds in which the learning rate rises linearly to lr

    def lr_at(self, round_: int, num_rounds: int) -> float:
        """The learning rate of a round, which count from 1; at the start of a run (round 0) it is lr."""
        if round_ == 0:
            return self.lr
        if round_ <= self.lr_warmup:
            return self.lr * round_ / (self.lr_warmup + 1)
        since = round_ - 1 - self.lr_warmup  # rounds since the warm-up
        if self.lr_schedule == "step":
            return self.lr * self.lr_decay ** (since // self.lr_step)
        if self.lr_schedule == "cosine":
            share = min(since / max(num_rounds - 1 - self.lr_warmup, 1), 1.0)  # of the way to the last round
            return self.lr * (self.lr_decay + (1 - self.lr_decay) * (1 + math.cos(math.pi * share)) / 2)
        return self.lr

    def at_round(self, round_: int, num_rounds: int) -> "LocalTraining":
        """This training with the learning rate of a round, from then on constant."""
        if self.lr_schedule == "constant" and not self.lr_warmup:
            return self
        lr = self.lr_at(round_, num_rounds)
        return replace(self, lr=lr, lr_schedule="constant", lr_warmup=0)


def at_round(request: T, round_: int, num_rounds: int) -> T:
    """A request with the learning rate of a round in every LocalTraining that it holds.

    A message class with `scheduled = False` (a ClassVar) says that its training is the same in all rounds.
    A request in which nothing changes is returned as it is.
    """
    if isinstance(request, LocalTraining):
        return request.at_round(round_, num_rounds)  # type: ignore[return-value]
    if isinstance(request, tuple):
        items = tuple(at_round(item, round_, num_rounds) for item in request)
        return request if _same(request, items) else items  # type: ignore[return-value]
    if isinstance(request, dict):
        values = [at_round(value, round_, num_rounds) for value in request.values()]
        return request if _same(request.values(), values) else dict(zip(request, values, strict=True))  # type: ignore[return-value]
    if not is_message(request) or not getattr(request, "scheduled", True):
        return request
    held = {f.name: getattr(request, f.name) for f in fields(request)}  # type: ignore[arg-type]
    new = {name: at_round(value, round_, num_rounds) for name, value in held.items()}
    changed = {name: value for name, value in new.items() if value is not held[name]}
    return replace(request, **changed) if changed else request  # type: ignore[type-var]


def requests_at_round(requests: Mapping[str, T], round_: int, num_rounds: int) -> dict[str, T]:
    """`at_round` for a question: clients that share a request object share the new one too."""
    made: dict[int, T] = {}
    for request in requests.values():
        if id(request) not in made:
            made[id(request)] = at_round(request, round_, num_rounds)
    return {client: made[id(request)] for client, request in requests.items()}


def _same(old: Any, new: Any) -> bool:
    return all(a is b for a, b in zip(old, new, strict=True))


@message
class Deployment:
    """What one client would use now: one evaluation serves every method.

    One model is used as it is. Several models with weights are a mixture of their predicted probabilities;
    several without weights mean: the one with the least loss on the client's own training data. With the
    `marginals` of the models, the weights are those that an expectation step on the client's training data
    makes of them. A client first puts back what it remembers, then adapts, then predicts. With `choose` =
    "validation" it takes the best of the models, and of the first one adapted, on its validation samples.
    With `seen_labels` it lowers the outputs of labels that it has never seen, if these samples agree.
    """

    models: tuple[Params, ...] = public()
    network: str = "single"
    weights: tuple[float, ...] = ()
    remembered: str = ""  # entry of the client's memory: its tensors replace their namesakes in models[0]
    remembered_weights: str = ""  # entry of the client's memory that replaces `weights`
    remembered_entries: tuple[int, ...] = ()  # which of the remembered weights belong to the models; (): all
    marginals: tuple[tuple[float, ...], ...] = ()  # for each model, the share of each label in its cluster
    adapt: LocalTraining | None = None  # training on own data before use
    adapt_prefixes: tuple[str, ...] = ("",)  # which parts adapt
    choose: Literal["training", "validation"] = "training"  # samples on which one of several models is chosen
    seen_labels: bool = False
    shift: tuple[float, ...] = ()  # what is added to the outputs; (): nothing

    @property
    def adapts(self) -> bool:
        """Whether every client of the method trains before use; who resembles nobody may do so, too."""
        return self.adapt is not None and self.choose == "training"

    def recall(self, memory: Mapping[str, Params | np.ndarray]) -> "Deployment":
        """This deployment with what a client remembers put in place."""
        models, weights = self.models, self.weights
        part = memory.get(self.remembered)
        if isinstance(part, Params):
            models = (models[0].replace(part), *models[1:])
        shares = memory.get(self.remembered_weights)
        if isinstance(shares, np.ndarray):
            chosen = shares[list(self.remembered_entries)] if self.remembered_entries else shares
            # All its weight may have been on models that are gone: then the general weights hold.
            weights = tuple(map(float, chosen)) if chosen.sum() > 0 else weights
        return replace(
            self, models=models, weights=weights, remembered="", remembered_weights="", remembered_entries=()
        )
