# SPDX-License-Identifier: Apache-2.0
"""CFL-GP (Kim, Kim, de Veciana, 2024): clustered learning by gradient-based partitioning.

Every P rounds all clients train one of the K models, the criterion; the models take turns. The model gap Δθ
of a client at each criterion is its column of the profile G, a running mean; k-means on G's leading left
singular directions assigns clients to models. Before the first clustering there is one model: gaps at a
random model say little.
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
from feddag.core.averaging import add_means, step
from feddag.core.clustering import Clustering, View
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.train import Train, Trained, train, train_own


@message
class State:
    """Models, who uses which, and the profile of model gaps."""

    models: tuple[Params, ...] = public()  # one until the first clustering
    assignment: dict[str, int]
    profile_NKD: np.ndarray = sensitive("update")  # mean gap of each client at each criterion
    counts_NK: np.ndarray = public()  # how often it was told
    directions_FM: np.ndarray = sensitive("update")  # leading left singular vectors of the profile
    points_NF: np.ndarray = sensitive("update")  # the coordinates of the clients along them
    criteria: tuple[Params, ...] = public()  # the model each block of the profile was last taken at
    turn: int = 0  # which model is the next criterion


def masked(gap: Params, mask: int, compression: int) -> np.ndarray:
    """1 of `compression` coordinates of a model gap, at random but the same for everybody."""
    vector = gap.parameters.numpy()
    if compression == 1:
        return vector
    size = max(1, len(vector) // compression)
    return vector[np.sort(Seed(mask).numpy().choice(len(vector), size=size, replace=False))]


@algorithm
class CFLGP:
    """K models; clients are assigned by clustering what training changes in all K models."""

    local: LocalTraining = LocalTraining()
    num_clusters: Annotated[int, Ge(1)] | Literal["auto"] = 4  # authors' code: 4; auto: best silhouette
    max_clusters: Annotated[int, Ge(2)] = 8  # auto: the largest number that is tried
    period: Annotated[int, Ge(1)] = 2  # P, authors' code
    # T_cl: assignments are fixed after this round. Authors: 10. Not set: a fifth of the rounds, at most 10,
    # because all clients train in a clustering round.
    clustering_rounds: Annotated[int, Ge(1)] | None = None
    compression: Annotated[int, Ge(1)] = 1  # the server keeps one coordinate of this many; authors: 100, off
    normalise: bool = False  # gaps of length 1; authors: commented out, so large losses dominate

    tasks = (train,)
    needs_single_updates: ClassVar[str] = "compares the updates of single clients"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """One random model for everybody, and an empty profile."""
        nothing = np.zeros((0, 0), dtype=np.float32)
        return State(
            models=(server.initial_params(),),
            assignment=dict.fromkeys(sorted(server.clients), 0),
            profile_NKD=nothing[:, :, None],
            counts_NK=nothing.astype(np.int64),
            directions_FM=nothing,
            points_NF=nothing,
            criteria=(),
        )

    def clustering_in(self, num_rounds: int) -> range:
        """The rounds in which clients are assigned anew; with one model there is nothing to assign."""
        last = min(10, max(self.period, num_rounds // 5))
        last = last if self.clustering_rounds is None else self.clustering_rounds
        return range(self.period, last + 1 if self.num_clusters != 1 else 0, self.period)

    def acts_from(self, num_rounds: int, participation: float = 1.0) -> int:
        """The round of the first clustering."""
        return min(self.clustering_in(num_rounds), default=1)

    def round(self, state: State, server: Server) -> State:
        """Train the own cluster's model; in clustering rounds everybody trains the criterion too."""
        state, cohort = place_cohort(self.onboard, state, lambda s: s.assignment, server)
        labels, told = state.assignment, dict[str, Trained]()
        if server.round in self.clustering_in(server.num_rounds):
            request = Train(params=state.models[state.turn], local=self.local)
            told = server.ask(train, broadcast(request, [c for c in server.clients if c in labels]))
            cohort = [c for c in cohort if labels[c] != state.turn]  # the others have trained their model
        requests = train_own(state.models, labels, cohort, self.local)
        means = server.ask_mean(train, requests, labels) if requests else {}
        stepped = replace(state, models=add_means(state.models, means))
        return self._cluster(stepped, state.models[state.turn], told, server) if told else stepped

    def _cluster(self, state: State, criterion: Params, told: Mapping[str, Trained], server: Server) -> State:
        """Add the gaps to the running means, assign anew, and go on to the next criterion."""
        gaps = {client: self._column(reply.update, server) for client, reply in told.items()}
        if first := not len(state.profile_NKD):
            state = self._with_profile(state, gaps, server)
        profile, counts, turn = state.profile_NKD.copy(), state.counts_NK.copy(), state.turn
        clients, count = [*state.assignment][: len(profile)], len(state.models)  # newcomers have no row
        for i, client in enumerate(clients):
            if client in gaps:
                counts[i, turn] += 1
                profile[i, turn] += (gaps[client] - profile[i, turn]) / counts[i, turn]
        columns = comparable(profile, counts).reshape(len(clients), -1)
        directions = leading_directions(columns, count if isinstance(self.num_clusters, int) else None)
        points = columns @ directions.T
        former = np.array([state.assignment[client] for client in clients])
        labels = matched_labels(kmeans_labels(points, count, self._seed(server)), former, count)
        assignment = {**state.assignment, **dict(zip(clients, labels.tolist(), strict=True))}
        sizes = np.bincount(labels, minlength=count)
        server.note(num_clusters=int((sizes > 0).sum()), sizes=sizes.tolist(), criterion=turn)
        fixed = server.round == max(self.clustering_in(server.num_rounds))
        return State(
            # At first all models are the criterion: each begins with what its members made of it.
            models=tuple(
                step(model, {c: reply for c, reply in told.items() if assignment[c] == k})
                if first or k == turn
                else model
                for k, model in enumerate(state.models)
            ),
            assignment=assignment,
            profile_NKD=profile[:0] if fixed else profile,
            counts_NK=counts,
            directions_FM=directions,
            points_NF=points,
            criteria=tuple(criterion if k == turn else old for k, old in enumerate(state.criteria)),
            turn=(turn + 1) % count,
        )

    def _with_profile(self, state: State, gaps: Mapping[str, np.ndarray], server: Server) -> State:
        """K equal models and an empty profile for them; K may have to be found."""
        rows = np.stack([*gaps.values()])
        count = self.num_clusters
        if not isinstance(count, int):
            count = best_count(rows @ leading_directions(rows, None).T, self.max_clusters, self._seed(server))
        shape = (len(state.assignment), count, rows.shape[1])
        models = state.models * count
        profile, counts = np.zeros(shape, dtype=np.float32), np.zeros(shape[:2], dtype=np.int64)
        return replace(state, models=models, criteria=models, profile_NKD=profile, counts_NK=counts)

    def deploy(self, state: State, client: str) -> Deployment:
        """The assigned model; an unknown client takes the one that fits its data best."""
        known = client in state.assignment
        return Deployment(models=(state.models[state.assignment[client]],) if known else state.models)

    def clustering(self, state: State) -> Clustering:
        """The assignment in use, and distances along the leading directions of the profile."""
        profiled = tuple(state.assignment)[: len(state.points_NF)]  # newcomers have no point
        points_NF = state.points_NF
        distances_NN = np.linalg.norm(points_NF[:, None] - points_NF[None, :], axis=2)
        return Clustering(
            clusters=Clusters.from_labels([*state.assignment], state.assignment.values()),
            how=f"k-means on what training changes in {len(state.models)} models in turn.",
            clients=profiled,
            views={"Profile of model gaps": View(distances_NN, "distance")} if profiled else {},
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers train the models of the profile, and join the nearest centroid."""
        if not len(state.points_NF):  # one model so far
            return replace(state, assignment={**state.assignment, **dict.fromkeys(newcomers, 0)})
        blocks = complete_blocks(state.counts_NK)
        labels = np.array([*state.assignment.values()])[: len(state.points_NF)]
        centroids = {int(k): state.points_NF[labels == k].mean(0) for k in np.unique(labels)}
        columns: dict[str, dict[int, np.ndarray]] = {}
        for k in blocks.tolist():
            request = Train(params=state.criteria[k], local=self.local)
            for client, reply in server.ask(train, broadcast(request, newcomers)).items():
                columns.setdefault(client, {})[k] = self._column(reply.update, server)
        assignment = dict(state.assignment)
        for client, told in columns.items():
            if len(told) == len(blocks):  # who failed once is asked again later
                column_KD = np.zeros((len(state.models), *told[blocks[0]].shape), dtype=np.float32)
                column_KD[blocks] = [told[k] for k in blocks.tolist()]
                point = state.directions_FM @ column_KD.reshape(-1)
                assignment[client] = min(centroids, key=lambda k: float(np.linalg.norm(point - centroids[k])))
        return replace(state, assignment=assignment)

    def _column(self, update: Params, server: Server) -> np.ndarray:
        gap = masked(update, (server.seed / "cfl_gp" / "mask").integer(), self.compression)
        norm = float(np.linalg.norm(gap)) if self.normalise else 1.0
        return gap / (norm or 1.0)

    def _seed(self, server: Server) -> int:
        return (server.seed / "cfl_gp" / "k-means" / server.round).integer() % 2**32
