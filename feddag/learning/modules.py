# SPDX-License-Identifier: Apache-2.0
"""A network loaded with parameters: its tensors are views of one flat working vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor, nn

from feddag.core.errors import InvalidMessage
from feddag.core.examples import Examples
from feddag.core.params import Layout, Params, state_tensors

CHUNK = 512  # samples in one forward pass without gradients
NOTHING_KNOWN: Mapping[str, Tensor] = {}


@dataclass(frozen=True)
class Batch:
    """Some samples of a client: stored samples become network inputs only when somebody asks."""

    examples: Examples
    rows: Tensor
    known: Mapping[str, Tensor]  # encoder name → its features for these rows, computed beforehand
    weights: Tensor | None = None  # one weight a sample

    @cached_property
    def x(self) -> Tensor:
        """Network inputs."""
        return self.examples.inputs(self.rows)

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
        self.module = module
        self.layout = layout = params.layout
        self.vector = params.vector.clone()
        self.trainable: list[nn.Parameter] = []
        self.spans: list[slice] = []  # where the trainable parameters lie in the vector, neighbours merged
        parameters = dict(module.named_parameters())
        view = Params(self.vector, layout)
        for name, tensor in tensors.items():
            tensor.data = view[name]
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
        return self.module(batch.x if len(batch.known) < len(self.encoders) else torch.empty(0), batch.known)

    @property
    def encoders(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return cast(tuple[str, ...], self.module.encoder_names)

    def features(self, encoder: str, examples: Examples) -> Tensor:
        """Features of all samples under one encoder, without gradients."""
        with torch.no_grad():
            parts = [self.module.encode(encoder, examples.inputs(rows)) for rows in chunks(len(examples))]  # type: ignore[operator]
        return torch.cat(parts)

    def frozen_features(self, examples: Examples) -> dict[str, Tensor]:
        """Features of the encoders that do not learn, computed once."""
        frozen = [n for n in self.encoders if not self.module.get_submodule(n).training]
        return {name: self.features(name, examples) for name in frozen}

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """The loss's gradient, one vector for each of `spans`."""
        parts = torch.autograd.grad(loss, self.trainable, allow_unused=True, materialize_grads=True)
        flat = torch.cat([g.reshape(-1) for g in parts])
        return list(flat.split([s.stop - s.start for s in self.spans]))

    def params(self) -> Params:
        """The parameters as they are now."""
        return Params(self.vector.clone(), self.layout)


def check_layout(module: nn.Module, params: Params) -> None:
    """Refuse parameters of another network."""
    tensors = state_tensors(module)
    layout = Layout(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))
    if layout != params.layout:
        raise InvalidMessage("params", f"{layout.size:,} floats of this network", f"{params!r}")


def chunks(n: int) -> Sequence[slice]:
    """Slices of at most CHUNK that cover n samples; the same for everyone, so results are too."""
    return [slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
