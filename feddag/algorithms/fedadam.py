# SPDX-License-Identifier: Apache-2.0
"""FedAdam (Reddi et al., 2021): FedAvg whose server takes an Adam step along the clients' mean update.

m ← β₁·m + (1 − β₁)·Δ̄,  v ← β₂·v + (1 − β₂)·Δ̄²,  w ← w + η·m / (√v + τ)
without bias correction, as in the paper (Algorithm 2); v starts at τ².
"""

from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le, Lt

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import server_step
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.learning.train import Train, train


@message
class State:
    """The global model, and the running means of its updates and of their squares."""

    params: Params = public()
    first: Params = public()  # m
    second: Params = public()  # v


@algorithm
class FedAdam:
    """FedAvg with Adam on the server: every parameter moves at a rate of its own."""

    local: LocalTraining = LocalTraining()
    server_lr: Annotated[float, Gt(0)] = 0.01  # η; the authors tune it, 0.001 to 0.1 are their usual best
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9  # of the mean update; the authors' value
    beta2: Annotated[float, Ge(0), Le(1)] = 0.99  # of its square; the authors' value
    tau: Annotated[float, Gt(0)] = 1e-3  # τ, adaptivity: less is more adaptive; the authors' value

    tasks = (train,)

    def start(self, server: Server) -> State:
        """One random model for all."""
        params = server.initial_params()
        second = params.like(torch.full_like(params.vector, self.tau**2))
        return State(params=params, first=params * 0.0, second=second)

    def round(self, state: State, server: Server) -> State:
        """FedAvg's question; the model takes an Adam step along the mean update."""
        request = Train(params=state.params, local=self.local)
        for mean in server.ask_mean(train, broadcast(request, server.cohort)).values():
            update = mean.reply.update
            square = update.like(update.vector**2)
            first = state.first * self.beta1 + update * (1 - self.beta1)
            second = state.second * self.beta2 + square * (1 - self.beta2)
            move = first.like(self.server_lr * first.vector / (second.vector.sqrt() + self.tau))
            params = server_step(state.params, update, move)
            state = State(params=params, first=first, second=second)
        return state

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state
