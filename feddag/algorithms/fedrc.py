# SPDX-License-Identifier: Apache-2.0
"""FedRC (Guo et al., 2024): clusters that separate concepts, not label or feature skew.

Maximises mean_ij ln Σ_k ω_ik · exp(−f_ijk) / C_yk: the likelihood of a sample under model k is divided by
that cluster's own share of the sample's label, so label skew alone moves nobody to another cluster.
"""

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import step
from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import responsibilities
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained


@message
class Offer:
    """All models, with their label marginals C, (K, classes)."""

    models: tuple[Params, ...] = public()
    marginals: np.ndarray = sensitive("counts")
    clusters: tuple[int, ...]  # the number each cluster was born with; some may be gone


@message
class Train:
    """Weigh the models on own samples, then train each with these weights."""

    offer: Offer
    local: LocalTraining


@message
class Join:
    """Weigh the models on own samples only."""

    offer: Offer
    steps: int


@message
class TrainedAll:
    """What training changed in every model; the weight of each label under it, (K, classes)."""

    updates: tuple[Params, ...] = sensitive("update", like="offer.models")
    label_mass: np.ndarray = sensitive("counts", shape=("#offer.models", "classes"), dtype="float32", least=0)
    examples: int = sensitive("counts", least=0)


@message
class Joined:
    """The client's share in each cluster, (K,)."""

    weights: np.ndarray = sensitive("counts", shape=("#offer.models",), dtype="float32", least=0, most=1.01)


@message
class State:
    """Models and label marginals of the clusters, and each client's last report of label mass."""

    models: tuple[Params, ...] = public()
    marginals: np.ndarray = sensitive("counts")  # C, (K, classes), rows sum to 1
    clusters: tuple[int, ...]
    label_mass: dict[str, np.ndarray] = sensitive("counts")  # client → (K, classes)


@client_task
def train(request: Train, client: Client) -> TrainedAll:
    """E-step with the received models, M-step for each of them."""
    offer = request.offer
    gamma_NK = expect(client, offer)
    weights_NK = torch.from_numpy(gamma_NK.astype(np.float32))
    updates = tuple(
        sgd(client, model, request.local, sample_weights=weights_NK[:, k]) - model
        for k, model in enumerate(offer.models)
    )
    labels_NC = np.eye(client.train.num_classes)[client.train.y]
    label_mass = (gamma_NK.T @ labels_NC).astype(np.float32)
    return TrainedAll(updates=updates, label_mass=label_mass, examples=len(client.train))


@client_task
def join(request: Join, client: Client) -> Joined:
    """Find the own share in frozen clusters."""
    gamma_NK = expect(client, request.offer, request.steps)
    return Joined(weights=shares(gamma_NK).astype(np.float32))


def expect(client: Client, offer: Offer, steps: int = 1) -> np.ndarray:
    """E-steps: γ_jk ∝ ω_k · exp(−f_jk) / C_yk, then ω = mean_j γ_j; both are remembered."""
    columns = list(offer.clusters)
    before = client.memory.get("responsibilities")
    gamma_NK = np.ones((len(client.train), len(columns)))
    if isinstance(before, np.ndarray):
        gamma_NK = before[:, columns]
    for _ in range(steps):
        gamma_NK = responsibilities(client, offer.models, offer.marginals, shares(gamma_NK))
    kept = np.zeros((len(gamma_NK), max(columns) + 1))
    kept[:, columns] = gamma_NK
    client.memory["responsibilities"] = kept
    client.memory["weights"] = kept.mean(0) if len(kept) else np.ones(kept.shape[1])
    return gamma_NK


def shares(gamma_NK: np.ndarray) -> np.ndarray:
    """ω: the mean responsibility of each cluster; uniform when nothing is left of it."""
    mass_K = gamma_NK.sum(0, dtype=np.float64)
    if not mass_K.sum() > 0:
        mass_K = np.ones_like(mass_K)
    return np.maximum(mass_K / mass_K.sum(), np.finfo(np.float64).tiny)  # its logarithm stays finite


def marginals(label_mass: dict[str, np.ndarray]) -> np.ndarray:
    """C_yk = Σ_i a_i[k, y] / Σ_iy a_i[k, y] over all clients' last reports; uniform where none is."""
    mass_KC = np.stack([label_mass[client] for client in sorted(label_mass)]).sum(0, dtype=np.float64)
    mass_KC[mass_KC.sum(1) == 0] = 1.0
    return (mass_KC / mass_KC.sum(1, keepdims=True)).astype(np.float32)


@algorithm
class FedRC:
    """Robust clusters by concept: every client trains all K models, weighted per sample."""

    local: LocalTraining = LocalTraining()
    num_clusters: Annotated[int, Ge(1)] = 3  # K; authors' code
    # adaptive K: each round the least cluster goes if its share is below this; 0 is off (authors: 0.05)
    drop_below: Annotated[float, Ge(0), Lt(1)] = 0.0
    newcomer_steps: Annotated[int, Ge(1)] = 3  # E-steps of a newcomer

    tasks = (train, join)
    needs_single_updates: ClassVar[str] = "weighs the update of each client for each cluster"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """Differently initialised models (equal ones would never part), uniform marginals."""
        k, classes = self.num_clusters, server.problem.num_classes
        return State(
            models=server.initial_models(k),
            marginals=np.full((k, classes), 1 / classes, dtype=np.float32),
            clusters=tuple(range(k)),
            label_mass={},
        )

    def round(self, state: State, server: Server) -> State:
        """Every model becomes the example-weighted mean over all participants."""
        request = Train(offer=offer(state), local=self.local)
        replies = server.ask(train, broadcast(request, server.cohort))
        models = []
        for k, model in enumerate(state.models):
            updates = {c: Trained(update=r.updates[k], examples=r.examples) for c, r in replies.items()}
            models.append(step(model, updates))
        mass = {**state.label_mass, **{c: r.label_mass for c, r in replies.items()}}
        state = replace(state, models=tuple(models), marginals=marginals(mass), label_mass=mass)
        return self.drop(state, server)

    def drop(self, state: State, server: Server) -> State:
        """Adaptive K: without the least cluster, if its share of the responsibilities is too small."""
        mass_K = np.sum([state.label_mass[c].sum(1) for c in sorted(state.label_mass)], axis=0)
        shares_K = mass_K / mass_K.sum()
        server.note(cluster_shares={str(k): float(s) for k, s in zip(state.clusters, shares_K, strict=True)})
        least = int(np.argmin(shares_K))
        if len(state.models) == 1 or shares_K[least] >= self.drop_below:
            return state
        rows = [k for k in range(len(state.models)) if k != least]
        return State(
            models=tuple(state.models[k] for k in rows),
            marginals=state.marginals[rows],
            clusters=tuple(state.clusters[k] for k in rows),
            label_mass={client: mass[rows] for client, mass in state.label_mass.items()},
        )

    def deploy(self, state: State, client: str) -> Deployment:
        """All models, mixed by a fresh expectation step from the shares that the client remembers.

        The shares of its last participation belong to models that have moved on since.
        """
        return Deployment(
            models=state.models,
            weights=(1 / len(state.models),) * len(state.models),
            remembered_weights="weights",
            remembered_entries=state.clusters,
            marginals=tuple(tuple(map(float, row)) for row in state.marginals),
        )

    def clustering(self, state: State) -> Clustering:
        """Clients by their largest share; every client uses a mixture of all models."""
        largest = {client: int(mass.sum(1).argmax()) for client, mass in state.label_mass.items()}
        return Clustering(
            clusters=Clusters.from_labels([*largest], largest.values()),
            how="Every client uses a mixture of all models; it is shown where its share is largest.",
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers find their shares in the frozen clusters."""
        request = Join(offer=offer(state), steps=self.newcomer_steps)
        replies = server.ask(join, broadcast(request, newcomers))
        server.note(newcomer_shares={client: reply.weights.tolist() for client, reply in replies.items()})
        return state


def offer(state: State) -> Offer:
    """What every client gets."""
    return Offer(models=state.models, marginals=state.marginals, clusters=state.clusters)
