# SPDX-License-Identifier: Apache-2.0
"""FedAvg (McMahan et al., 2017): train locally, average the updates by number of examples."""

from dataclasses import dataclass

from feddag.core.algorithm import Server, broadcast
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.averaging import step
from feddag.learning.sgd import sgd


@message
class Train:
    """Train this model."""

    params: Params = public()
    local: LocalTraining


@message
class Trained:
    """What training changed."""

    update: Params = sensitive("update")
    examples: int = public()


@message
class State:
    """The global model."""

    params: Params = public()


@client_task
def train(request: Train, client: Client) -> Trained:
    """Train the received model on own data."""
    trained = sgd(client, request.params, request.local)
    return Trained(update=trained - request.params, examples=len(client.train))


@dataclass(frozen=True)
class FedAvg:
    """One global model, the example-weighted mean of what the clients make of it."""

    local: LocalTraining = LocalTraining()  # noqa: RUF009 — a frozen value

    tasks = (train,)

    def start(self, server: Server) -> State:
        """One random model for all."""
        return State(params=server.initial_params())

    def round(self, state: State, server: Server) -> State:
        """Send the model to the cohort, average what comes back."""
        request = Train(params=state.params, local=self.local)
        return State(params=step(state.params, server.ask(train, broadcast(request, server.cohort))))

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))
