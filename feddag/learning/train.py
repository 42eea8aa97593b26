# SPDX-License-Identifier: Apache-2.0
"""The plain question most methods ask: train this model on your data, tell what changed."""

from collections.abc import Iterable, Mapping, Sequence

from feddag.core.contract import Known
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, sgd_task
from feddag.learning.sgd import sgd


@message
class Train:
    """Train this model."""

    params: Params = public()
    local: LocalTraining


def sent_model(known: Known) -> Params:
    """The parameters that a request tells to train, which each method names as it likes."""
    request = known.request
    return next(getattr(request, n) for n in ("params", "encoder", "centre", "model") if hasattr(request, n))


@message
class Trained:
    """What training changed, and on how many samples."""

    update: Params = sensitive("update", like=sent_model)
    examples: int = sensitive("counts", least=0)


@sgd_task
def train(request: Train, client: Client) -> Trained:
    """Train the received model on own data."""
    trained = sgd(client, request.params, request.local)
    return Trained(update=trained - request.params, examples=len(client.train))


def train_own(
    models: Sequence[Params], cluster_of: Mapping[str, int], clients: Iterable[str], local: LocalTraining
) -> dict[str, Train]:
    """The question "train your cluster's model" for each client; one object a cluster, encoded once."""
    requests = [Train(params=model, local=local) for model in models]
    return {client: requests[cluster_of[client]] for client in clients}
