# SPDX-License-Identifier: Apache-2.0
"""Ditto (Li et al., 2021): FedAvg, and beside it a personal model that is held near the global one.

The personal model v minimises f(v) + λ/2·‖v − w‖², with w the global model as it was sent. It is kept
between rounds and never uploaded.
"""

from typing import Annotated

from annotated_types import Ge

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.one_model import OneModel, ServesOneModel
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained


@message
class Train:
    """Train this model, and your own one near it."""

    params: Params = public()
    pull: float
    local: LocalTraining


@client_task
def train(request: Train, client: Client) -> Trained:
    """Train the global model for the others and the own one for use."""
    own = client.remembered("personal", otherwise=request.params)
    client.memory["personal"] = sgd(client, own, request.local, proximal=(request.pull, request.params))
    trained = sgd(client, request.params, request.local)
    return Trained(update=trained - request.params, examples=len(client.train))


@algorithm
class Ditto(ServesOneModel):
    """Personal models near a global one: fair and robust, at twice the computing of FedAvg."""

    local: LocalTraining = LocalTraining()
    pull: Annotated[float, Ge(0)] = 1.0  # λ; authors' scripts

    tasks = (train,)

    def round(self, state: OneModel, server: Server) -> OneModel:
        """FedAvg's round; the personal models stay with the clients."""
        means = server.ask_mean(train, self.requests(state, server.cohort))
        return OneModel(params=add_mean(state.params, means))

    def requests(self, state: OneModel, clients: tuple[str, ...]) -> dict[str, Train]:
        """The same for everyone."""
        return broadcast(Train(params=state.params, pull=self.pull, local=self.local), clients)

    def deploy(self, state: OneModel, client: str) -> Deployment:
        """The client's own model; before its first round the global one."""
        return Deployment(models=(state.params,), remembered="personal")

    def onboard(self, state: OneModel, newcomers: tuple[str, ...], server: Server) -> OneModel:
        """Newcomers train their own model once from the global one, which stays as it is."""
        server.ask(train, self.requests(state, newcomers))
        return state
