"""A second memory that only pretends: it finds tensors that were not moved, on a machine without a GPU.

`torch.device("cpu", 1)` computes on the processor, but `.to` copies. While the mode is on, every tensor that
was made or moved there is remembered by its storage, and an operation that mixes it with host memory is an
error, as it would be on a GPU. Numbers and the indices of an indexing operation may be in host memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("cpu", 1)
BETWEEN = {"aten::_to_copy", "aten::copy_", "aten::detach", "aten::alias"}
WITH_HOST_INDICES = {"aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_"}


class Misplaced(RuntimeError):
    """An operation mixed two memories."""


class PretendedDevice(TorchDispatchMode):
    """Remembers what is on the device, and refuses operations that mix."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, Any] = {}  # the objects are kept, so that no address is used twice
        self.operations = 0

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.storages

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        read = args[:1] if func.name() in WITH_HOST_INDICES or name in WITH_HOST_INDICES else (args, kwargs)
        inputs = [t for t in tree_leaves(read) if isinstance(t, torch.Tensor)]
        placed = {self.holds(t) for t in inputs if t.dim() and t.numel()}
        if len(placed) == 2 and name not in BETWEEN:
            raise Misplaced(f"{func}: some tensors are on the device, some are not")
        here = kwargs.get("device") == DEVICE or any(self.holds(t) for t in inputs)
        out = func(*args, **kwargs)
        if here:
            self.operations += 1
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    self.storages[storage._cdata] = storage
        return out


@contextmanager
def pretended_device(monkeypatch: Any) -> Iterator[PretendedDevice]:
    """While it lasts, `engine.device = "auto"` is the pretended device."""
    mode = PretendedDevice()
    to_numpy, from_numpy, move = torch.Tensor.numpy, torch.from_numpy, torch.Tensor.to

    def cpu(tensor: torch.Tensor) -> torch.Tensor:
        return from_numpy(to_numpy(tensor.detach()).copy()) if mode.holds(tensor) else tensor

    def numpy(tensor: torch.Tensor, **options: Any) -> Any:
        if mode.holds(tensor):
            raise Misplaced("numpy() of a tensor on the device")
        return to_numpy(tensor, **options)

    def to(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        like = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if like is None:
            return move(tensor, *args, **options)
        moved = move(tensor, like.dtype)
        return move(moved, DEVICE) if mode.holds(like) and not mode.holds(moved) else moved

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    monkeypatch.setattr("feddag.learning.devices.find_device", lambda name: DEVICE)
    with mode:
        yield mode
