# SPDX-License-Identifier: Apache-2.0
"""FedPer (Arivazhagan et al., 2019): a common encoder, and a head that never leaves its client."""

from feddag.core.algorithm import Server, algorithm
from feddag.core.averaging import Mean, add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained

HEAD, ENCODER = "head.", "primary."  # prefixes of the network's two parts; the head is remembered


@message
class TrainPart:
    """Train this encoder under your own head, or under this one if you have none yet."""

    encoder: Params = public()
    head: Params | None = public()
    local: LocalTraining


@message
class State:
    """The encoder with the head everyone starts from, and who has made a head of their own."""

    params: Params = public()
    started: tuple[str, ...] = ()


@client_task
def train_part(request: TrainPart, client: Client) -> Trained:
    """Train encoder and head together; keep the head, send the encoder."""
    head = client.memory.get(HEAD, request.head)
    assert isinstance(head, Params)
    model = Params.from_module(client.network("single")).replace(request.encoder).replace(head)
    trained = sgd(client, model, request.local)
    client.memory[HEAD] = trained.select(HEAD)
    return Trained(update=trained.select(ENCODER) - request.encoder, examples=len(client.train))


@algorithm
class FedPer:
    """A common encoder, trained together with a personal head that stays on the client."""

    local: LocalTraining = LocalTraining()

    tasks = (train_part,)

    def start(self, server: Server) -> State:
        """One random encoder and one random head for all."""
        return State(params=server.initial_params())

    def round(self, state: State, server: Server) -> State:
        """Average the encoders; heads stay where they are."""
        means, started = self._train(state, server.cohort, server)
        encoder = add_mean(state.params.select(ENCODER), means)
        return State(params=state.params.replace(encoder), started=started)

    def deploy(self, state: State, client: str) -> Deployment:
        """The common encoder under the client's head; a client that never trained has the random head."""
        return Deployment(models=(state.params,), remembered=HEAD)

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers make a head in one round of training; the common encoder stays as it is."""
        return State(params=state.params, started=self._train(state, newcomers, server)[1])

    def _train(
        self, state: State, clients: tuple[str, ...], server: Server
    ) -> tuple[dict[int, Mean[Trained]], tuple[str, ...]]:
        """The mean update, and everyone who has a head of their own now."""
        encoder, head = state.params.select(ENCODER), state.params.select(HEAD)
        first, again = (TrainPart(encoder=encoder, head=start, local=self.local) for start in (head, None))
        # The starting head travels once to each client.
        requests = {client: again if client in state.started else first for client in clients}
        means = server.ask_mean(train_part, requests)
        answered = (client for mean in means.values() for client in mean.clients)
        return means, tuple(sorted({*state.started, *answered}))
