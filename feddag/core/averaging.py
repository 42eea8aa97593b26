# SPDX-License-Identifier: Apache-2.0
"""The one averaging step: a weighted mean of parameters, and the mean of many replies.

Added to the model that the updates were made from, their mean gives the mean of the clients' values, of
parameters and of buffers. Where updates are added to another model, or scaled, buffers must be told apart:
see `Params.with_buffers` and `server_step`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from feddag.core.errors import InvalidMessage
from feddag.core.params import Params

Reply = TypeVar("Reply")


class HasUpdate(Protocol):
    """A reply with an update and the number of examples behind it."""

    @property
    def update(self) -> Params:
        """Trained minus received parameters."""
        ...

    @property
    def examples(self) -> int:
        """How many samples it was trained on."""
        ...


@dataclass(frozen=True)
class Mean(Generic[Reply]):
    """The mean of several clients' replies: one reply of the same class, `examples` is their sum."""

    reply: Reply
    clients: tuple[str, ...]  # whose replies it is made of


def mean(parts: Sequence[Params], weights: Iterable[float] | None = None) -> Params:
    """Weighted mean, summed in the given order in float64 and rounded once: only the order matters."""
    shares = (
        torch.ones(len(parts), dtype=torch.float64)
        if weights is None
        else torch.tensor([*weights], dtype=torch.float64)
    )
    total = float(shares.sum())
    if not parts or not total > 0 or bool((shares < 0).any()):
        raise InvalidMessage("weights", "at least one positive weight and none below 0", str(shares.tolist()))
    result = torch.zeros(parts[0].layout.size, dtype=torch.float64)
    for part, share in zip(parts, shares.tolist(), strict=True):
        if part.layout != parts[0].layout:
            raise InvalidMessage("update", f"the layout of {parts[0]!r}", f"the layout of {part!r}")
        result.add_(part.vector.double(), alpha=share / total)
    return parts[0].like(result.float())


def mean_reply(replies: Mapping[str, Any], uniform: bool = False) -> Mean[Any] | None:
    """The mean of replies that hold nothing but parameters and `examples`; None when no example is behind it.

    Clients count by their examples, or equally when `uniform`.
    """
    ordered = [replies[client] for client in sorted(replies)]
    weights = [1 if uniform else reply.examples for reply in ordered]
    if not sum(weights):
        return None
    fields: dict[str, Any] = {"examples": sum(reply.examples for reply in ordered)}
    for name in (f.name for f in dataclasses.fields(ordered[0]) if f.name != "examples"):
        parts = [getattr(reply, name) for reply in ordered]
        if isinstance(parts[0], Params):
            fields[name] = mean(parts, weights)
        elif parts[0] is None:
            fields[name] = None
        else:
            raise TypeError(f"{type(ordered[0]).__name__}.{name} cannot be averaged: it is not Params")
    return Mean(type(ordered[0])(**fields), tuple(sorted(replies)))


def step(params: Params, replies: Mapping[str, HasUpdate]) -> Params:
    """FedAvg's step: w + Σ (nᵢ / Σn) · Δᵢ over the clients that answered; unchanged when nobody did."""
    found = mean_reply({client: _Update(r.update, r.examples) for client, r in replies.items()})
    return params if found is None else params + found.reply.update


def step_each(models: Sequence[Params], grouped: Mapping[int, Mapping[str, HasUpdate]]) -> tuple[Params, ...]:
    """`step` for every cluster's model; a cluster nobody answered for keeps its model."""
    return tuple(step(model, grouped.get(k, {})) for k, model in enumerate(models))


def add_mean(params: Params, means: Mapping[int, Mean[Any]], group: int = 0) -> Params:
    """FedAvg's step with the mean that `Server.ask_mean` gave for a group; unchanged without one."""
    return params + means[group].reply.update if group in means else params


def add_means(models: Sequence[Params], means: Mapping[int, Mean[Any]]) -> tuple[Params, ...]:
    """`add_mean` for every cluster's model."""
    return tuple(add_mean(model, means, k) for k, model in enumerate(models))


def server_step(params: Params, update: Params, move: Params) -> Params:
    """A server's own step: parameters go along `move`, buffers by the clients' mean `update`."""
    return (params + move).with_buffers(params + update)


@dataclass(frozen=True)
class _Update:
    update: Params
    examples: int
