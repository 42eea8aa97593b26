# SPDX-License-Identifier: Apache-2.0
"""A user's own network outside the kernels' vocabulary: residuals, group normalisation, attention."""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """x + f(x), with group normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(torch.relu(self.norm(x)))


class Attention(nn.Module):
    """The pixels of a feature map look at each other; the mean over them."""

    def __init__(self, channels: int, heads: int = 2) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.look = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.flatten(2).transpose(1, 2)
        normed = self.norm(pixels)
        return (pixels + self.look(normed, normed, normed, need_weights=False)[0]).mean(1)


class Net(nn.Module):
    """Encoder and head."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, width: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(input_shape[0], width, 3, padding=1),
            nn.MaxPool2d(4),
            Residual(width),
            Residual(width),
            Attention(width),
            nn.Dropout(0.1),
        )
        self.head = nn.Linear(width, num_classes)


def make(input_shape: tuple[int, ...], num_classes: int) -> Net:
    """The network for images of one shape."""
    return Net(input_shape, num_classes)
