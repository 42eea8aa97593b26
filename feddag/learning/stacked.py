# SPDX-License-Identifier: Apache-2.0
"""One network with the parameters of several clients: a batch holds samples of each, one pass serves all.

One small client cannot fill a GPU: a step is many tiny operations, and starting them takes the time. The
parameters of the clients are the rows of a matrix, and `torch.func.vmap` turns every operation of the network
into one over all rows. Client i takes the same steps on the same samples as alone, up to rounding:

    rows      the clients with most steps first: who has finished is at the end, and is no longer computed
    padding   where batches differ in length, further samples with weight 0
    dropout   every client draws from its own generator, as alone
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.overrides import TorchFunctionMode

from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.modules import Batch, LoadedNetwork, plain_layers

Draw = Callable[[Tensor, float], Tensor]  # numbers of all clients, probability → mask


class CannotStack(Exception):
    """The clients' networks cannot be computed at once."""


@dataclass(frozen=True)
class StackedBatch(Batch):
    """Equally many rows for every client, one client after another; `lengths`: how many are no padding."""

    lengths: tuple[int, ...] = ()


class StackedNetwork:
    """A network holding the parameters of several clients; see LoadedNetwork, which it stands for."""

    def __init__(
        self, module: nn.Module, starts: Sequence[Params], train: tuple[str, ...], seeds: Sequence[Seed]
    ) -> None:
        self.first = LoadedNetwork(module, starts[0], train)  # says what learns, and which layers train
        check_layers(module)
        self.module = plain_layers(module)
        self.layout, self.device, self.spans = self.first.layout, self.first.device, self.first.spans
        self.vector = self.working(*starts)  # (clients, floats)
        self.generators = [seed.torch(self.device) for seed in seeds]
        self.learning = [name for name, p in module.named_parameters() if p.requires_grad]
        self.weights: dict[str, Tensor] = {}
        self.count = 0  # clients that have not finished

    def __call__(self, batch: StackedBatch) -> Tensor:
        """Logits of a batch, one client after another."""
        self._show(len(batch.lengths))
        unknown = len(batch.known) < len(self.first.encoders)
        # vmap knows torch's usual order of images only, and no fused attention.
        inputs = batch.seen.contiguous() if unknown else torch.empty((len(batch), 0), device=self.device)
        known = {name: self._by_client(features) for name, features in batch.known.items()}
        with OwnDropout(self.generators, batch.lengths), sdpa_kernel(SDPBackend.MATH):
            outputs = vmap(self._forward)(self.weights, self._by_client(inputs), known)
        return outputs.flatten(0, 1)

    def _forward(self, weights: dict[str, Tensor], x: Tensor, known: Mapping[str, Tensor]) -> Tensor:
        return functional_call(self.module, weights, (x, known))

    def _by_client(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self.count, -1))

    def _show(self, count: int) -> None:
        """Let the network see the first `count` clients' parameters, views of the matrix."""
        if count == self.count:
            return
        layout, self.count = self.layout, count
        for i, name in enumerate(layout.names):
            part = self.vector[:count, layout.offsets[i] : layout.offsets[i + 1]]
            self.weights[name] = part.view(count, *layout.shapes[i])
        for name in self.learning:
            self.weights[name] = self.weights[name].detach().requires_grad_()

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """The gradient of each client's own mean loss, one matrix for each of `spans`."""
        leaves = [self.weights[name] for name in self.learning]
        # The loss is the mean over all clients: times their number it is the sum of their own means.
        parts = torch.autograd.grad(loss * self.count, leaves, allow_unused=True, materialize_grads=True)
        flat = torch.cat([g.reshape(self.count, -1) for g in parts], dim=1)
        return list(flat.split([s.stop - s.start for s in self.spans], dim=1))

    def autocast(self) -> AbstractContextManager[None]:
        """The precision of the forward pass."""
        return self.first.autocast()

    def working(self, *params: Params) -> Tensor:
        """Parameters of all clients as a matrix on the device."""
        return torch.stack([p.vector for p in params]).to(self.device)

    def params(self) -> list[Params]:
        """Every client's parameters as they are now."""
        return [Params(row.clone(), self.layout) for row in self.vector.cpu()]


def check_layers(module: nn.Module) -> None:
    """Refuse layers whose training mixes the samples of a batch, or changes statistics."""
    for layer in module.modules():
        mixes = isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats)
        if layer.training and mixes:
            raise CannotStack(f"{type(layer).__name__} depends on the whole batch")


def stacked_batches(
    model: StackedNetwork,
    own: Sequence[Examples],
    steps: Sequence[Sequence[Tensor]],
    known: Sequence[Mapping[str, Tensor]],
    sample_weights: Sequence[Tensor] | None,
) -> Iterator[StackedBatch]:
    """The batches of all clients, given those of each client, longest first; moved to the device at once."""
    first = own[0]
    x, y = (np.concatenate([getattr(examples, part) for examples in own]) for part in "xy")
    examples = Examples(x, y, first.num_classes, first.scaling).on(model.device)
    features = {name: torch.cat([one[name] for one in known]) for name in known[0]}
    weights = None if sample_weights is None else torch.cat(list(sample_weights)).to(model.device)
    starts = np.cumsum([0, *map(len, own)])[:-1].tolist()
    rows, shares, lengths = [], [], []
    for number in range(len(steps[0])):
        now = [mine[number] for mine in steps if len(mine) > number]
        lengths.append(tuple(map(len, now)))
        width = max(lengths[-1])
        for start, own_rows in zip(starts, now, strict=False):
            padding = width - len(own_rows)
            rows.append(torch.cat([own_rows, own_rows[:1].expand(padding)]) + start)
            # Weights make the mean over `width` rows the mean over the client's own.
            share = torch.full((len(own_rows),), width / len(own_rows))
            shares.append(torch.cat([share, torch.zeros(padding)]))
    sizes = [len(of_step) * max(of_step) for of_step in lengths]
    moved_rows = torch.cat(rows).to(model.device).split(sizes)
    moved_shares = torch.cat(shares).to(model.device).split(sizes)
    for now_rows, share, of_step in zip(moved_rows, moved_shares, lengths, strict=True):
        if weights is not None:
            share = share * weights[now_rows]
        equal = weights is None and len(set(of_step)) == 1
        here = {name: f[now_rows] for name, f in features.items()}
        yield StackedBatch(examples, now_rows, here, None if equal else share, lengths=of_step)


class OwnDropout(TorchFunctionMode):
    """While it lasts, dropout draws a mask for each client from the client's own generator."""

    def __init__(self, generators: Sequence[torch.Generator], lengths: Sequence[int]) -> None:
        super().__init__()
        self.generators, self.lengths = generators, lengths

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return Masked.apply(x, p, self.mask) if training and p else x

    def mask(self, x: Tensor, p: float) -> Tensor:
        """0 or 1 / (1 − p) for every number of (clients, rows, …), as torch draws them for one client."""
        mask = torch.zeros_like(x)
        for one, generator, length in zip(mask, self.generators, self.lengths, strict=False):
            if p < 1:
                one[:length].copy_(
                    torch.empty_like(one[:length]).bernoulli_(1 - p, generator=generator).div_(1 - p)
                )
        return mask


class Masked(torch.autograd.Function):
    """x times a mask that `OwnDropout` draws for all clients at once."""

    @staticmethod
    def forward(x: Tensor, p: float, draw: Draw) -> Tensor:
        """Only for several clients."""
        raise CannotStack("dropout of something that belongs to no client")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, p: float, draw: Draw) -> tuple[Tensor, int]:
        """The rule for all clients: ordinary operations, whose gradient torch knows."""
        if in_dims[0] is None:
            raise CannotStack("dropout of something that belongs to no client")
        x = x.movedim(in_dims[0], 0)
        return x * draw(x.detach(), p), 0
