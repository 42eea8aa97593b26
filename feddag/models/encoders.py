# SPDX-License-Identifier: Apache-2.0
"""Encoders: sample → feature vector. Plain layer stacks, so that other backends can read them.

ReLU stands behind the pooling: the result is the same (the largest of some numbers, then cut at 0), on a
quarter of the numbers.
"""

import torch
from torch import Tensor, nn

from feddag.models.patches import PatchStack

Shape = tuple[int, ...]


def lenet(shape: Shape) -> nn.Module:
    """The paper's Fashion-MNIST network without its head: 60,856 parameters on 28×28 grey images."""
    convolutions = nn.Sequential(
        nn.Conv2d(shape[0], 6, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
    )
    dense = (nn.Linear(_width(convolutions, shape), 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
    return PatchStack(*convolutions, *dense)


def conv3(shape: Shape) -> nn.Module:
    """The paper's CIFAR-10/SVHN network without its head: 535,040 parameters on 32×32 colour images."""
    convolutions = nn.Sequential(
        nn.Conv2d(shape[0], 64, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(128, 256, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
    )
    dense = (
        nn.Linear(_width(convolutions, shape), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 256),
        nn.ReLU(),
        nn.Dropout(0.5),
    )
    return nn.Sequential(*convolutions, *dense)


def conv4(shape: Shape) -> nn.Module:
    """Four convolutions with pooling, for 64×64 colour images."""
    layers: list[nn.Module] = []
    channels = shape[0]
    for width in (32, 64, 128, 256):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
        channels = width
    convolutions = nn.Sequential(*layers, nn.Flatten())
    dense = (nn.Linear(_width(convolutions, shape), 256), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(*convolutions, *dense)


def mlp(shape: Shape) -> nn.Module:
    """Two dense layers over the flattened sample."""
    width = int(torch.Size(shape).numel())
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())


def conv1d(shape: Shape) -> nn.Module:
    """Two one-dimensional convolutions, for windows of several sensors (channels, time)."""
    convolutions = nn.Sequential(
        nn.Conv1d(shape[0], 32, 5, padding=2),
        nn.MaxPool1d(2),
        nn.ReLU(),
        nn.Conv1d(32, 64, 5, padding=2),
        nn.MaxPool1d(2),
        nn.ReLU(),
        nn.Flatten(),
    )
    return nn.Sequential(*convolutions, nn.Linear(_width(convolutions, shape), 128), nn.ReLU())


class gru(nn.Module):
    """Embedding and GRU over a window of integer codes; the last hidden state is the feature vector."""

    def __init__(self, shape: Shape, codes: int = 256, embedding: int = 32, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codes, embedding)
        self.recurrence = nn.GRU(embedding, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch of windows (batch, time)."""
        return self.recurrence(self.embedding(x.long()))[1][0]


def _width(convolutions: nn.Module, shape: Shape) -> int:
    with torch.no_grad():
        return convolutions(torch.zeros((1, *shape))).shape[1]
