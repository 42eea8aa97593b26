# SPDX-License-Identifier: Apache-2.0
"""The question "which of these models fits you best?", answered on training samples only."""

import numpy as np

from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import sample_losses


@message
class Compare:
    """Compare these models on your training samples."""

    models: tuple[Params, ...] = public()


@message
class Compared:
    """Mean training loss of each model, and over how many samples."""

    losses: np.ndarray = sensitive("losses", shape=("#models",), dtype="float64", least=0)
    examples: int = sensitive("counts", least=0)


@client_task
def compare(request: Compare, client: Client) -> Compared:
    """Mean cross-entropy of each model over all own training samples, in evaluation mode."""
    # A client without samples has no preference: all losses are 0 and the first model wins.
    losses = [
        float(sample_losses(client, model).double().mean()) if len(client.train) else 0.0
        for model in request.models
    ]
    return Compared(losses=np.array(losses), examples=len(client.train))
