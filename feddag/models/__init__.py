# SPDX-License-Identifier: Apache-2.0
"""Encoder families in one explicit table, and the user's own network by import path."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from feddag.core.errors import InvalidInput
from feddag.core.plugins import in_one_line, load_object
from feddag.core.problem import Problem
from feddag.models import encoders
from feddag.models.networks import build_network

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """An encoder family: how to build one for an input shape, and which shapes it is for."""

    make: Callable[[Shape], nn.Module]
    help: str


FAMILIES: dict[str, Family] = {
    "lenet": Family(
        encoders.lenet, "LeNet-like, 2 convolutions, for small grey images (28×28: 61,706 parameters)"
    ),
    "conv3": Family(
        encoders.conv3, "3 convolutions 64-128-256, for 32×32 colour images (537,610 parameters)"
    ),
    "conv4": Family(encoders.conv4, "4 convolutions 32-64-128-256, for 64×64 colour images"),
    "mlp": Family(encoders.mlp, "2 dense layers, for vectors and tiny images"),
    "conv1d": Family(encoders.conv1d, "2 one-dimensional convolutions, for sensor windows (channels, time)"),
    "gru": Family(encoders.gru, "embedding + GRU, for sequences of integer codes (next character)"),
}


def family_for(shape: Shape, integer_codes: bool = False) -> str:
    """The family that `model.name = "auto"` stands for, by the shape of one sample."""
    if len(shape) == 1:
        return "gru" if integer_codes else "mlp"
    if len(shape) == 2:
        return "conv1d"
    side = min(shape[1:])
    if side < 16:
        return "mlp"
    if side >= 64:
        return "conv4"
    return "lenet" if shape[0] == 1 else "conv3"


class Networks:
    """Kind → network for one problem; `name` is a family, `auto`, or `my.module:factory`."""

    def __init__(self, name: str, problem: Problem) -> None:
        input_shape, num_classes = problem.input_shape, problem.num_classes
        if name == "auto":
            name = family_for(input_shape, problem.integer_codes)
        self.name = name
        self._cache: dict[str, nn.Module] = {}
        self._make_head: Callable[[int], nn.Module] = lambda features: nn.Linear(features, num_classes)
        if ":" in name:
            self._make_encoder, self._make_head = _users_own(name, input_shape, num_classes)
        elif name in FAMILIES:
            self._make_encoder = lambda: FAMILIES[name].make(input_shape)
        else:
            known = ", ".join(FAMILIES)
            raise InvalidInput(
                f"model '{name}' is unknown: choose auto, {known}, or your own as 'module:factory'"
            )
        with torch.random.fork_rng(devices=[]):
            self._num_features = _num_features(self._make_encoder, input_shape, name)
        _check_classes(self("single"), input_shape, num_classes, name)
        _check_statistics(self("single"), name)

    def fresh(self, kind: str) -> nn.Module:
        """A newly built network, its weights drawn from torch's (seeded) global generator."""
        return build_network(kind, self._make_encoder, self._num_features, self._make_head)

    def __call__(self, kind: str) -> nn.Module:
        """The one network of this kind in this process, to be loaded with parameters before use."""
        if kind not in self._cache:
            # Building draws weights: the generator a task runs under must not notice.
            with torch.random.fork_rng(devices=[]):
                self._cache[kind] = self.fresh(kind)
        return self._cache[kind]


def _sample(input_shape: Shape) -> torch.Tensor:
    return torch.zeros((2, *input_shape))


def _num_features(make_encoder: Callable[[], nn.Module], input_shape: Shape, name: str) -> int:
    """Width of the encoder's output, found by running it once; a wrong input shape shows here."""
    try:
        with torch.no_grad():
            features = make_encoder().eval()(_sample(input_shape))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"model '{name}' cannot take samples of shape {input_shape}: {reason}") from error
    if features.dim() != 2:
        raise InvalidInput(
            f"model '{name}': the encoder must return (batch, features), got shape {tuple(features.shape)}"
        )
    return features.shape[1]


def _check_classes(network: nn.Module, input_shape: Shape, num_classes: int, name: str) -> None:
    try:
        with torch.no_grad():
            logits = network.eval()(_sample(input_shape))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"model '{name}': encoder and head do not fit together: {reason}") from error
    if logits.shape != (2, num_classes):
        raise InvalidInput(
            f"model '{name}' returns {tuple(logits.shape[1:])} outputs per sample, "
            f"the data have {num_classes} classes"
        )


def _check_statistics(network: nn.Module, name: str) -> None:
    """Refuse statistics that depend on a counter: it is not sent, so each process would count on its own."""
    for layer, module in network.named_modules():
        counts = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if counts and module.momentum is None:
            raise InvalidInput(
                f"model '{name}': {layer} ({type(module).__name__}) has momentum=None, a cumulative mean "
                "over batches: expected a number such as 0.1"
            )


def _users_own(
    path: str, input_shape: Shape, num_classes: int
) -> tuple[Callable[[], nn.Module], Callable[[int], nn.Module]]:
    """Encoder and head factories from the user's `factory(input_shape, num_classes) -> nn.Module`."""
    factory = load_object(path, "model")
    factory_name = path.partition(":")[2]

    def parts() -> tuple[nn.Module, nn.Module]:
        try:
            module = factory(input_shape, num_classes)
        except Exception as error:
            call = f"{factory_name}({input_shape}, {num_classes})"
            raise InvalidInput(f"model '{path}': {call} failed: {in_one_line(error)}") from error
        for encoder, head in (("encoder", "head"), ("base", "classifier")):
            if hasattr(module, encoder) and hasattr(module, head):
                return getattr(module, encoder), getattr(module, head)
        if isinstance(module, nn.Sequential) and len(module) > 1 and isinstance(module[-1], nn.Linear):
            return module[:-1], module[-1]
        raise InvalidInput(
            f"model '{path}' cannot be split: it needs sub-modules 'encoder' and 'head' (or 'base' and "
            "'classifier'), or to be an nn.Sequential that ends in nn.Linear"
        )

    head = parts()[1]

    def make_head(features: int) -> nn.Module:
        # A head over both encoders is wider than the user's own: a linear one can be widened, others not.
        if not isinstance(head, nn.Linear) or features == head.in_features:
            return parts()[1]
        return nn.Linear(features, head.out_features, bias=head.bias is not None)

    return lambda: parts()[0], make_head
