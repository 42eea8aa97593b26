# SPDX-License-Identifier: Apache-2.0
"""A stack of layers that begins with convolution and 2×2 pooling, computed as one product over patches.

The four outputs of a k×k convolution that one pooling window looks at lie within one (k+1)×(k+1) patch of
the image: they are the kernel at its four shifts inside the patch. So the first layers are

    patches        cut at every second row and column, once per client: they depend on no weight
    kernels × patches      the convolution, each shift of a kernel in a row of its own
    largest of four rows   the pooling, over long rows instead of over a few channels

the same function, as a matrix product, where torch's own kernels are slow: few channels, small images.
"""

from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, unfold


class PatchStack(nn.Sequential):
    """Convolution, 2×2 pooling, ReLU, a second convolution, and any layers behind."""

    equals_its_layers: ClassVar[bool] = True  # for other backends, which compute the layers one by one

    @property
    def convolutions(self) -> tuple[nn.Conv2d, nn.Conv2d]:
        """The first and the second."""
        first, second = self[0], self[3]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(second, nn.Conv2d)
        return first, second

    def prepare_once(self, x: Tensor) -> Tensor:
        """Patches (batch, channels · (k+1)², rows, columns, 1) of images: all the first layers look at."""
        size, padding = self.convolutions[0].kernel_size[0], int(self.convolutions[0].padding[0])
        rows, columns = ((side + 2 * padding - size + 1) // 2 for side in x.shape[2:])
        return unfold(x, size + 1, stride=2, padding=padding).view(len(x), -1, rows, columns, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features of images (4 axes) or of their patches (5 axes)."""
        first, second = self.convolutions
        _, _, activation, _, *rest = self
        patches = x if x.dim() == 5 else self.prepare_once(x)
        batch, _, rows, columns, _ = patches.shape
        kernels_GK = shifted(first.weight)
        candidates = torch.bmm(kernels_GK.expand(batch, -1, -1), patches.view(batch, -1, rows * columns))
        pooled = LargestOfFour.apply(candidates.view(-1, 4, rows * columns))
        assert first.bias is not None
        y = activation(pooled.view(batch, -1, rows, columns) + first.bias.view(-1, 1, 1))
        # The way back through this convolution is faster in torch's usual order, pooling with channels last.
        y = conv2d(y, second.weight.contiguous(), second.bias, second.stride, second.padding)
        y = y.contiguous(memory_format=torch.channels_last)
        for layer in rest:
            y = layer(y)
        return y


def shifted(kernels: Tensor) -> Tensor:
    """Kernels (out, in, k, k) at their four shifts inside a (k+1)×(k+1) patch: (4·out, in·(k+1)²)."""
    out, channels, size, _ = kernels.shape
    placed = kernels.reshape(out * channels, size * size) @ placements(size).to(kernels)
    return placed.view(out, channels, 4, -1).transpose(1, 2).reshape(4 * out, -1)


@lru_cache
def placements(size: int) -> Tensor:
    """(k², 4·(k+1)²): 1 where an entry of the kernel lies at a shift; products with it are exact."""
    placed = torch.zeros(size, size, 2, 2, size + 1, size + 1)
    for row in range(size):
        for column in range(size):
            for down in (0, 1):
                for right in (0, 1):
                    placed[row, column, down, right, row + down, column + right] = 1
    return placed.view(size * size, -1)


class LargestOfFour(torch.autograd.Function):
    """Rows (n, 4, m) → their maximum (n, m); the gradient goes to the first largest, as in max pooling."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The larger of left and right, then of above and below."""
        larger = torch.maximum(x[:, 0::2], x[:, 1::2])
        ctx.save_for_backward(x, larger)
        return torch.maximum(larger[:, 0], larger[:, 1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The same way back."""
        x, larger = ctx.saved_tensors
        halves = where_second_is_larger(gradient, larger[:, 0], larger[:, 1], axis=1)
        return where_second_is_larger(halves, x[:, 0::2], x[:, 1::2], axis=2).view_as(x)


def where_second_is_larger(gradient: Tensor, first: Tensor, second: Tensor, axis: int) -> Tensor:
    """Hand a gradient to the larger of two, to the first where they are equal; stacked along an axis."""
    # threshold_backward(g, d, 0) is g where d > 0, else 0: ReLU's own kernel, in one pass.
    to_second = torch.ops.aten.threshold_backward(gradient, second - first, 0)
    return torch.stack([gradient - to_second, to_second], dim=axis)
