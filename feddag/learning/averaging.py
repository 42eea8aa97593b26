# SPDX-License-Identifier: Apache-2.0
"""The one server step: parameters plus the weighted mean of the participants' updates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch

from feddag.core.errors import InvalidMessage
from feddag.core.params import Params


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


def step(params: Params, replies: Mapping[str, HasUpdate]) -> Params:
    """FedAvg's step: w + Σ (nᵢ / Σn) · Δᵢ over the clients that answered; unchanged when nobody did."""
    if not sum(reply.examples for reply in replies.values()):
        return params
    ordered = [replies[client] for client in sorted(replies)]
    return params + mean([r.update for r in ordered], [r.examples for r in ordered])


def step_each(models: Sequence[Params], grouped: Mapping[int, Mapping[str, HasUpdate]]) -> tuple[Params, ...]:
    """`step` for every cluster's model; a cluster nobody answered for keeps its own."""
    return tuple(step(model, grouped.get(k, {})) for k, model in enumerate(models))


def mean(parts: Sequence[Params], weights: Iterable[float] | None = None) -> Params:
    """Weighted mean, summed in the given order in float64 and rounded once, so that order alone decides."""
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
