# SPDX-License-Identifier: Apache-2.0
"""Which device PyTorch computes on."""

from functools import lru_cache

import torch

from feddag.core.errors import InvalidInput


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
