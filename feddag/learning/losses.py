# SPDX-License-Identifier: Apache-2.0
"""Training losses: functions of a loaded network and a batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from feddag.learning.modules import Batch, LoadedNetwork

Loss = Callable[[LoadedNetwork, Batch], Tensor]


def cross_entropy(model: LoadedNetwork, batch: Batch) -> Tensor:
    """Mean cross-entropy over the batch, each sample times its weight where weights are given."""
    if batch.weights is None:
        return torch.nn.functional.cross_entropy(model(batch), batch.y)
    return (batch.weights * torch.nn.functional.cross_entropy(model(batch), batch.y, reduction="none")).mean()
