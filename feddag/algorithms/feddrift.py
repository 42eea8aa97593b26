# SPDX-License-Identifier: Apache-2.0
"""FedDrift (Jothimurugesan et al., 2023): a client whose loss jumps leaves its cluster; clusters may merge.

Every `period` rounds, the method's time step, all clients compare all models on their own training data:

    drift    least loss > loss at the step before + δ: the client opens a cluster of its own
    assign   else it belongs to the model of least loss
    merge    clusters i, j with max(L_ij - L_ii, L_ji - L_jj) < δ become one (complete linkage);
             L_ij is the mean loss of model i on the data of cluster j
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from feddag.core.algorithm import Server, algorithm, broadcast, place_cohort
from feddag.core.averaging import add_means, mean
from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.learning.choose import Compare, Compared, compare
from feddag.learning.train import train, train_own


@message
class State:
    """Who belongs together, a model for each cluster, and the loss of each client at the last step."""

    clusters: Clusters
    models: tuple[Params, ...] = public()
    losses: dict[str, float] = sensitive("losses", default_factory=dict)


@algorithm
class FedDrift:
    """One model at first; clients whose loss jumps open clusters, and clusters that agree merge."""

    local: LocalTraining = LocalTraining()
    delta: Annotated[float, Ge(0)] = 0.1  # δ, the loss that makes a drift, and below which clusters merge
    period: Annotated[int, Ge(1)] = 5  # rounds of a time step; published: data come in steps of their own
    most_clusters: Annotated[int, Ge(1)] = 20  # clusters that may be opened; the models go to every client

    tasks = (train, compare)
    needs_single_updates: ClassVar[str] = "compares clients by their own losses"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """Everybody in one cluster."""
        return State(clusters=Clusters(members=(server.clients,)), models=(server.initial_params(),))

    def round(self, state: State, server: Server) -> State:
        """FedAvg in every cluster; at the end of a time step the clusters are looked at first."""
        if server.round % self.period == 0:
            state = self.step(state, server)
        state, cohort = place_cohort(self.onboard, state, lambda s: s.clusters.labels(), server)
        labels = state.clusters.labels()
        means = server.ask_mean(train, train_own(state.models, labels, cohort, self.local), labels)
        return replace(state, models=add_means(state.models, means))

    def step(self, state: State, server: Server) -> State:
        """Drift, assignment and merging, for the clients that are there."""
        request = Compare(models=state.models)
        known = [c for c in server.clients if c in state.clusters.labels()]
        replies = server.ask(compare, broadcast(request, known), quorum=0.0)
        labels, models = state.clusters.labels(), list(state.models)
        opened = []
        for client, reply in replies.items():
            best = int(np.argmin(reply.losses))
            labels[client] = best
            jumped = float(reply.losses[best]) > state.losses.get(client, np.inf) + self.delta
            if jumped and len(models) < self.most_clusters:
                labels[client] = len(models)
                opened.append(client)
                models.append(state.models[best])
        losses = {c: float(reply.losses.min()) for c, reply in replies.items() if c not in opened}
        kept = {c: loss for c, loss in state.losses.items() if c not in replies}
        distances_ZZ = cluster_distances(replies, labels, len(state.models))
        merged = merge(distances_ZZ, self.delta)
        samples = _samples(replies, labels, len(models))
        groups = [*merged, *([z] for z in range(len(state.models), len(models)))]
        number = {z: k for k, group in enumerate(groups) for z in group}
        server.note(num_clusters=len(groups), drifted=opened, merged=len(state.models) - len(merged))
        joined = tuple(_joined([models[z] for z in group], [samples[z] for z in group]) for group in groups)
        labels = {client: number[z] for client, z in labels.items()}
        return _without_empty(labels, joined, {**kept, **losses})

    def deploy(self, state: State, client: str) -> Deployment:
        """The model of the client's cluster; of the largest one for a client that was never asked."""
        sizes = [len(members) for members in state.clusters.members]
        z = state.clusters.labels().get(client, int(np.argmax(sizes)))
        return Deployment(models=(state.models[z],))

    def clustering(self, state: State) -> Clustering:
        """The clusters in use."""
        how = f"Clients whose training loss grew by {self.delta:g} opened clusters; those that agree merged."
        return Clustering(clusters=state.clusters, how=how)

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers join the cluster whose model has the least loss on their training data."""
        clusters = state.clusters
        for client, reply in server.ask(compare, broadcast(Compare(models=state.models), newcomers)).items():
            clusters = clusters.add(client, int(np.argmin(reply.losses)))
        return replace(state, clusters=clusters)


def cluster_distances(replies: Mapping[str, Compared], labels: Mapping[str, int], count: int) -> np.ndarray:
    """max(L_ij - L_ii, L_ji - L_jj, 0) of the old clusters; infinite where nobody can tell."""
    losses_ZZ = np.full((count, count), np.nan)  # model i on the data of cluster j
    for j in range(count):
        members = [reply for client, reply in replies.items() if labels[client] == j and reply.examples]
        if members:
            sizes = [reply.examples for reply in members]
            losses_ZZ[:, j] = np.average([reply.losses for reply in members], axis=0, weights=sizes)
    gaps_ZZ = losses_ZZ - np.diag(losses_ZZ)[None, :]  # L_ij - L_jj
    distances_ZZ = np.maximum(np.maximum(gaps_ZZ, gaps_ZZ.T), 0)
    return np.where(np.isnan(distances_ZZ), np.inf, distances_ZZ)


def merge(distances_ZZ: np.ndarray, delta: float) -> list[list[int]]:
    """Groups of clusters by complete linkage, nearest first, while the distance is below δ."""
    groups = [[z] for z in range(len(distances_ZZ))]
    while len(groups) > 1:
        pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
        far = [float(distances_ZZ[np.ix_(groups[i], groups[j])].max()) for i, j in pairs]
        nearest = int(np.argmin(far))
        if not far[nearest] < delta:
            break
        i, j = pairs[nearest]
        groups[i] += groups.pop(j)
    return groups


def _samples(replies: Mapping[str, Compared], labels: Mapping[str, int], count: int) -> list[int]:
    return [sum(r.examples for c, r in replies.items() if labels[c] == z) for z in range(count)]


def _joined(models: Sequence[Params], samples: Sequence[int]) -> Params:
    return models[0] if len(models) == 1 else mean(models, samples if sum(samples) else None)


def _without_empty(labels: Mapping[str, int], models: Sequence[Params], losses: dict[str, float]) -> State:
    """The state without clusters that everybody has left."""
    used = sorted(set(labels.values()))
    members = tuple(tuple(c for c, z in labels.items() if z == k) for k in used)
    return State(clusters=Clusters(members=members), models=tuple(models[k] for k in used), losses=losses)
