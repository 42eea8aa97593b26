# SPDX-License-Identifier: Apache-2.0
"""The plain question most methods ask: train this model on your data, tell what changed."""

from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.sgd import sgd


@message
class Train:
    """Train this model."""

    params: Params = public()
    local: LocalTraining


@message
class Trained:
    """What training changed, and on how many samples."""

    update: Params = sensitive("update")
    examples: int = public()


@client_task
def train(request: Train, client: Client) -> Trained:
    """Train the received model on own data."""
    trained = sgd(client, request.params, request.local)
    return Trained(update=trained - request.params, examples=len(client.train))
