# SPDX-License-Identifier: Apache-2.0
"""Examples: the labelled samples one client holds, as stored; made network inputs when they are used."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

KEPT_INPUTS = 16_000_000  # bytes of float inputs a client may keep: 5,000 grey or 1,300 colour images


@dataclass(frozen=True)
class Scaling:
    """Stored value → network input: `(value / unit − mean) / std`, constants per channel (axis 1)."""

    unit: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Scale a batch of stored samples to float32 network inputs."""
        x = x.to(torch.float32)
        if self.unit != 1.0:
            x = x / self.unit
        if self.mean:
            constants = (1, len(self.mean)) + (1,) * (x.dim() - 2)
            mean, std = (torch.tensor(v).view(constants).to(x) for v in (self.mean, self.std))
            x = (x - mean) / std
        return x


@dataclass(frozen=True)
class Examples:
    """A client's samples: `x` as stored (uint8 pixels, int codes or float features), `y` class indices."""

    x: np.ndarray  # (n, ...) — images are (n, channels, height, width)
    y: np.ndarray  # (n,) int64
    num_classes: int
    scaling: Scaling = field(default_factory=Scaling)
    origin: str = ""  # names the stored samples; clients with the same ones may share scores
    device: torch.device | None = None  # where the tensors are; None: they share the memory of the arrays

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def stored_x(self) -> torch.Tensor:
        """The stored samples as a tensor that shares their memory, or as a copy on the device."""
        return self._tensor(self.x)

    @cached_property
    def labels(self) -> torch.Tensor:
        """The labels in the same way."""
        return self._tensor(self.y)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        shared = torch.from_numpy(np.ascontiguousarray(array))
        return shared if self.device is None else shared.to(self.device)

    def on(self, device: torch.device) -> "Examples":
        """The same samples with tensors on a device: they move when they are first used, and once."""
        return self if device == torch.device("cpu") else replace(self, device=device)

    @cached_property
    def _scaled(self) -> torch.Tensor | None:
        """All network inputs at once, where they are small enough to be kept while a task runs."""
        return self.scaling(self.stored_x) if 4 * self.stored_x.numel() <= KEPT_INPUTS else None

    def inputs(self, index: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        """Network inputs of the chosen samples: kept for a small client, made per batch for a large one."""
        return self.scaling(self.stored_x[index]) if self._scaled is None else self._scaled[index]

    def counts(self) -> np.ndarray:
        """Number of samples of each class, `(num_classes,)`."""
        return np.bincount(self.y, minlength=self.num_classes).astype(np.int64)

    def take(self, index: np.ndarray) -> "Examples":
        """The chosen samples, in the given order."""
        return Examples(self.x[index], self.y[index], self.num_classes, self.scaling)
