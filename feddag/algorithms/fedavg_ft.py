# SPDX-License-Identifier: Apache-2.0
"""FedAvg, fine-tuned: the global model of FedAvg, which each client trains further before it uses it."""

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.learning.averaging import step
from feddag.learning.train import Train, train


@message
class State:
    """The global model."""

    params: Params = public()


@algorithm
class FedAvgFineTuned:
    """FedAvg whose clients train the global model on their own data before they use it."""

    local: LocalTraining = LocalTraining()

    tasks = (train,)

    def start(self, server: Server) -> State:
        """One random model for all."""
        return State(params=server.initial_params())

    def round(self, state: State, server: Server) -> State:
        """FedAvg's round: what is fine-tuned is never sent back."""
        request = Train(params=state.params, local=self.local)
        return State(params=step(state.params, server.ask(train, broadcast(request, server.cohort))))

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model after one round of local training."""
        return Deployment(models=(state.params,), adapt=self.local)

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers fine-tune the global model like everybody else."""
        return state
