# SPDX-License-Identifier: Apache-2.0
"""FedRep (Collins et al., 2021): fit the personal head first, then move the common encoder a little."""

import dataclasses
from typing import Annotated

from annotated_types import Ge

from feddag.core.algorithm import Server, algorithm
from feddag.core.averaging import add_mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained

HEAD, ENCODER = "head.", "primary."  # prefixes of the network's two parts; the head is remembered


@message
class TrainInTurn:
    """Fit your head to this encoder, then the encoder to the head; the first head comes with it."""

    encoder: Params = public()
    head: Params | None = public()
    head_training: LocalTraining
    encoder_training: LocalTraining


@message
class State:
    """The encoder with the head everyone starts from, and who has made a head of their own."""

    params: Params = public()
    started: tuple[str, ...] = ()


@client_task
def train_in_turn(request: TrainInTurn, client: Client) -> Trained:
    """Head with the encoder frozen, then encoder with the head frozen; keep the head, send the encoder."""
    head = client.memory.get(HEAD, request.head)
    assert isinstance(head, Params)
    model = Params.from_module(client.network("single")).replace(request.encoder).replace(head)
    model = sgd(client, model, request.head_training, train=(HEAD,))
    client.memory[HEAD] = model.select(HEAD)
    seed = client.seed / "encoder"  # other batches than the head's
    model = sgd(client, model, request.encoder_training, train=(ENCODER,), seed=seed)
    return Trained(update=model.select(ENCODER) - request.encoder, examples=len(client.train))


@algorithm
class FedRep:
    """A common encoder and personal heads, trained in turn: many head epochs, few encoder epochs."""

    local: LocalTraining = LocalTraining()
    head_epochs: Annotated[int, Ge(1)] = 10  # authors' code: local_ep 11 of which local_rep_ep 1
    encoder_epochs: Annotated[int, Ge(1)] = 1  # epochs of the encoder, after those of the head

    tasks = (train_in_turn,)

    def start(self, server: Server) -> State:
        """One random encoder and one random head for all."""
        return State(params=server.initial_params())

    def round(self, state: State, server: Server) -> State:
        """Average the encoders; heads stay where they are."""
        first, again = (
            TrainInTurn(
                encoder=state.params.select(ENCODER),
                head=start,
                head_training=self._epochs(self.head_epochs),
                encoder_training=self._epochs(self.encoder_epochs),
            )
            for start in (state.params.select(HEAD), None)  # the starting head travels once to each client
        )
        requests = {client: again if client in state.started else first for client in server.cohort}
        means = server.ask_mean(train_in_turn, requests)
        encoder = add_mean(state.params.select(ENCODER), means)
        started = tuple(sorted({*state.started, *(c for mean in means.values() for c in mean.clients)}))
        return State(params=state.params.replace(encoder), started=started)

    def deploy(self, state: State, client: str) -> Deployment:
        """The common encoder under the client's head, after the head has been fitted to it once more."""
        head_training = self._epochs(self.head_epochs)
        return Deployment(
            models=(state.params,), remembered=HEAD, adapt=head_training, adapt_prefixes=(HEAD,)
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers fit the starting head to the encoder, as `deploy` has everybody do before use."""
        return state

    def _epochs(self, epochs: int) -> LocalTraining:
        return dataclasses.replace(self.local, local_epochs=epochs, local_steps=0)
