# SPDX-License-Identifier: Apache-2.0
"""Networks for the tests, shaped like the package's own: encoders side by side and a linear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TwoEncoders(nn.Module):
    """head(cat([primary(x), secondary(x)]))."""

    def __init__(
        self, primary: nn.Module, secondary: nn.Module | None, features: int, classes: int = 10
    ) -> None:
        super().__init__()
        self.primary = primary
        if secondary is not None:
            self.secondary = secondary
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.primary(x)]
        if hasattr(self, "secondary"):
            parts.append(self.secondary(x))
        return self.head(torch.cat(parts, 1))


def lenet_encoder() -> nn.Sequential:
    return nn.Sequential(
        *[nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
        *[nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()],
    )


def small_encoder(dropout: float = 0.0) -> nn.Sequential:
    """For 2 channels of 9 x 8 pixels; 5 features."""
    return nn.Sequential(
        *[nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout)],
        *[nn.Flatten(), nn.Linear(48, 7), nn.ReLU(), nn.Dropout(dropout), nn.Linear(7, 5), nn.ReLU()],
    )


def initialised(module: nn.Module, seed: int) -> nn.Module:
    """Weights of the size torch would draw, from an explicit generator."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        bound = 1 / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.3
        parameter.data.uniform_(-bound, bound, generator=generator)
    return module


def flat(module: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
