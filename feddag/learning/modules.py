# SPDX-License-Identifier: Apache-2.0
"""A network loaded with parameters: its tensors are views of one flat working vector.

The vector is on the device of its network (`device_of`); `Params` are always in the memory of the host.
The working vector holds images' kernels in the order (out, height, width, in), which torch calls
channels last: its convolutions run about 1.5 times faster in that order on CPUs. `Params` keep torch's
usual order; `working` and `params` translate.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast

import torch
from torch import Tensor, nn

from feddag.core.errors import InvalidMessage
from feddag.core.examples import Examples
from feddag.core.params import Layout, Params, state_tensors

CHUNK = 512  # samples in one forward pass without gradients
KEPT_PREPARED = 64_000_000  # bytes of prepared samples that one client's training may keep
NOTHING_KNOWN: Mapping[str, Tensor] = {}
HOST = torch.device("cpu")


@dataclass(frozen=True)
class Batch:
    """Some samples of a client: stored samples become network inputs only when somebody asks."""

    examples: Examples
    rows: Tensor
    known: Mapping[str, Tensor]  # encoder name → its features for these rows, computed beforehand
    weights: Tensor | None = None  # one weight a sample
    prepared: Tensor | None = None  # what encoders look at instead of the samples, for all samples

    @cached_property
    def x(self) -> Tensor:
        """Network inputs."""
        x = self.examples.inputs(self.rows)
        return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x

    @cached_property
    def seen(self) -> Tensor:
        """What encoders look at: prepared samples, or the network inputs."""
        return self.x if self.prepared is None else self.prepared.index_select(0, self.rows)

    @cached_property
    def y(self) -> Tensor:
        """Labels."""
        return self.examples.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)


class LoadedNetwork:
    """A network holding given parameters; only the parts named in `train` learn, the rest is in eval mode."""

    def __init__(self, module: nn.Module, params: Params, train: tuple[str, ...] = ()) -> None:
        check_layout(module, params)
        tensors = state_tensors(module)
        self.module, self.device = module, device_of(module)
        self.forward = compiled(module) if getattr(module, "compiles", False) else module
        self.layout = layout = params.layout
        for buffer in module.buffers():  # counters, which are no part of the vector
            buffer.data = buffer.data.to(self.device)
        self.vector = self.working(params)
        self.trainable: list[nn.Parameter] = []
        self.spans: list[slice] = []  # where the trainable parameters lie in the vector, neighbours merged
        parameters = dict(module.named_parameters())
        for i, tensor in enumerate(tensors.values()):
            part = self.vector[layout.offsets[i] : layout.offsets[i + 1]]
            tensor.data = channels_last(part, layout.shapes[i])
        for name, parameter in parameters.items():
            learns = bool(train) and name.startswith(train)
            parameter.requires_grad_(learns)
            if learns:
                self.trainable.append(parameter)
                i = layout.index[name]
                start, stop = layout.offsets[i], layout.offsets[i + 1]
                if self.spans and self.spans[-1].stop == start:
                    start = self.spans.pop().start
                self.spans.append(slice(start, stop))
        for child in module.children():
            child.train(any(p.requires_grad for p in child.parameters()))

    def __call__(self, batch: Batch) -> Tensor:
        """Logits of a batch."""
        # Features that are known already stand for their encoder; with all known the samples are not read.
        unknown = len(batch.known) < len(self.encoders)
        return self.forward(batch.seen if unknown else torch.empty(0), batch.known)

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the forward pass, to be entered around it: bfloat16 where the engine says so."""
        precision = getattr(self.module, "precision", torch.float32)
        if precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, precision)

    def placed(self, examples: Examples) -> Examples:
        """Samples with tensors on the network's device."""
        return examples.on(self.device)

    @property
    def encoders(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return cast(tuple[str, ...], self.module.encoder_names)

    def features(self, encoder: str, examples: Examples) -> Tensor:
        """Features of all samples under one encoder, without gradients."""
        examples = self.placed(examples)
        with torch.no_grad():
            parts = [self.module.encode(encoder, examples.inputs(rows)) for rows in chunks(len(examples))]  # type: ignore[operator]
        return torch.cat(parts)

    def frozen_features(self, examples: Examples) -> dict[str, Tensor]:
        """Features of the encoders that do not learn, computed once."""
        frozen = [n for n in self.encoders if not self.module.get_submodule(n).training]
        return {name: self.features(name, examples) for name in frozen}

    def prepared(self, examples: Examples) -> Tensor | None:
        """What a learning encoder makes of all samples before its weights play a part, if it can be kept."""
        examples = self.placed(examples)
        learning = [e for e in map(self.module.get_submodule, self.encoders) if e.training]
        prepare = getattr(learning[0], "prepare_once", None) if learning else None
        if prepare is None or prepare(examples.inputs(slice(1))).nbytes * len(examples) > KEPT_PREPARED:
            return None
        return cast(Tensor, prepare(examples.inputs()))

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """The loss's gradient, one vector for each of `spans`."""
        parts = torch.autograd.grad(loss, self.trainable, allow_unused=True, materialize_grads=True)
        flat = torch.cat([(g.permute(0, 2, 3, 1) if g.dim() == 4 else g).reshape(-1) for g in parts])
        return list(flat.split([s.stop - s.start for s in self.spans]))

    def working(self, params: Params) -> Tensor:
        """A copy of parameters in the order of the working vector, on the device."""
        order = working_order(self.layout)
        return (params.vector.clone() if order is None else params.vector[order]).to(self.device)

    def params(self, working: Tensor | None = None) -> Params:
        """The parameters as they are now, or those of another vector in working order."""
        working = (self.vector if working is None else working).cpu()
        order = working_order(self.layout)
        if order is None:
            return Params(working.clone(), self.layout)
        vector = torch.empty_like(working)
        vector[order] = working
        return Params(vector, self.layout)


def device_of(module: nn.Module) -> torch.device:
    """Where a network computes: the engine says so, by an attribute of the module."""
    return getattr(module, "device", HOST)


@lru_cache(maxsize=8)
def compiled(module: nn.Module) -> nn.Module:
    """The same network as torch.compile makes it; it compiles when it first computes."""
    return cast(nn.Module, torch.compile(module))


def channels_last(part: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A stretch of the working vector as a tensor of the given shape."""
    if len(shape) != 4:
        return part.view(shape)
    out, channels, height, width = shape
    return part.view(out, height, width, channels).permute(0, 3, 1, 2)


@lru_cache(maxsize=64)
def working_order(layout: Layout) -> Tensor | None:
    """For every place of the working vector its place in `Params`; None where both are the same."""
    if not any(len(shape) == 4 for shape in layout.shapes):
        return None
    places = Params(torch.arange(layout.size), layout)
    parts = [places[name] for name in layout.names]
    return torch.cat([(p.permute(0, 2, 3, 1) if p.dim() == 4 else p).reshape(-1) for p in parts])


def check_layout(module: nn.Module, params: Params) -> None:
    """Refuse parameters of another network."""
    layout = Layout.of_module(module)
    if layout != params.layout:
        raise InvalidMessage("params", f"{layout.size:,} floats of this network", f"{params!r}")


def chunks(n: int) -> Sequence[slice]:
    """Slices of at most CHUNK that cover n samples; the same for everyone, so results are too."""
    return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]


def plain_layers(module: nn.Module) -> nn.Module:
    """The same network with torch's own layers in place of faster forms of them, on the same parameters."""
    plain = copy(module)
    plain._modules = {
        name: nn.Sequential(*child) if getattr(child, "equals_its_layers", False) else child  # type: ignore[misc]
        for name, child in module._modules.items()
    }
    for name, child in plain._modules.items():
        if child is not None and module._modules[name] is not None:
            child.train(module.get_submodule(name).training)
    return plain
