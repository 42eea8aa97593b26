# SPDX-License-Identifier: Apache-2.0
"""Describes an nn.Module for the native trainer, or names the layer that the kernels cannot compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn


class Unsupported(Exception):
    """The kernels cannot compute this network; the message names the layer."""


@dataclass(frozen=True)
class Stage:
    """A convolution or linear layer and the ReLU, pooling and dropout that follow it."""

    name: str
    convolution: bool
    outputs: int
    weight: int  # index of its first value in the flat vector
    bias: int  # the same for the bias; -1: no bias
    kernel: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    pool: tuple[int, int] = (1, 1)
    relu: bool = False
    dropout: float = 0.0


@dataclass(frozen=True)
class Branch:
    """One encoder; the names of its parameters begin with `name`."""

    name: str
    stages: tuple[Stage, ...]
    features: int


@dataclass(frozen=True)
class NetworkPlan:
    """A network for the kernels: one or two encoders in parallel, and a linear head on their features."""

    input_shape: tuple[int, int, int]
    branches: tuple[Branch, ...]
    head: Stage
    places: tuple[tuple[str, int, int], ...]  # of each parameter: name, start and end in the flat vector

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.places[-1][2]

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.head.outputs

    def branch(self, name: str) -> int:
        """The index of the encoder with this name."""
        names = [branch.name for branch in self.branches]
        if name not in names:
            raise ValueError(
                f"the network has no encoder {name!r}: expected one of {', '.join(map(repr, names))}"
            )
        return names.index(name)

    def trained(self, prefixes: tuple[str, ...]) -> tuple[tuple[bool, ...], bool]:
        """For each encoder and for the head: is it trained? Raises `Unsupported` for a part of an encoder."""

        def selected(stages: tuple[Stage, ...], what: str) -> bool:
            starts = {place for stage in stages for place in (stage.weight, stage.bias) if place >= 0}
            chosen = [name.startswith(prefixes) for name, start, _ in self.places if start in starts]
            if any(chosen) and not all(chosen):
                raise Unsupported(f"training only a part of {what} is not in the native vocabulary")
            return any(chosen)

        branches = tuple(selected(branch.stages, f"encoder {branch.name!r}") for branch in self.branches)
        return branches, selected((self.head,), "the head")


def describe(module: nn.Module, input_shape: tuple[int, ...]) -> NetworkPlan:
    """The plan of a network with `primary`, perhaps `secondary`, and `head`, or of an nn.Sequential.

    An nn.Sequential must end in nn.Linear, its head.
    """
    if any(True for _ in module.buffers()):
        names = sorted({name.rsplit(".", 1)[0] for name, _ in module.named_buffers()})
        owners = [f"{name} ({type(module.get_submodule(name)).__name__})" for name in names]
        raise Unsupported(f"{', '.join(owners)}: layers with buffers are not in the native vocabulary")
    places, total = [], 0
    for name, parameter in module.named_parameters():
        places.append((name, total, total + parameter.numel()))
        total += parameter.numel()
    starts = {name: start for name, start, _ in places}
    shape = _as_image(input_shape)
    head = getattr(module, "head", None)
    if isinstance(module, nn.Sequential) and len(module) and isinstance(module[-1], nn.Linear):
        head, head_name = module[-1], str(len(module) - 1)
        encoders = {"": [(name, layer) for name, layer in module.named_children() if name != head_name]}
    elif isinstance(head, nn.Linear) and isinstance(getattr(module, "primary", None), nn.Module):
        head_name = "head"
        parts = {name: getattr(module, name, None) for name in ("primary", "secondary")}
        encoders = {name: list(_layers(part, name)) for name, part in parts.items() if part is not None}
        others = sorted({name.split(".")[0] for name in starts} - {*encoders, "head"})
        if others:
            raise Unsupported(f"{others[0]}: only primary, secondary and head may have parameters")
    else:
        raise Unsupported(
            f"{type(module).__name__}: expected sub-modules `primary`, optionally `secondary`, and a "
            "linear `head`, or an nn.Sequential that ends in nn.Linear"
        )
    next(_layers(head, head_name))  # a head with its own forward pass or hooks is not trusted either
    branches = tuple(
        _branch(name, layers, shape, len(input_shape), starts) for name, layers in encoders.items()
    )
    features = sum(branch.features for branch in branches)
    if head.in_features != features:
        raise Unsupported(
            f"{head_name} (Linear): takes {head.in_features} features, the encoders give {features}"
        )
    return NetworkPlan(shape, branches, _linear(head, head_name, starts), tuple(places))


def _as_image(input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The input as an image: a 1-D window has one row; a vector is one pixel with many channels."""
    match input_shape:
        case (channels, height, width):
            return channels, height, width
        case (channels, width):
            return channels, 1, width
        case (features,):
            return features, 1, 1
    raise Unsupported(f"input of shape {tuple(input_shape)}: expected (C, H, W), (C, W) or (features,)")


def _layers(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested nn.Sequential modules in order, with their names."""
    known = type(module).__module__.startswith("torch.nn.modules") or hasattr(module, "equals_its_layers")
    if not known or module._forward_hooks:
        raise Unsupported(
            f"{name} ({type(module).__name__}): not one of torch's own layers, or changed by hooks"
        )
    if isinstance(module, nn.Sequential):
        for child_name, child in module.named_children():
            yield from _layers(child, f"{name}.{child_name}" if name else child_name)
    else:
        yield name, module


def _pair(value: int | tuple[int, ...], rank: int) -> tuple[int, int]:
    """The size of a 1-D or 2-D layer as (height, width)."""
    if isinstance(value, int):
        return (1 if rank == 2 else value), value
    return (1, value[0]) if len(value) == 1 else (value[0], value[1])


def _branch(
    name: str,
    layers: list[tuple[str, nn.Module]],
    shape: tuple[int, int, int],
    rank: int,
    starts: dict[str, int],
) -> Branch:
    """One encoder; ReLU, pooling and dropout become part of the layer before them."""
    stages: list[Stage] = []
    flat = rank == 1
    layers = [pair for top_name, top in layers for pair in _layers(top, top_name)]
    for layer_name, layer in layers:
        label = f"{layer_name} ({type(layer).__name__})"
        last = stages[-1] if stages else None
        match layer:
            case nn.Identity():
                pass
            case nn.Flatten() if layer.start_dim == 1 and layer.end_dim == -1:
                flat = True
            case nn.Conv2d() | nn.Conv1d() if not flat and rank == (3 if isinstance(layer, nn.Conv2d) else 2):
                stage = _convolution(layer, layer_name, label, shape, rank, starts)
                stages.append(stage)
                shape = _pooled(stage, label, shape)
            case nn.Linear() if flat or (last is not None and not last.convolution):
                if layer.in_features != shape[0] * shape[1] * shape[2]:
                    raise Unsupported(f"{label}: takes {layer.in_features} inputs, gets {shape}")
                stages.append(_linear(layer, layer_name, starts))
                shape = (layer.out_features, 1, 1)
            case nn.ReLU() if last is not None and (last.dropout == 0 or last.relu):
                # ReLU before pooling gives the same result as ReLU after pooling.
                stages[-1] = dataclasses.replace(last, relu=True)
            case nn.MaxPool2d() | nn.MaxPool1d() if (
                last is not None
                and last.convolution
                and last.pool == (1, 1)
                and last.dropout == 0
                and not flat
            ):
                size, stride = _pair(layer.kernel_size, rank), _pair(layer.stride, rank)
                if (
                    size != stride
                    or _pair(layer.padding, rank)[1]
                    or layer.ceil_mode
                    or _pair(layer.dilation, rank)[1] != 1
                ):
                    raise Unsupported(
                        f"{label}: only pooling in whole windows (stride = size) without padding"
                    )
                stages[-1] = dataclasses.replace(last, pool=size)
                shape = _pooled(stages[-1], label, (shape[0], shape[1], shape[2]), only_pool=True)
            case nn.Dropout() if last is not None and last.dropout == 0:
                stages[-1] = dataclasses.replace(last, dropout=float(layer.p))
            case nn.Dropout() if layer.p == 0:
                pass
            case _:
                raise Unsupported(f"{label}: not in the native vocabulary, or not at this place")
    return Branch(name, tuple(stages), shape[0] * shape[1] * shape[2])


def _pooled(
    stage: Stage, label: str, shape: tuple[int, int, int], only_pool: bool = False
) -> tuple[int, int, int]:
    """The output shape of a convolution with its pooling."""
    _, height, width = shape
    if not only_pool:
        height += 2 * stage.padding[0] - stage.kernel[0] + 1
        width += 2 * stage.padding[1] - stage.kernel[1] + 1
    height, width = height // stage.pool[0], width // stage.pool[1]
    if height < 1 or width < 1:
        raise Unsupported(f"{label}: its input {shape} is too small")
    return stage.outputs, height, width


def _convolution(
    layer: nn.Conv2d | nn.Conv1d,
    name: str,
    label: str,
    shape: tuple[int, int, int],
    rank: int,
    starts: dict[str, int],
) -> Stage:
    """A convolution without ReLU, pooling and dropout."""
    if layer.in_channels != shape[0]:
        raise Unsupported(f"{label}: takes {layer.in_channels} channels, gets {shape[0]}")
    kernel = _pair(layer.kernel_size, rank)
    if isinstance(layer.padding, str):
        if layer.padding == "same" and not all(size % 2 for size in kernel):
            raise Unsupported(f"{label}: padding 'same' of an even kernel is not in the native vocabulary")
        padding = (kernel[0] // 2, kernel[1] // 2) if layer.padding == "same" else (0, 0)
    else:
        padding = (0, layer.padding[0]) if rank == 2 else (layer.padding[0], layer.padding[1])
    plain = {*layer.stride, *layer.dilation, layer.groups} == {1} and layer.padding_mode == "zeros"
    if not plain:
        raise Unsupported(f"{label}: only stride 1, dilation 1, one group and zero padding")
    return Stage(name, True, layer.out_channels, *_places(layer, name, starts), kernel, padding)


def _linear(layer: nn.Linear, name: str, starts: dict[str, int]) -> Stage:
    """A linear layer without ReLU and dropout."""
    return Stage(name, False, layer.out_features, *_places(layer, name, starts))


def _places(layer: nn.Module, name: str, starts: dict[str, int]) -> tuple[int, int]:
    """The places of weight and bias in the flat vector."""
    names = [f"{name}.weight"] if layer.bias is None else [f"{name}.weight", f"{name}.bias"]
    # A missing name: the parameter is shared with another layer, or computed from other parameters.
    if not all(place in starts for place in names):
        raise Unsupported(f"{name} ({type(layer).__name__}): its parameters are not its own")
    return starts[names[0]], starts[names[1]] if len(names) == 2 else -1
