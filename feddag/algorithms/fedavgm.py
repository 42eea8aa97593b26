# SPDX-License-Identifier: Apache-2.0
"""FedAvgM (Hsu et al., 2019): FedAvg whose server keeps a momentum of the clients' mean updates.

v ← β·v + Δ̄,  w ← w + η·v, with Δ̄ the example-weighted mean update of the round.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Lt

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import server_step
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.learning.train import Train, train


@message
class State:
    """The global model, and the momentum of its updates."""

    params: Params = public()
    velocity: Params = public()  # v


@algorithm
class FedAvgM:
    """FedAvg with momentum on the server: rounds whose cohorts differ much pull less to and fro."""

    local: LocalTraining = LocalTraining()
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9  # β of the server; the authors compare 0 to 0.997
    server_lr: Annotated[float, Gt(0)] = 1.0  # η of the server; the authors' experiments

    tasks = (train,)

    def start(self, server: Server) -> State:
        """One random model for all, at rest."""
        params = server.initial_params()
        return State(params=params, velocity=params * 0.0)

    def round(self, state: State, server: Server) -> State:
        """FedAvg's question; the model moves along the momentum."""
        request = Train(params=state.params, local=self.local)
        for mean in server.ask_mean(train, broadcast(request, server.cohort)).values():
            update = mean.reply.update
            velocity = state.velocity * self.momentum + update
            params = server_step(state.params, update, velocity * self.server_lr)
            state = State(params=params, velocity=velocity)
        return state

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state
