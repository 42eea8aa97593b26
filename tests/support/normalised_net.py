# SPDX-License-Identifier: Apache-2.0
"""A user's own network with batch normalisation, as docs/own-network.md describes it."""

from torch import nn


def make(input_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU, pooling, and a linear head."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * (height // 2) * (width // 2), num_classes),
    )
