# SPDX-License-Identifier: Apache-2.0
"""The gradient of a client's mean training loss at a given model."""

import torch

from feddag.core.params import Params
from feddag.core.task import Client
from feddag.learning.losses import cross_entropy
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork, chunks
from feddag.learning.sgd import EVERYTHING


def mean_gradient(client: Client, params: Params, network: str = "single") -> Params:
    """∇F(w) over all training samples, in evaluation mode; 0 for buffers and for a client without samples."""
    model = LoadedNetwork(client.network(network), params, EVERYTHING)
    model.module.eval()
    total = torch.zeros_like(model.vector)
    rows = torch.arange(len(client.train))
    for chunk in chunks(len(client.train)):
        batch = Batch(client.train, rows[chunk], NOTHING_KNOWN)
        share = len(batch) / len(client.train)
        for span, part in zip(model.spans, model.gradient(cross_entropy(model, batch)), strict=True):
            total[span].add_(part, alpha=share)
    return model.params(total)
