# SPDX-License-Identifier: Apache-2.0
"""FedSoft (Ruan & Joe-Wong, 2022): every client is a mixture of clusters and keeps a model of its own.

Client k minimises f_k(w) + λ/2 · Σ_s u_ks·‖w − c_s‖². Its gradient depends on the centres only through
ū = Σ_s u_ks and c̄ = Σ_s u_ks·c_s / ū, so one model goes down instead of S.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import mean
from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import sample_losses
from feddag.learning.sgd import sgd
from feddag.learning.train import Trained


@message
class Assess:
    """Which centre serves each of your samples best?"""

    centres: tuple[Params, ...] = public()


@message
class Assessed:
    """How many samples have their least loss under each centre, (S,)."""

    counts: np.ndarray = sensitive("counts", shape=("#centres",), dtype="int64", least=0)


@message
class Train:
    """Train your own model, pulled towards this centre."""

    centre: Params = public()  # c̄
    pull: float  # λ·ū
    local: LocalTraining


@message
class State:
    """The centres, and each client's last assessment."""

    centres: tuple[Params, ...] = public()
    counts: dict[str, np.ndarray] = sensitive("counts")  # client → (S,)


@client_task
def assess(request: Assess, client: Client) -> Assessed:
    """Count own training samples by the centre of least loss; ties go to the lowest."""
    losses_SN = torch.stack([sample_losses(client, centre) for centre in request.centres]).numpy()
    return Assessed(counts=np.bincount(losses_SN.argmin(0), minlength=len(request.centres)))


@client_task
def train(request: Train, client: Client) -> Trained:
    """Go on training the own model; the first time it starts at the centre."""
    own = client.remembered("personal", otherwise=request.centre)
    own = sgd(client, own, request.local, proximal=(request.pull, request.centre))
    client.memory["personal"] = own
    return Trained(update=own - request.centre, examples=len(client.train))


@algorithm
class FedSoft:
    """Soft clusters: personal models, pulled towards a mixture of cluster centres."""

    local: LocalTraining = LocalTraining()
    num_clusters: Annotated[int, Ge(1)] = 2  # S; the authors' experiments plant two
    # λ; authors' code: 0.01 on CIFAR, 0.1 on MNIST and letters: choose it by validation in {0.01, 0.1, 1}
    pull: Annotated[float, Ge(0)] = 0.01
    reassess_every: Annotated[int, Ge(1)] = 2  # τ rounds; authors' code
    least_importance: Annotated[float, Gt(0)] = 1e-4  # σ, stands for a count of zero; authors' code
    # importance: ⌊m/S⌋ clients a cluster, drawn by their importance for it; cohort: the round's cohort
    selection: Literal["importance", "cohort"] = "importance"

    tasks = (assess, train)
    needs_single_updates: ClassVar[str] = "weighs the update of each client for each cluster"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """One common start for centres and personal models, as the authors have it.

        Different random centres would start personal models in a mixture of them, which is no model at all.
        The first teams are drawn at random, so the centres part in the first round. A cohort would train all
        centres alike: then they must differ from the start.
        """
        if self.selection == "cohort":
            return State(centres=server.initial_models(self.num_clusters), counts={})
        return State(centres=(server.initial_params(),) * self.num_clusters, counts={})

    def round(self, state: State, server: Server) -> State:
        """Every τ rounds all clients assess the centres; the selected train, each centre is their mean."""
        if (server.round - 1) % self.reassess_every == 0:
            state = self.reassess(state, server.clients, server)
        teams = [self.team(state, s, server) for s in range(self.num_clusters)]
        requests = self.requests(state, sorted({client for team in teams for client in team}))
        replies = server.ask(train, requests)
        own = {client: requests[client].centre + reply.update for client, reply in replies.items()}
        centres = list(state.centres)
        for s, team in enumerate(teams):
            answered = [client for client in team if client in own]
            if answered:
                centres[s] = mean([own[c] for c in answered], [team[c] for c in answered])
        return replace(state, centres=tuple(centres))

    def reassess(self, state: State, clients: Iterable[str], server: Server) -> State:
        """Ask clients how many of their samples each centre serves best."""
        replies = server.ask(assess, broadcast(Assess(centres=state.centres), clients))
        return replace(state, counts={**state.counts, **{c: r.counts for c, r in replies.items()}})

    def importance(self, state: State, client: str) -> np.ndarray:
        """u_k: the share of the client's samples that each centre serves best, σ where there is none."""
        counts = state.counts.get(client, np.zeros(self.num_clusters))
        return np.where(counts > 0, counts / max(1, counts.sum()), self.least_importance)

    def team(self, state: State, s: int, server: Server) -> dict[str, float]:
        """Who trains for centre s, and the weight of each in its mean."""
        clients = server.clients if self.selection == "importance" else server.cohort
        known = [c for c in clients if c in state.counts and state.counts[c].sum()]
        v = np.array([self.importance(state, c)[s] * state.counts[c].sum() for c in known])
        if self.selection == "cohort":
            return dict(zip(known, v.tolist(), strict=True))
        if not known:  # no client has a sample that any centre serves
            return {}
        size = min(len(known), max(1, len(server.cohort) // self.num_clusters))
        generator = (server.seed / "selection" / server.round / s).numpy()
        chosen = generator.choice(known, size=size, replace=False, p=v / v.sum())
        return {str(client): 1.0 for client in sorted(chosen)}

    def requests(self, state: State, clients: Iterable[str]) -> dict[str, Train]:
        """One request for each distinct importance, shared by the clients that have it."""
        shared: dict[bytes, Train] = {}
        requests = {}
        for client in clients:
            u = self.importance(state, client)
            if u.tobytes() not in shared:
                centre, pull = mean(state.centres, u), self.pull * float(u.sum())
                shared[u.tobytes()] = Train(centre=centre, pull=pull, local=self.local)
            requests[client] = shared[u.tobytes()]
        return requests

    def deploy(self, state: State, client: str) -> Deployment:
        """The client's own model; before its first training the centre it would start from."""
        centre = mean(state.centres, self.importance(state, client))
        return Deployment(models=(centre,), remembered="personal")

    def clustering(self, state: State) -> Clustering:
        """Clients by the centre that serves most of their samples; every client is a mixture of all."""
        largest = {client: int(counts.argmax()) for client, counts in state.counts.items()}
        return Clustering(
            clusters=Clusters.from_labels([*largest], largest.values()),
            how="Every client is a mixture of all centres; it is shown at the one that serves it best.",
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers assess all centres, then train once from their mixture of them."""
        state = self.reassess(state, newcomers, server)
        server.ask(train, self.requests(state, newcomers))
        return state
