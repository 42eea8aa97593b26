# SPDX-License-Identifier: Apache-2.0
"""FedAvg (McMahan et al., 2017): train locally, average the updates by number of examples."""

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
class FedAvg:
    """One global model, the example-weighted mean of what the clients make of it."""

    local: LocalTraining = LocalTraining()

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

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state
