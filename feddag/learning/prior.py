# SPDX-License-Identifier: Apache-2.0
"""A loss corrected for the label shares of a client, so that clients of few labels do not drag a shared head.

Where a client has mostly one label, cross-entropy is soon satisfied by a head that always says that label;
averaged over a round's clients, the head then swings with whoever took part. Corrected, the loss is the
cross-entropy of softmax(z + τ·log π), π the client's own label shares: what it has more of is accounted for,
and only what tells classes apart is learnt ("logit adjustment"). The added term is a constant vector, so it
is put into the head's bias before training and taken out again: backends and losses stay as they are.
"""

from collections.abc import Container
from dataclasses import dataclass

import torch

from feddag.core.errors import InvalidInput
from feddag.core.params import Params
from feddag.core.task import Client

BIAS = "head.bias"


@dataclass(frozen=True)
class LabelPrior:
    """τ·log π of a client; nothing for τ = 0."""

    shift: Params | None

    @classmethod
    def of(cls, client: Client, params: Params, strength: float) -> "LabelPrior":
        """From the client's label counts, one sample added to each class; 0 for the most frequent one."""
        if not strength:
            return cls(None)
        check_head(params, strength)
        counts = torch.from_numpy(client.train.counts()).double() + 1
        shift = strength * (counts / counts.max()).log()
        return cls(Params.of({BIAS: shift.to(params[BIAS].dtype)}))

    def added(self, params: Params) -> Params:
        """A model whose outputs include it."""
        return params if self.shift is None else params.replace(params.select(BIAS) + self.shift)

    def removed(self, trained: Params, before: Params, train: tuple[str, ...]) -> Params:
        """A trained model without it; a bias that did not learn is the one from before, to the bit."""
        if self.shift is None:
            return trained
        learnt = BIAS.startswith(train)
        return trained.replace(trained.select(BIAS) - self.shift if learnt else before.select(BIAS))


def check_head(tensors: Container[str], strength: float) -> None:
    """Refuse a network, given the names of its tensors, whose head cannot hold the prior."""
    if strength and BIAS not in tensors:
        raise InvalidInput("training.prior_correction needs a network whose head is linear and has a bias")
