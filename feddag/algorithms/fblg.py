# SPDX-License-Identifier: Apache-2.0
"""FBLG (Xu et al., 2024): one global model; each round trains high-loss clients that differ from each other.

A graph over clients, made once from how their locally trained models see the same noise, gives distances D.
Each round maximises Σ_{i<j} u_i u_j D_ij / N'(N' − 1) + Σ_i p_i u_i over the N' clients of highest loss.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import scipy
import torch
from annotated_types import Ge, Gt, Le

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_mean
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.choose import Compare, compare
from feddag.learning.modules import LoadedNetwork
from feddag.learning.sgd import sgd
from feddag.learning.train import Train, train

EDGE = 0.01  # least similarity of neighbours; authors' code
WIDTH = 0.1  # of the length exp(−sim² / 0.1); authors' code


@message
class EmbedNoise:
    """Train this model, then send its mean features of noise samples."""

    params: Params = public()
    local: LocalTraining
    noise: int  # number of noise samples


def _num_features(known: Known) -> int:
    return known.network_layout("projected", ("projector.",)).shapes[0][1]  # it takes the features


@message
class Embedding:
    """The mean features of the noise as a distribution."""

    embedding: np.ndarray = sensitive("embedding", shape=(_num_features,), dtype="float64", least=0)


@message
class State:
    """The global model, and the distances between the clients of the graph."""

    params: Params = public()
    clients: tuple[str, ...]
    distances_NN: np.ndarray = sensitive("embedding")


@client_task
def embed_noise(request: EmbedNoise, client: Client) -> Embedding:
    """Features of standard normal inputs, the same for everybody, under the locally trained encoder."""
    trained = sgd(client, request.params, request.local)
    shape = (request.noise, *client.train.inputs(slice(0, 1)).shape[1:])
    noise = torch.randn(shape, generator=client.shared_seed.torch())
    model = LoadedNetwork(client.network("single"), trained)
    with torch.no_grad():
        encoded = model.module.encode("primary", noise.to(model.device))  # type: ignore[operator]
        features = encoded.relu().double().mean(0).cpu().numpy()
    features = features + 1e-12  # an encoder that is silent on noise still gives a distribution
    return Embedding(embedding=features / features.sum())


def graph_distances(embeddings_NF: np.ndarray) -> np.ndarray:
    """Shortest paths between clients whose similar neighbours are near, scaled to [0, 1]."""
    # scipy gives the square root, in nats; the divergence is meant in bits
    root_NN = scipy.spatial.distance.cdist(embeddings_NF, embeddings_NF, "jensenshannon")
    divergence_NN = root_NN**2 / np.log(2)
    similarity_NN = 1 / (1 + np.nan_to_num(divergence_NN))
    spread = max(float(np.ptp(similarity_NN)), 1e-30)
    similarity_NN = 1 - (similarity_NN.max() - similarity_NN) / spread
    lengths_NN = np.where(similarity_NN > EDGE, np.exp(-(similarity_NN**2) / WIDTH), np.inf)
    np.fill_diagonal(lengths_NN, 0)
    paths_NN = scipy.sparse.csgraph.shortest_path(
        np.where(np.isinf(lengths_NN), 0, lengths_NN), method="D", directed=False
    )
    reachable = np.isfinite(paths_NN)
    longest = paths_NN[reachable].max(initial=0)
    return np.where(reachable, paths_NN / longest if longest else 0, 1)


def select(distances_NN: np.ndarray, shares_N: np.ndarray, count: int) -> list[int]:
    """Greedy choice of `count` items, then the best swap as long as there is one that helps."""
    n = len(shares_N)
    weights_NN = distances_NN / max(n * (n - 1), 1)
    chosen: list[int] = []
    for _ in range(min(count, n)):
        gain_N = shares_N + weights_NN[:, chosen].sum(1)
        gain_N[chosen] = -np.inf
        chosen.append(int(gain_N.argmax()))
    while len(chosen) < n:
        outside = [i for i in range(n) if i not in chosen]
        worth_N = shares_N + weights_NN[:, chosen].sum(1)
        # Leaving out a and taking in b also loses the pair (a, b).
        gain = worth_N[outside][None] - weights_NN[np.ix_(chosen, outside)] - worth_N[chosen][:, None]
        a, b = np.unravel_index(gain.argmax(), gain.shape)
        if gain[a, b] <= 1e-12:
            break
        chosen[a] = outside[b]
    return sorted(chosen)


@algorithm
class FBLG:
    """FedAvg that chooses its clients: high loss, much data, and far from each other in a client graph."""

    local: LocalTraining = LocalTraining()
    candidates: Annotated[float, Gt(0), Le(1)] = 0.5  # share of highest-loss clients; authors: 0.5 or 0.4
    noise: Annotated[int, Ge(1)] = 64  # size of the noise batch; the authors' batch size

    tasks = (embed_noise, compare, train)

    def start(self, server: Server) -> State:
        """Everybody trains once, for the graph alone: the global model stays as it is."""
        params = server.initial_params()
        request = EmbedNoise(params=params, local=self.local, noise=self.noise)
        replies = server.ask(embed_noise, broadcast(request, server.clients))
        distances_NN = graph_distances(np.stack([reply.embedding for reply in replies.values()]))
        return State(params=params, clients=tuple(replies), distances_NN=distances_NN)

    def round(self, state: State, server: Server) -> State:
        """Ask all for the loss, train as many clients as a cohort has, average."""
        if server.spent(1):  # everybody trained at the start
            return state
        replies = server.ask(compare, broadcast(Compare(models=(state.params,)), server.clients))
        losses = {client: float(reply.losses[0]) for client, reply in replies.items()}
        count = len(server.cohort)
        most = max(count, int(self.candidates * len(server.clients) + 1e-9))
        highest = sorted(sorted(losses, key=lambda c: (-losses[c], c))[:most])
        sizes = np.array([replies[client].examples for client in highest], dtype=np.float64)
        picked = select(_between(state, highest), sizes / max(sizes.sum(), 1), count)
        chosen = [highest[i] for i in picked]
        server.note(chosen=chosen)
        request = Train(params=state.params, local=self.local)
        params = add_mean(state.params, server.ask_mean(train, broadcast(request, chosen)))
        return State(params=params, clients=state.clients, distances_NN=state.distances_NN)

    def deploy(self, state: State, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers use the global model."""
        return state


def _between(state: State, clients: Sequence[str]) -> np.ndarray:
    """Distances between some clients; one that is not in the graph is as far as can be."""
    position: Mapping[str, int] = {client: i for i, client in enumerate(state.clients)}
    known = [client in position for client in clients]
    rows = [position.get(client, 0) for client in clients]
    distances = np.where(np.outer(known, known), state.distances_NN[np.ix_(rows, rows)], 1.0)
    np.fill_diagonal(distances, 0)
    return distances
