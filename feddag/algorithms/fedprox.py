# SPDX-License-Identifier: Apache-2.0
"""FedProx (Li et al., 2020): FedAvg whose clients are held near the model they received.

Each client minimises f(u) + μ/2·‖u − w‖², with w the received model, a constant.
"""

from typing import Annotated

from annotated_types import Ge

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.task import Client, sgd_task
from feddag.learning.one_model import OneModel, ServesOneModel
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained


@message
class Train:
    """Train this model, staying near it."""

    params: Params = public()
    mu: float
    local: LocalTraining


@sgd_task
def train(request: Train, client: Client) -> Trained:
    """Train the received model on own data with the proximal term."""
    trained = sgd(client, request.params, request.local, proximal=(request.mu, request.params))
    return Trained(update=trained - request.params, examples=len(client.train))


@algorithm
class FedProx(ServesOneModel):
    """FedAvg with a proximal term against client drift."""

    local: LocalTraining = LocalTraining()
    mu: Annotated[float, Ge(0)] = 0.01  # weight of the proximal term; the authors tune it in {0.001, …, 1}

    tasks = (train,)

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Send the model to the cohort, average what comes back."""
        request = Train(params=state.params, mu=self.mu, local=self.local)
        means = server.ask_mean(train, broadcast(request, server.cohort))
        return OneModel(params=add_mean(state.params, means))
