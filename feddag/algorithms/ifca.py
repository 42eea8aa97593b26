# SPDX-License-Identifier: Apache-2.0
"""IFCA (Ghosh et al., 2020): every client picks the model that fits its training data best, and trains it."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar

from annotated_types import Ge

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_means, mean, step
from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import least_loss
from feddag.learning.sgd import sgd
from feddag.learning.train import train, train_own

ENCODER = "primary."


@message
class Offer:
    """The first model whole, and the tensors in which the others differ from it."""

    models: tuple[Params, ...] = public()


@message
class Train:
    """Choose a model and train it."""

    offer: Offer
    local: LocalTraining


@message
class Choice:
    """The chosen model."""

    cluster: int = sensitive("cluster", least=0, below="#models")


@message
class Trained:
    """The chosen model, what training changed in it, and on how many samples."""

    cluster: int = sensitive("cluster", least=0, below="#offer.models")
    update: Params = sensitive("update", like="offer.models.0")
    examples: int = sensitive("counts", least=0)


@message
class State:
    """One model per cluster, and the cluster each client chose last."""

    models: tuple[Params, ...] = public()
    choices: dict[str, int] = sensitive("cluster", default_factory=dict)


@client_task
def choose(request: Offer, client: Client) -> Choice:
    """The model of least loss on own training data."""
    return Choice(cluster=least_loss(client, whole_models(request)))


@client_task
def choose_and_train(request: Train, client: Client) -> Trained:
    """Choose by training loss, then train the chosen model."""
    models = whole_models(request.offer)
    cluster = least_loss(client, models)
    trained = sgd(client, models[cluster], request.local)
    return Trained(cluster=cluster, update=trained - models[cluster], examples=len(client.train))


def whole_models(offer: Offer) -> tuple[Params, ...]:
    """All models, each with its own tensors in place of the first one's."""
    first = offer.models[0]
    return (first, *(first.replace(part) for part in offer.models[1:]))


def with_encoder_of(common: Params, models: Iterable[Params]) -> tuple[Params, ...]:
    """The models, all with the same encoder."""
    encoder = common.select(ENCODER)
    return tuple(model.replace(encoder) for model in models)


@algorithm
class IFCA:
    """Iterative clusters: each client trains the one of K models that fits its data best."""

    local: LocalTraining = LocalTraining()
    num_clusters: Annotated[int, Ge(1)] = 2  # K; authors' code: 2 on CIFAR, 4 on MNIST
    share_encoder: bool = False  # one encoder, averaged over everyone; clusters own their heads
    # Initial models are drawn anew until each is chosen by a fair part of the clients; 1: the first draw.
    initial_draws: Annotated[int, Ge(1)] = 20
    least_share: Annotated[float, Ge(0)] = 0.5  # of 1/K; authors' code: at least 0.7/K (K=2) or 0.4/K (K=4)
    # Ask for the choice alone and then for a mean per model, so that updates can be summed unseen; one more
    # message to each client. Secure aggregation turns it on.
    choose_first: bool = False

    tasks = (choose, choose_and_train, train)
    clusters_at_start: ClassVar[bool] = False

    def without_single_updates(self) -> "IFCA":
        """This method where only sums of updates may be seen."""
        return replace(self, choose_first=True)

    def start(self, server: Server) -> State:
        """Differently initialised models, none of them shunned if that can be had."""
        best, best_share = self.draw(server, 0), -1.0
        if self.num_clusters == 1 or self.initial_draws == 1:
            return best
        for draw in range(self.initial_draws):
            state = self.draw(server, draw)
            replies = server.ask(choose, broadcast(self.offer(state), server.cohort))
            share = min(self.count(reply.cluster for reply in replies.values())) / len(replies)
            if share > best_share:
                best, best_share = state, share
            if share >= self.least_share / self.num_clusters:
                break
        server.note(initial_draws=draw + 1, least_share=best_share)
        return best

    def draw(self, server: Server, draw: int) -> State:
        """A set of initial models."""
        models = server.initial_models(self.num_clusters, draw=draw)
        return State(models=with_encoder_of(models[0], models) if self.share_encoder else models)

    def offer(self, state: State) -> Offer:
        """What goes to every client: a shared encoder only once."""
        first, *rest = state.models
        if self.share_encoder:
            own = [name for name in first if not name.startswith(ENCODER)]
            rest = [model.select(*own) for model in rest]
        return Offer(models=(first, *rest))

    def round(self, state: State, server: Server) -> State:
        """Average each model over those who chose it; one nobody chose stays as it is."""
        models, chosen = (
            self.trained_by_sums(state, server) if self.choose_first else self.trained(state, server)
        )
        choices = self.count(chosen.values())
        used = sum(1 for n in choices if n)
        # An entropy of 0: all chose the same model.
        server.note(num_clusters=used, sizes=choices, choice_entropy=entropy(choices))
        return State(models=models, choices=dict(sorted({**state.choices, **chosen}.items())))

    def trained(self, state: State, server: Server) -> tuple[tuple[Params, ...], dict[str, int]]:
        """Clients choose and train in one go: the new models, and who chose which."""
        request = Train(offer=self.offer(state), local=self.local)
        replies = server.ask(choose_and_train, broadcast(request, server.cohort))
        models = tuple(
            step(model, {client: reply for client, reply in replies.items() if reply.cluster == k})
            for k, model in enumerate(state.models)
        )
        if self.share_encoder:
            models = with_encoder_of(step(state.models[0], replies), models)
        return models, {client: reply.cluster for client, reply in replies.items()}

    def trained_by_sums(self, state: State, server: Server) -> tuple[tuple[Params, ...], dict[str, int]]:
        """The same in two questions: the server sees who chose which model, and the mean update of each."""
        replies = server.ask(choose, broadcast(self.offer(state), server.cohort))
        chosen = {client: reply.cluster for client, reply in replies.items()}
        requests = train_own(state.models, chosen, chosen, self.local)
        means = server.ask_mean(train, requests, chosen)
        models = add_means(state.models, means)
        if self.share_encoder and means:
            found = [m.reply for m in means.values()]
            everyone = mean([reply.update for reply in found], [reply.examples for reply in found])
            models = with_encoder_of(state.models[0] + everyone, models)
        return models, chosen

    def count(self, choices: Iterable[int]) -> list[int]:
        """How many chose each cluster."""
        counts = Counter(choices)
        return [counts[k] for k in range(self.num_clusters)]

    def deploy(self, state: State, client: str) -> Deployment:
        """All models: the client uses the one of least loss on its training data."""
        return Deployment(models=state.models)

    def clustering(self, state: State) -> Clustering:
        """Clients by the model that they chose last; a client that never took part is in no cluster."""
        return Clustering(
            clusters=Clusters.from_labels([*state.choices], state.choices.values()),
            how=f"Every client chose the one of {self.num_clusters} models with the least training loss.",
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers choose as everyone does."""
        replies = server.ask(choose, broadcast(self.offer(state), newcomers))
        chosen = {client: reply.cluster for client, reply in replies.items()}
        server.note(placed=chosen)
        return State(models=state.models, choices=dict(sorted({**state.choices, **chosen}.items())))


def entropy(counts: list[int]) -> float:
    """Entropy of the shares that counts are of their sum, in nats."""
    return sum(-n / sum(counts) * math.log(n / sum(counts)) for n in counts if n)
