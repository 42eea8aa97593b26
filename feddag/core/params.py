# SPDX-License-Identifier: Apache-2.0
"""Params: named tensors over one flat vector. A dict to read, a vector to compute with.

>>> p = Params.of({"head.weight": torch.ones(2, 3), "head.bias": torch.zeros(2)})
>>> (p * 2.0 - p)["head.weight"].sum().item()
6.0
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import torch
from torch import Tensor, nn

from feddag.core.errors import InvalidMessage

_MAX_ELEMENTS = 2**40  # of one tensor
_MAX_SHAPE_TEXT = 200  # characters
_BUFFER = " buffer"  # stands behind the shape of a buffer in the text of a layout


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors that lie one after another in a vector; shared and hashable.

    `buffers` names those that are no parameters: nothing is learnt in them, they are statistics of samples
    (the running mean and variance of batch normalisation). The mean of several models' statistics makes
    sense; their sum, or the change of one model's statistics added to another's, does not.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    buffers: frozenset[str] = frozenset()

    @classmethod
    def of_module(cls, module: nn.Module) -> "Layout":
        """The layout of a module's parameters and floating-point buffers."""
        tensors = state_tensors(module)
        parameters = dict(module.named_parameters())
        shapes = tuple(tuple(t.shape) for t in tensors.values())
        return cls(tuple(tensors), shapes, frozenset(name for name in tensors if name not in parameters))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each tensor starts; the last entry is the total size."""
        offsets = [0]
        for shape in self.shapes:
            offsets.append(offsets[-1] + prod(shape))
        return tuple(offsets)

    @property
    def size(self) -> int:
        """Number of floats in the vector."""
        return self.offsets[-1]

    @cached_property
    def index(self) -> dict[str, int]:
        """Name → position."""
        return {name: i for i, name in enumerate(self.names)}

    def spans(self, prefixes: tuple[str, ...]) -> list[slice]:
        """Slices of the vector that cover the tensors whose names start with a prefix; neighbours merged."""
        return self._spans(lambda name: name.startswith(prefixes))

    @cached_property
    def parameter_spans(self) -> list[slice]:
        """Slices of the vector that cover everything but the buffers."""
        return self._spans(lambda name: name not in self.buffers)

    @cached_property
    def buffer_spans(self) -> list[slice]:
        """Slices of the vector that cover the buffers."""
        return self._spans(lambda name: name in self.buffers)

    def _spans(self, wanted: Callable[[str], bool]) -> list[slice]:
        spans: list[slice] = []
        for name, start, stop in zip(self.names, self.offsets[:-1], self.offsets[1:], strict=True):
            if wanted(name):
                if spans and spans[-1].stop == start:
                    start = spans.pop().start
                spans.append(slice(start, stop))
        return spans

    def describe(self) -> str:
        """The layout as one line of text, read back by `parse`."""
        return ";".join(
            f"{name}:{'x'.join(map(str, shape))}{_BUFFER if name in self.buffers else ''}"
            for name, shape in zip(self.names, self.shapes, strict=True)
        )

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Read the text that `describe` wrote; raises ValueError for any other text."""
        return _parse_layout(text)


# Few networks make many messages: each layout is parsed once, and all models of one network share it.
@lru_cache(maxsize=32)
def _parse_layout(text: str) -> Layout:
    entries = [entry.rsplit(":", 1) for entry in text.split(";")] if text else []
    shapes = tuple(_parse_shape(shape.removesuffix(_BUFFER)) for _, shape in entries)
    names = tuple(name for name, _ in entries)
    if len(set(names)) < len(names):
        raise ValueError("a tensor's name appears twice")
    return Layout(names, shapes, frozenset(name for name, shape in entries if shape.endswith(_BUFFER)))


def _parse_shape(text: str) -> tuple[int, ...]:
    """`2x3` → (2, 3); ValueError for anything but plain digits and for sizes that no tensor has."""
    sides = text.split("x") if text else []
    if len(text) > _MAX_SHAPE_TEXT or not all(side.isascii() and side.isdigit() for side in sides):
        raise ValueError(f"'{text[:40]}' is not a shape such as 2x3")
    shape = tuple(map(int, sides))
    if prod(max(side, 1) for side in shape) > _MAX_ELEMENTS:  # torch multiplies empty sides too
        raise ValueError(f"a tensor of shape {text} is too large")
    return shape


class Params(Mapping[str, Tensor]):
    """Model parameters (and floating-point buffers): one contiguous float32 vector that is never mutated."""

    __slots__ = ("layout", "vector")

    def __init__(self, vector: Tensor, layout: Layout) -> None:
        if vector.shape != (layout.size,):
            raise InvalidMessage("vector", f"{layout.size} floats", f"shape {tuple(vector.shape)}")
        self.vector = vector
        self.layout = layout

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], buffers: Collection[str] = ()) -> "Params":
        """Copy named tensors into one vector; those whose names are among `buffers` are buffers."""
        shapes = tuple(tuple(t.shape) for t in tensors.values())
        layout = Layout(tuple(tensors), shapes, frozenset(name for name in tensors if name in buffers))
        parts = [t.detach().reshape(-1).to(torch.float32) for t in tensors.values()]
        return cls(torch.cat(parts) if parts else torch.empty(0), layout)

    @classmethod
    def from_module(cls, module: nn.Module) -> "Params":
        """Copy a module's parameters and floating-point buffers (both are averaged)."""
        return cls.of(state_tensors(module), Layout.of_module(module).buffers)

    # -- reading: a mapping name → tensor view -----------------------------------------------------------

    def __getitem__(self, name: str) -> Tensor:
        i = self.layout.index[name]
        offsets = self.layout.offsets
        return self.vector[offsets[i] : offsets[i + 1]].view(self.layout.shapes[i])

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    def __len__(self) -> int:
        return len(self.layout.names)

    def __repr__(self) -> str:
        return f"Params({len(self)} tensors, {self.layout.size:,} floats, {self.digest()[:8]})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Params)
            and self.layout == other.layout
            and torch.equal(self.vector, other.vector)
        )

    def __hash__(self) -> int:
        return hash(self.digest())

    def select(self, *prefixes: str) -> "Params":
        """The tensors whose names start with one of the prefixes."""
        spans = self.layout.spans(prefixes)
        chosen = [i for i, name in enumerate(self.layout.names) if name.startswith(prefixes)]
        names = tuple(self.layout.names[i] for i in chosen)
        shapes = tuple(self.layout.shapes[i] for i in chosen)
        layout = Layout(names, shapes, self.layout.buffers.intersection(names))
        return Params(torch.cat([self.vector[s] for s in spans]) if spans else torch.empty(0), layout)

    def replace(self, part: "Params") -> "Params":
        """These parameters with the tensors of `part` in place of their namesakes."""
        vector = self.vector.clone()
        result = Params(vector, self.layout)
        for name in part:
            if name not in self.layout.index or result[name].shape != part[name].shape:
                got = f"shape {tuple(part[name].shape)}"
                raise InvalidMessage(name, "a tensor of the same name and shape to replace", got)
            result[name].copy_(part[name])
        return result

    def rename(self, old: str, new: str) -> "Params":
        """The same tensors with the prefix `old` of their names turned into `new`."""
        renamed = {n: new + n[len(old) :] if n.startswith(old) else n for n in self.layout.names}
        buffers = frozenset(renamed[n] for n in self.layout.buffers)
        return Params(self.vector, Layout(tuple(renamed.values()), self.layout.shapes, buffers))

    def with_buffers(self, other: "Params") -> "Params":
        """These parameters with the buffers of another model of the same layout."""
        values = self._other(other)
        if not self.layout.buffers:
            return self
        vector = self.vector.clone()
        for span in self.layout.buffer_spans:
            vector[span] = values[span]
        return self.like(vector)

    @property
    def parameters(self) -> Tensor:
        """The vector without buffers: what geometry (norms, angles) is about."""
        if not self.layout.buffers:
            return self.vector
        return torch.cat([self.vector[span] for span in self.layout.parameter_spans] or [torch.empty(0)])

    # -- computing: a vector -----------------------------------------------------------------------------

    def like(self, vector: Tensor) -> "Params":
        """Another vector under the same names."""
        return Params(vector, self.layout)

    def _other(self, other: "Params") -> Tensor:
        if other.layout != self.layout:
            raise InvalidMessage("params", f"the layout of {self!r}", f"the layout of {other!r}")
        return other.vector

    def __add__(self, other: "Params") -> "Params":
        return self.like(self.vector + self._other(other))

    def __sub__(self, other: "Params") -> "Params":
        return self.like(self.vector - self._other(other))

    def __mul__(self, factor: float) -> "Params":
        return self.like(self.vector * factor)

    __rmul__ = __mul__

    def norm(self) -> float:
        """Euclidean norm of the parameters (buffers do not count), in float64."""
        return float(torch.linalg.vector_norm(self.parameters.double()))

    def digest(self) -> str:
        """SHA-256 of names, shapes and bits: equal digests mean equal models."""
        sha = hashlib.sha256(self.layout.describe().encode())
        sha.update(self.vector.contiguous().numpy().tobytes())
        return sha.hexdigest()


def state_tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and floating-point buffers by name, parameters first (the canonical order)."""
    tensors: dict[str, Tensor] = dict(module.named_parameters())
    tensors |= {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return tensors
