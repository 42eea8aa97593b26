# SPDX-License-Identifier: Apache-2.0
"""Local training: no federation at all, the row every federated method has to beat."""

from typing import Any, ClassVar, Literal

from feddag.core.algorithm import Server, algorithm
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.sgd import sgd

MODEL = "model"  # what a client remembers: its own model


@message
class TrainAlone:
    """Go on training your own model, or start from this one."""

    params: Params | None = public()
    local: LocalTraining


@message
class TrainedAlone:
    """On how many samples the client trained; nothing else leaves it."""

    examples: int = sensitive("counts", least=0)


@message
class State:
    """The common start, and who has left it."""

    params: Params = public()
    started: tuple[str, ...] = ()


@client_task
def train_alone(request: TrainAlone, client: Client) -> TrainedAlone:
    """Train the remembered model on own data."""
    own = client.memory.get(MODEL, request.params)
    assert isinstance(own, Params)
    client.memory[MODEL] = sgd(client, own, request.local)
    return TrainedAlone(examples=len(client.train))


@algorithm
class Local:
    """No federation: every client trains its own model on its own data."""

    local: LocalTraining = LocalTraining()
    # cohort: as often as a client is drawn under the other methods; everyone: all clients in every round
    who: Literal["cohort", "everyone"] = "cohort"

    tasks = (train_alone,)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"full": {"who": "everyone"}}

    def start(self, server: Server) -> State:
        """One random model, so that clients differ in data alone."""
        return State(params=server.initial_params())

    def round(self, state: State, server: Server) -> State:
        """Each trains as long as in a round of the other methods; the start is sent once per client."""
        return self._train(state, server.cohort if self.who == "cohort" else server.clients, server)

    def deploy(self, state: State, client: str) -> Deployment:
        """The client's own model; the random start for a client that never trained."""
        return Deployment(models=(state.params,), remembered=MODEL)

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers train their own model for one round."""
        return self._train(state, newcomers, server)

    def _train(self, state: State, clients: tuple[str, ...], server: Server) -> State:
        first, again = (TrainAlone(params=start, local=self.local) for start in (state.params, None))
        started = set(state.started)
        replies = server.ask(train_alone, {c: again if c in started else first for c in clients})
        return State(params=state.params, started=tuple(sorted(started | set(replies))))
