# SPDX-License-Identifier: Apache-2.0
"""FedGWC (Licciardi et al., 2025): clients whose loss curves agree belong together.

Each participant is rewarded for a loss near its cluster's mean; rewards feed an interaction matrix. When
it has settled, spectral clustering puts clients together that see the others in a similar way.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import scipy
from annotated_types import Ge, Gt

from feddag.clustering.spectral import davies_bouldin, spectral_embedding, spectral_labels
from feddag.core.algorithm import Server, algorithm, broadcast, place_cohort
from feddag.core.averaging import step
from feddag.core.clustering import Clustering, View
from feddag.core.clusters import Clusters
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.choose import Compare, compare
from feddag.learning.sgd import sgd
from feddag.learning.train import Train

MOST_PARTS = 4  # authors' code: min(·, 5), half-open


def _num_losses(known: Known) -> int:
    local = known.request.local
    return 1 if local.local_steps else local.local_epochs


@message
class TrainedWithLosses:
    """What training changed, and the mean loss of every epoch."""

    update: Params = sensitive("update", like="params")
    examples: int = sensitive("counts", least=0)
    losses: np.ndarray = sensitive("losses", shape=(_num_losses,), dtype="float64", least=0)


@message
class Leaf:
    """A cluster: its model, how its members (in order) see each other, and how settled that is."""

    params: Params = public()
    interactions_CC: np.ndarray = sensitive("losses")
    mse: float = 1.0
    patience: int = 0


@message
class State:
    """Who is in which cluster, and the clusters."""

    clusters: Clusters
    leaves: tuple[Leaf, ...]


@client_task
def train_with_losses(request: Train, client: Client) -> TrainedWithLosses:
    """Train the received model on own data, and tell the loss curve."""
    curve: list[float] = []
    trained = sgd(client, request.params, request.local, epoch_losses=curve)
    if (
        request.local.local_steps
    ):  # the same number of steps is another number of epochs for each client: send one loss
        curve = [float(np.mean(curve))]
    return TrainedWithLosses(
        update=trained - request.params, examples=len(client.train), losses=np.array(curve)
    )


def rewards(losses_SL: np.ndarray, sizes_S: Sequence[int]) -> np.ndarray:
    """ω: mean over epochs of exp(−(loss − m)² / 2v), with the size-weighted mean m and variance v."""
    shares = np.asarray(sizes_S, dtype=np.float64) / np.sum(sizes_S)
    deviations_SL = losses_SL - shares @ losses_SL
    variance_L = shares @ deviations_SL**2
    return np.exp(-(deviations_SL**2) / (2 * np.where(variance_L > 0, variance_L, 1))).mean(1)


def affinity(interactions_CC: np.ndarray, gamma: float) -> np.ndarray:
    """W: how alike two clients see the others; what they say of themselves and each other is left out."""
    seen = interactions_CC.T
    seen = (seen - seen.min()) / max(float(np.ptp(seen)), 1e-30)
    own = np.diag(seen)
    # ‖v_i − v_j‖² over all entries but the i-th and the j-th
    distances = (
        scipy.spatial.distance.cdist(seen, seen, "sqeuclidean")
        - (own[:, None] - seen.T) ** 2
        - (seen - own[None, :]) ** 2
    )
    np.fill_diagonal(distances, 0)
    return np.exp(-gamma * np.maximum(distances, 0))


def best_parts(affinity_CC: np.ndarray, most: int, seed: int) -> np.ndarray | None:
    """The division into 2 to `most` parts with the least Davies–Bouldin index, if that is below 1."""
    found: list[tuple[float, int, np.ndarray]] = []
    for n in range(2, min(most, len(affinity_CC) - 1) + 1):
        labels = spectral_labels(affinity_CC, n, seed)
        # The first vector of the embedding is the same number for everybody: it tells nobody apart.
        points = spectral_embedding(affinity_CC, n, seed)[:, 1:]
        found.append((davies_bouldin(points, labels), n, labels))
    best = min(found, key=lambda entry: entry[:2], default=None)
    return best[2] if best and best[0] < 1 else None


@algorithm
class FedGWC:
    """One model at first; clusters split when an interaction matrix of loss curves has settled."""

    local: LocalTraining = LocalTraining()
    gamma: Annotated[float, Gt(0)] = 0.1  # of the affinity; authors' code
    # A matrix has settled below this. The smoothed change starts at 1 and shrinks by the share of clients
    # that take part, so ε is a timer: the authors' 1e-5 means 200 rounds. Not set: a quarter of the rounds.
    epsilon: Annotated[float, Ge(0)] | None = None

    tasks = (train_with_losses, compare)
    needs_single_updates: ClassVar[str] = "weighs clients by their own losses and updates"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """Everybody in one cluster, nobody nearer to anybody."""
        n = len(server.clients)
        leaf = Leaf(params=server.initial_params(), interactions_CC=np.full((n, n), 1 / n**2))
        return State(clusters=Clusters(members=(server.clients,)), leaves=(leaf,))

    def least_change(self, num_rounds: int, participation: float) -> float:
        """ε: what a change of 1 has shrunk to after a quarter of the rounds, unless it is set."""
        return (1 - participation) ** (num_rounds / 4) if self.epsilon is None else self.epsilon

    def acts_from(self, num_rounds: int, participation: float) -> int:
        """The first round in which a cluster can have settled, at the earliest."""
        epsilon = self.least_change(num_rounds, participation)
        patience = max(1, round(1 / participation))
        if participation >= 1 or epsilon >= 1:
            return patience
        return math.floor(math.log(epsilon) / math.log(1 - participation)) + patience if epsilon else 10**9

    def round(self, state: State, server: Server) -> State:
        """FedAvg and new interactions in each cluster, then split those that have settled."""
        state, cohort = place_cohort(self.onboard, state, lambda s: s.clusters.labels(), server)
        requests = [Train(params=leaf.params, local=self.local) for leaf in state.leaves]
        labels = state.clusters.labels()
        replies = server.ask(train_with_losses, {c: requests[labels[c]] for c in cohort})
        clusters, leaves = state.clusters, list(state.leaves)
        for k, answers in state.clusters.group(replies).items():
            epsilon = self.least_change(server.num_rounds, len(server.cohort) / len(server.clients))
            leaves[k] = self._interact(leaves[k], state.clusters.members[k], answers, epsilon)
            size, heard = len(state.clusters.members[k]), len(answers)
            # Authors: a cluster that is no larger than a cohort stays whole.
            if size <= len(server.cohort) or leaves[k].patience < max(1, round(size / heard)):
                continue
            most = min(size // heard, MOST_PARTS)
            seed = (server.seed / "fedgwc" / server.round / k).integer() % 2**32
            parts = best_parts(affinity(leaves[k].interactions_CC, self.gamma), most, seed)
            if parts is None:  # no good division: settle anew
                leaves[k] = Leaf(params=leaves[k].params, interactions_CC=leaves[k].interactions_CC)
                continue
            clusters, leaves = _split(clusters, leaves, k, parts)
        server.note(num_clusters=len(clusters), mse=[leaf.mse for leaf in leaves])
        return State(clusters=clusters, leaves=tuple(leaves))

    def _interact(
        self, leaf: Leaf, members: tuple[str, ...], answers: dict[str, TrainedWithLosses], epsilon: float
    ) -> Leaf:
        """The leaf after one round: averaged model, P_ij ← (1 − α)P_ij + α·ω_i/Σω for those who took part."""
        sizes = [answer.examples for answer in answers.values()]
        omega_S = rewards(np.stack([answer.losses for answer in answers.values()]), sizes)
        alpha = len(answers) / len(members)
        seen = np.ix_(*[[members.index(client) for client in answers]] * 2)
        interactions_CC = leaf.interactions_CC.copy()
        interactions_CC[seen] += alpha * ((omega_S / omega_S.sum())[:, None] - interactions_CC[seen])
        change = float(np.mean((interactions_CC[seen] - leaf.interactions_CC[seen]) ** 2))
        mse = (1 - alpha) * leaf.mse + alpha * change
        patience = leaf.patience + 1 if mse < epsilon else 0
        params = step(leaf.params, answers)
        return Leaf(params=params, interactions_CC=interactions_CC, mse=mse, patience=patience)

    def deploy(self, state: State, client: str) -> Deployment:
        """The model of the client's cluster; outside of all clusters, whichever fits its data best."""
        labels = state.clusters.labels()
        chosen = (state.leaves[labels[client]],) if client in labels else state.leaves
        return Deployment(models=tuple(leaf.params for leaf in chosen))

    def clustering(self, state: State) -> Clustering:
        """The clusters, and how unlike their members see each other; members of two clusters never meet."""
        clients = tuple(client for members in state.clusters.members for client in members)
        unlike_NN = np.ones((len(clients), len(clients)))
        start = 0
        for leaf in state.leaves:
            rows = slice(start, start + len(leaf.interactions_CC))
            unlike_NN[rows, rows] = 1 - affinity(leaf.interactions_CC, self.gamma)
            start = rows.stop
        return Clustering(
            clusters=state.clusters,
            how="Clients whose loss curves agree stay together; a settled cluster is split.",
            clients=clients,
            views={"Loss curves": View(unlike_NN, "0 alike, 1 unlike")},
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers join the cluster whose model has the least loss on their training data."""
        models = tuple(leaf.params for leaf in state.leaves)
        clusters, leaves = state.clusters, list(state.leaves)
        for client, reply in server.ask(compare, broadcast(Compare(models=models), newcomers)).items():
            k = int(np.argmin(reply.losses))
            clusters = clusters.add(client, k)
            leaves[k] = _with_member(leaves[k], clusters.members[k].index(client))
        return State(clusters=clusters, leaves=tuple(leaves))

    def forget(self, state: State, clients: tuple[str, ...]) -> State:
        """The state without some members, none of whom is the last of a cluster."""
        leaves, members = [], []
        for leaf, group in zip(state.leaves, state.clusters.members, strict=True):
            rows = [i for i, c in enumerate(group) if c not in clients]
            leaves.append(replace(leaf, interactions_CC=leaf.interactions_CC[np.ix_(rows, rows)]))
            members.append(tuple(group[i] for i in rows))
        return State(clusters=Clusters(members=tuple(members)), leaves=tuple(leaves))


def _split(clusters: Clusters, leaves: list[Leaf], k: int, parts: np.ndarray) -> tuple[Clusters, list[Leaf]]:
    """Cluster k divided; children inherit the model and their part of the matrix."""
    members = np.array(clusters.members[k])
    children = [
        Leaf(params=leaves[k].params, interactions_CC=leaves[k].interactions_CC[np.ix_(rows, rows)])
        for rows in (np.flatnonzero(parts == part) for part in np.unique(parts))
    ]
    names = [members[parts == part].tolist() for part in np.unique(parts)]
    return clusters.split(k, *names), [*leaves[:k], children[0], *leaves[k + 1 :], *children[1:]]


def _with_member(leaf: Leaf, position: int) -> Leaf:
    """The leaf with one more member, of whom nothing is known: mean interactions."""
    matrix = leaf.interactions_CC
    matrix = np.insert(matrix, position, matrix.mean(0), axis=0)
    matrix = np.insert(matrix, position, matrix.mean(1), axis=1)
    return Leaf(params=leaf.params, interactions_CC=matrix, mse=leaf.mse, patience=leaf.patience)
