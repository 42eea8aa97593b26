# SPDX-License-Identifier: Apache-2.0
"""The steps of torch.optim on the flat vector of a network, or on the stacked vectors of several clients."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.learning.modules import LoadedNetwork
from feddag.learning.stacked import StackedNetwork


class OptimiserStep(ABC):
    """One step on the flat vector of a network: weight decay, proximal term and correction, then `move`.

    On a stack of clients the vectors are rows. Clients that have finished are its last rows, and stay.
    """

    def __init__(
        self,
        model: LoadedNetwork | StackedNetwork,
        local: LocalTraining,
        proximal: tuple[float, Sequence[Params]] | None = None,
        correction: Sequence[Params] | None = None,
    ) -> None:
        self.model, self.local = model, local
        self.mu = proximal[0] if proximal else 0.0
        self.centre = model.working(*proximal[1]) if proximal else None
        self.correction = model.working(*correction) if correction is not None else None
        self.penalty = local.weight_decay if local.optimiser != "adamw" else 0.0

    def __call__(self, gradient: list[Tensor]) -> None:
        """Apply one gradient, given as one vector for each of the model's spans."""
        for i, (span, g) in enumerate(zip(self.model.spans, gradient, strict=True)):
            n = len(g)  # of a stack: how many clients have not finished yet
            weights = self.model.vector[..., span][:n]
            if self.penalty:
                g.add_(weights, alpha=self.penalty)
            if self.centre is not None:
                g.add_(weights - self.centre[..., span][:n], alpha=self.mu)
            if self.correction is not None:
                g.add_(self.correction[..., span][:n])
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
                g = self.momenta[i][: len(g)].mul_(self.local.momentum).add_(g)
        weights.add_(g, alpha=-self.local.lr)


class AdamStep(OptimiserStep):
    """torch.optim.Adam (weight decay as a penalty) and AdamW (weight decay shrinks the weights directly)."""

    BETAS, EPS = (0.9, 0.999), 1e-8  # torch's defaults

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        vector, spans = self.model.vector, self.model.spans
        self.moments = [tuple(torch.zeros_like(vector[..., span]) for _ in "mv") for span in spans]
        self.steps = [0] * len(spans)

    def move(self, i: int, weights: Tensor, g: Tensor) -> None:
        """w ← w − lr·m̂ / (√v̂ + ε), with bias-corrected means m̂ of the gradient and v̂ of its square."""
        if self.local.optimiser == "adamw":
            weights.mul_(1 - self.local.lr * self.local.weight_decay)
        (first, second), (beta1, beta2) = (moment[: len(g)] for moment in self.moments[i]), self.BETAS
        self.steps[i] += 1
        first.lerp_(g, 1 - beta1)
        second.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        scale1, scale2 = (1 - beta ** self.steps[i] for beta in self.BETAS)
        weights.addcdiv_(first, second.sqrt().div_(scale2**0.5).add_(self.EPS), value=-self.local.lr / scale1)
