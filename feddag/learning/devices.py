# SPDX-License-Identifier: Apache-2.0
"""Where and how PyTorch computes."""

import shutil
from functools import lru_cache
from typing import Literal

import torch

from feddag.core.errors import InvalidInput
from feddag.core.host import num_cores
from feddag.core.message import options

AT_ONCE = 16  # clients that train at once on a GPU, where the settings do not say
WORKERS = 2  # processes that share a GPU: one prepares while the other's work is computed


@options
class Computing:
    """The device, and what differs from float32, operation by operation, one client after another."""

    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    batched_clients: int = 0  # that train at once; 0: AT_ONCE on a GPU with CUDA, else 1

    def place(self, module: torch.nn.Module, only_host: bool = False) -> torch.nn.Module:
        """Tell a network where and how it computes."""
        device = find_device("cpu" if only_host and self.device == "auto" else self.device)
        if self.compile:
            check_compiler(device)
        module.device = device  # type: ignore[assignment]
        module.precision = getattr(torch, self.precision)
        module.compiles = self.compile  # type: ignore[assignment]
        return module

    @property
    def num_workers(self) -> int:
        """How many processes share the work, where the settings do not say."""
        return num_cores() if find_device(self.device).type == "cpu" else WORKERS

    @property
    def num_at_once(self) -> int:
        """How many clients train at once."""
        if self.compile or self.batched_clients:
            return max(1, self.batched_clients)
        return AT_ONCE if find_device(self.device).type == "cuda" else 1


@lru_cache
def find_device(name: str) -> torch.device:
    """The device that `engine.device` names; `auto` is the first GPU with CUDA, else the processor."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda", 0) if gpus else torch.device("cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and int(number or 0) >= gpus:
        found = f"PyTorch {torch.__version__} finds {gpus or 'no'} GPU{'s' if gpus > 1 else ''} with CUDA"
        raise InvalidInput(f"engine.device = '{name}': {found}; expected 'cpu' or a GPU that is there")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InvalidInput("engine.device = 'mps': PyTorch finds no Apple GPU; expected 'cpu' or 'auto'")
    return torch.device(name)


@lru_cache
def check_compiler(device: torch.device) -> None:
    """Refuse `engine.compile` where torch.compile cannot work."""
    if device.type == "mps":
        raise InvalidInput("engine.compile = true: torch.compile does not support mps; expected false")
    if device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise InvalidInput(
            "engine.compile = true: no C++ compiler (g++ or clang++) is installed; expected false"
        )
