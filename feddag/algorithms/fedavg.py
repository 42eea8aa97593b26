# SPDX-License-Identifier: Apache-2.0
"""FedAvg (McMahan et al., 2017): train locally, average the updates by number of examples.

`fedavg_ft` is the same, and every client trains the global model further before it uses it.
"""

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.learning.one_model import OneModel, ServesOneModel
from feddag.learning.train import Train, train


@algorithm
class FedAvg(ServesOneModel):
    """One global model, the example-weighted mean of what the clients make of it."""

    local: LocalTraining = LocalTraining()

    tasks = (train,)

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Send the model to the cohort, average what comes back."""
        request = Train(params=state.params, local=self.local)
        means = server.ask_mean(train, broadcast(request, server.cohort))
        return OneModel(params=add_mean(state.params, means))


@algorithm
class FedAvgFineTuned(FedAvg):
    """FedAvg whose clients train the global model on their own data before they use it."""

    def deploy(self, state: OneModel, client: str) -> Deployment:
        """The global model after one round of local training, which is never sent back."""
        return Deployment(models=(state.params,), adapt=self.local)
