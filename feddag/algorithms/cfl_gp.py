# SPDX-License-Identifier: Apache-2.0
"""CFL-GP (Kim, Kim, de Veciana, 2024): clustered learning by gradient-based partitioning.

Every P rounds, clients send their gradient at one of the K models, the criterion; the models take turns.
What a client has sent is its column of the profile G; k-means on G's leading left singular directions
assigns clients to models.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from feddag.clustering.profiles import (
    best_count,
    comparable,
    complete_blocks,
    leading_directions,
    matched_labels,
)
from feddag.clustering.spectral import kmeans_labels
from feddag.core.algorithm import Server, algorithm, broadcast, place_cohort
from feddag.core.averaging import add_means, step_each
from feddag.core.clustering import Clustering, View
from feddag.core.clusters import Clusters
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, Reply, client_task
from feddag.learning.gradients import mean_gradient
from feddag.learning.sgd import sgd
from feddag.learning.train import train, train_own


@message
class AskGradients:
    """Send some coordinates of your gradient at each of these models."""

    models: tuple[Params, ...] = public()
    mask: int  # the number the coordinates are drawn from, the same for everybody and all rounds
    compression: int


def _num_coordinates(known: Known) -> int:
    request = known.request
    model = request.params if hasattr(request, "params") else request.models[0]
    return max(1, model.layout.size // request.compression)


@message
class Gradients:
    """The gradients, one row per model."""

    gradients: np.ndarray = sensitive("update", shape=("#models", _num_coordinates), dtype="float32")


@message
class TrainWithGradient:
    """Train your cluster's model, and send your gradient at the criterion (the same model if left out)."""

    params: Params = public()
    local: LocalTraining
    criterion: Params | None = public()
    mask: int
    compression: int


@message
class TrainedWithGradient:
    """What training changed, and the gradient at the criterion."""

    update: Params = sensitive("update", like="params")
    examples: int = sensitive("counts", least=0)
    gradient: np.ndarray = sensitive("update", shape=(_num_coordinates,), dtype="float32")


@message
class State:
    """Models, who uses which, and the profile of gradients."""

    models: tuple[Params, ...] = public()
    assignment: dict[str, int]
    profile_NKD: np.ndarray = sensitive("update")  # mean of what each client sent; empty when all is fixed
    counts_NK: np.ndarray = public()  # how often it was sent
    directions_FM: np.ndarray = sensitive("update")  # leading left singular vectors of the profile
    points_NF: np.ndarray = sensitive("update")  # the coordinates of the clients along them
    criteria: tuple[Params, ...] = public()  # the model each block of the profile was last taken at
    turn: int = 0  # which model is the next criterion


def masked(gradient: Params, mask: int, compression: int) -> np.ndarray:
    """M / compression coordinates of a gradient, at random but the same for everybody."""
    vector = gradient.vector.numpy()
    if compression == 1:
        return vector
    size = max(1, len(vector) // compression)
    return vector[np.sort(Seed(mask).numpy().choice(len(vector), size=size, replace=False))]


@client_task
def ask_gradients(request: AskGradients, client: Client) -> Gradients:
    """The gradient over all own training samples at each model."""
    rows = [masked(mean_gradient(client, m), request.mask, request.compression) for m in request.models]
    return Gradients(gradients=np.stack(rows))


@client_task
def train_with_gradient(request: TrainWithGradient, client: Client) -> TrainedWithGradient:
    """Train on own data; the gradient is taken before training."""
    gradient = mean_gradient(client, request.criterion or request.params)
    trained = sgd(client, request.params, request.local)
    return TrainedWithGradient(
        update=trained - request.params,
        examples=len(client.train),
        gradient=masked(gradient, request.mask, request.compression),
    )


@algorithm
class CFLGP:
    """K models; clients are assigned by clustering their gradients at all K models."""

    local: LocalTraining = LocalTraining()
    num_clusters: Annotated[int, Ge(1)] | Literal["auto"] = 4  # authors' code: 4; auto: best silhouette
    max_clusters: Annotated[int, Ge(2)] = 8  # auto: the largest number that is tried
    period: Annotated[int, Ge(1)] = 2  # P, authors' code
    clustering_rounds: Annotated[int, Ge(1)] = 10  # T_cl, authors' code; assignments are fixed from then on
    compression: Annotated[int, Ge(1)] = 1  # send one coordinate of this many; authors: 100, switched off
    normalise: bool = False  # gradients of length 1; authors: commented out, so large losses dominate

    tasks = (train, ask_gradients, train_with_gradient)
    needs_single_updates: ClassVar[str] = "compares the gradients of single clients"
    clusters_at_start: ClassVar[bool] = True

    def start(self, server: Server) -> State:
        """Everybody's gradient at one random model, which then is the start of every cluster."""
        model = server.initial_params()
        told = {c: rows[0] for c, rows in self._ask(server, (model,), server.clients).items()}
        rows = np.stack([*told.values()])
        if isinstance(self.num_clusters, int):
            count = self.num_clusters
        else:
            points = rows @ leading_directions(rows, None).T
            count = best_count(points, self.max_clusters, self._seed(server))
        shape = (len(server.clients), count, rows.shape[1])
        state = State(
            models=(model,) * count,
            assignment=dict.fromkeys(sorted(server.clients), 0),
            profile_NKD=np.zeros(shape, dtype=np.float32),
            counts_NK=np.zeros(shape[:2], dtype=np.int64),
            directions_FM=np.zeros((0, 0), dtype=np.float32),
            points_NF=np.zeros((0, 0), dtype=np.float32),
            criteria=(model,) * count,
        )
        return self._cluster(state, model, told, server)

    def round(self, state: State, server: Server) -> State:
        """Train the own cluster's model; in clustering rounds also send the gradient at the criterion."""
        state, cohort = place_cohort(self.onboard, state, lambda s: s.assignment, server)
        labels = state.assignment
        if server.round >= self.clustering_rounds or server.round % self.period:
            plain = train_own(state.models, labels, cohort, self.local)
            return replace(state, models=add_means(state.models, server.ask_mean(train, plain, labels)))
        criterion = state.models[state.turn]
        requests = [
            TrainWithGradient(
                params=model,
                local=self.local,
                criterion=None if k == state.turn else criterion,
                mask=self._mask(server),
                compression=self.compression,
            )
            for k, model in enumerate(state.models)
        ]
        answers = server.ask(train_with_gradient, {c: requests[labels[c]] for c in cohort})
        told = {client: self._scaled(answer.gradient) for client, answer in answers.items()}
        stepped = replace(state, models=step_each(state.models, _by_model(answers, labels)))
        return self._cluster(stepped, criterion, told, server)

    def _cluster(
        self, state: State, criterion: Params, told: Mapping[str, np.ndarray], server: Server
    ) -> State:
        """Add what was sent to the running means, assign anew, and go on to the next criterion."""
        profile, counts = state.profile_NKD.copy(), state.counts_NK.copy()
        clients = [*state.assignment][: len(profile)]  # newcomers come last and have no row
        count, turn = len(state.models), state.turn
        # Means over different models cannot be compared: earlier ones wait until all clients send again.
        everyone = len(told) == len(clients)
        fresh = everyone or not counts[:, turn].any()
        for i, client in enumerate(clients):
            if client in told and (everyone or not counts[i, turn]):
                counts[i, turn] += 1
                profile[i, turn] += (told[client] - profile[i, turn]) / counts[i, turn]
        columns = comparable(profile, counts).reshape(len(clients), -1)
        directions = leading_directions(columns, count if isinstance(self.num_clusters, int) else None)
        points = columns @ directions.T
        former = np.array([state.assignment[client] for client in clients])
        labels = matched_labels(kmeans_labels(points, count, self._seed(server)), former, count)
        sizes = np.bincount(labels, minlength=count)
        server.note(num_clusters=int((sizes > 0).sum()), sizes=sizes.tolist(), criterion=turn)
        fixed = server.round + self.period >= self.clustering_rounds
        return State(
            models=state.models,
            assignment={**state.assignment, **dict(zip(clients, labels.tolist(), strict=True))},
            profile_NKD=profile[:0] if fixed else profile,
            counts_NK=counts,
            directions_FM=directions,
            points_NF=points,
            criteria=tuple(criterion if fresh and k == turn else old for k, old in enumerate(state.criteria)),
            turn=(turn + 1) % count,
        )

    def deploy(self, state: State, client: str) -> Deployment:
        """The assigned model; an unknown client takes the one that fits its data best."""
        known = client in state.assignment
        return Deployment(models=(state.models[state.assignment[client]],) if known else state.models)

    def clustering(self, state: State) -> Clustering:
        """The assignment in use, and distances along the leading directions of the gradient profile."""
        profiled = tuple(state.assignment)[: len(state.points_NF)]  # newcomers have no point
        points_NF = state.points_NF
        distances_NN = np.linalg.norm(points_NF[:, None] - points_NF[None, :], axis=2)
        return Clustering(
            clusters=Clusters.from_labels([*state.assignment], state.assignment.values()),
            how=f"k-means on gradients at {len(state.models)} models in turn.",
            clients=profiled,
            views={"Gradient profile": View(distances_NN, "distance")},
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers send their gradients at the models of the profile, and join the nearest centroid."""
        blocks = complete_blocks(state.counts_NK)
        models = tuple(state.criteria[k] for k in blocks)
        labels = np.array([*state.assignment.values()])[: len(state.points_NF)]
        centroids = {int(k): state.points_NF[labels == k].mean(0) for k in np.unique(labels)}
        assignment = dict(state.assignment)
        for client, rows in self._ask(server, models, newcomers).items():
            column_KD = np.zeros((len(state.models), rows.shape[1]), dtype=np.float32)
            column_KD[blocks] = rows
            point = state.directions_FM @ column_KD.reshape(-1)
            assignment[client] = min(centroids, key=lambda k: float(np.linalg.norm(point - centroids[k])))
        return replace(state, assignment=assignment)

    def _ask(
        self, server: Server, models: tuple[Params, ...], clients: tuple[str, ...]
    ) -> dict[str, np.ndarray]:
        request = AskGradients(models=models, mask=self._mask(server), compression=self.compression)
        replies = server.ask(ask_gradients, broadcast(request, clients))
        return {client: self._scaled(reply.gradients) for client, reply in replies.items()}

    def _scaled(self, gradients: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
        return gradients / np.where(norms > 0, norms, 1) if self.normalise else gradients

    def _mask(self, server: Server) -> int:
        return (server.seed / "cfl_gp" / "mask").integer()

    def _seed(self, server: Server) -> int:
        return (server.seed / "cfl_gp" / "k-means" / server.round).integer() % 2**32


def _by_model(replies: Mapping[str, Reply], labels: Mapping[str, int]) -> dict[int, dict[str, Reply]]:
    """Replies by the model they belong to."""
    grouped: dict[int, dict[str, Reply]] = {}
    for client, reply in replies.items():
        grouped.setdefault(labels[client], {})[client] = reply
    return grouped
