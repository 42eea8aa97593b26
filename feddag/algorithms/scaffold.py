# SPDX-License-Identifier: Apache-2.0
"""SCAFFOLD (Karimireddy et al., 2020): clients correct their gradients for how they differ from all others.

Client i keeps a control variate c_i, the server their mean c. Local steps: y ← y − η·(∇f_i(y) + c − c_i).
Then c_i⁺ = c_i − c + (x − y) / (K·η) (option II), which is the mean gradient of the client's K steps.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import server_step
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.sgd import count_steps, sgd

CONTROL = "control"  # what a client remembers: its control variate


@message
class TrainControlled:
    """Train this model, with gradients corrected by this control variate and your own."""

    params: Params = public()  # x
    control: Params = public()  # c
    renewal: float
    local: LocalTraining


@message
class TrainedControlled:
    """What training changed in the model and in the client's control variate."""

    update: Params = sensitive("update", like="params")
    control_change: Params = sensitive("update", like="control")
    examples: int = sensitive("counts", least=0)


@message
class State:
    """The global model, and the mean of the clients' control variates."""

    params: Params = public()
    control: Params = public()


@client_task
def train_controlled(request: TrainControlled, client: Client) -> TrainedControlled:
    """Train with corrected gradients; then renew the own control variate, which stays here."""
    nothing = request.control * 0.0
    own = client.remembered(CONTROL, otherwise=nothing)
    trained = sgd(client, request.params, request.local, correction=request.control - own)
    update, change = trained - request.params, nothing
    length = path_length(request.local, count_steps(client, request.local))
    if length:
        renewed = request.control * -1.0 - update * (1 / length)  # c_i⁺ − c_i
        change = (renewed * request.renewal).with_buffers(nothing)
    client.memory[CONTROL] = own + change
    return TrainedControlled(update=update, control_change=change, examples=len(client.train))


def path_length(local: LocalTraining, steps: int) -> float:
    """How far K steps go along a constant gradient of 1: K·η, and more with momentum.

    With momentum m the gradient of a step goes on to act in all later ones: η·Σ_{j=1…K} (1 − mʲ) / (1 − m).
    """
    m = local.momentum
    return local.lr * sum((1 - m**j) / (1 - m) for j in range(1, steps + 1))


@algorithm
class Scaffold:
    """FedAvg against client drift: control variates say how a client's gradient differs from the mean."""

    local: LocalTraining = LocalTraining()
    server_lr: Annotated[float, Gt(0)] = 1.0  # η_g; the authors' experiments
    renewal: Annotated[float, Ge(0), Le(1)] = 1.0  # how far a control variate is renewed; 0 is FedAvg (ours)

    tasks = (train_controlled,)

    def start(self, server: Server) -> State:
        """One random model for all, and control variates of 0."""
        if self.local.optimiser != "sgd":
            raise InvalidInput(
                f"training.optimiser = '{self.local.optimiser}': scaffold corrects the steps of 'sgd' alone"
            )
        params = server.initial_params()
        return State(params=params, control=params * 0.0)

    def round(self, state: State, server: Server) -> State:
        """x ← x + η_g·mean Δ, c ← c + |S|/N·mean Δc over the S of N clients that answered."""
        request = TrainControlled(
            params=state.params, control=state.control, renewal=self.renewal, local=self.local
        )
        for mean in server.ask_mean(train_controlled, broadcast(request, server.cohort)).values():
            update, share = mean.reply.update, len(mean.clients) / len(server.clients)
            state = State(
                params=server_step(state.params, update, update * self.server_lr),
                control=state.control + mean.reply.control_change * share,
            )
        return state

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model; their control variate is 0 until they train."""
        return state
