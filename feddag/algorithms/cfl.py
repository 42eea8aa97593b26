# SPDX-License-Identifier: Apache-2.0
"""CFL (Sattler et al., 2020): FedAvg, until a cluster's updates cancel out although its members' do not.

A cluster splits in two, by cosine similarity of its members' updates, when ‖mean ΔW‖ < ε1 and
max ‖ΔW‖ > ε2. Splits are kept as a tree with the model and updates at each, for newcomers to descend.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.agglomerative import cut_into, link
from feddag.clustering.similarity import gradient_angles, gradient_angles_between
from feddag.core.algorithm import Server, algorithm, broadcast, place_cohort
from feddag.core.averaging import mean, step_each
from feddag.core.clustering import Clustering, View
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.errors import QuorumMissed
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.learning.train import Train, Trained, train, train_own


@message
class Split:
    """Cluster `cluster` gave some members to a new cluster `child`; the updates that told them apart."""

    cluster: int
    child: int
    model: Params = public()  # from which the updates were made
    stayed: dict[str, Params] = sensitive("update")
    left: dict[str, Params] = sensitive("update")

    def side(self, update: Params) -> int:
        """The cluster whose updates include the most similar one."""
        stayed, left = (_angles(update, part).min() for part in (self.stayed, self.left))
        return self.child if left < stayed else self.cluster


@message
class State:
    """Clusters, their models, the members' latest updates since the last split, and all splits so far."""

    clusters: Clusters
    models: tuple[Params, ...] = public()
    window: dict[str, Trained]  # the latest update of each member, if it is not too old
    heard: dict[str, int]  # in which round it came
    peaks: tuple[float, ...]  # for each cluster the largest norm of a mean update so far
    splits: tuple[Split, ...] = ()


def bipartition(updates: Mapping[str, Params], linkage: Literal["complete", "single"]) -> list[set[str]]:
    """Two groups by cosine similarity; client ids, not positions, so that nested splits stay a partition."""
    vectors_NM = np.stack([update.parameters.numpy() for update in updates.values()])
    # Both linkages depend on the order of distances alone, and angles order pairs as cosines do.
    labels, _ = cut_into(link(gradient_angles(vectors_NM), linkage), 2)
    return [{c for c, label in zip(updates, labels, strict=True) if label == side} for side in (0, 1)]


def _angles(update: Params, others: Mapping[str, Params]) -> np.ndarray:
    rows = np.stack([other.parameters.numpy() for other in others.values()])
    return gradient_angles_between(update.parameters.numpy()[None], rows)[0]


@algorithm
class CFL:
    """One model at first; a cluster is split in two when its members' updates contradict each other."""

    local: LocalTraining = LocalTraining()
    linkage: Literal["complete", "single"] = "complete"  # authors' code; single solves the paper's min-max
    # A cluster may split when its mean update is shorter than eps1 and the longest update of a member is
    # longer than eps2. Norms depend on lr and steps. Not set: relative_eps1 and eps2_over_eps1 decide.
    eps1: Annotated[float, Ge(0)] | None = None  # norm of the mean update; authors' notebook: 0.4 at lr 0.1
    eps2: Annotated[float, Ge(0)] | None = (
        None  # norm of the longest update; authors' notebook: 1.6 at lr 0.1
    )
    relative_eps1: Annotated[float, Gt(0)] = 0.1  # eps1 as a share of the largest mean update so far
    eps2_over_eps1: Annotated[float, Ge(1)] = 4.0  # the paper's rule of thumb: between 1 and 10
    # No split up to this round; authors' notebook: 20. Not set: a quarter of the rounds, at most 20.
    min_rounds: Annotated[int, Ge(0)] | None = None
    window: Annotated[int, Ge(1)] = 10  # rounds for which an update counts (ours)
    min_seen: Annotated[float, Gt(0), Le(1)] = 0.8  # share of members heard since the last split (ours)

    tasks = (train,)
    needs_single_updates: ClassVar[str] = "compares the updates of single clients"
    clusters_at_start: ClassVar[bool] = False

    def start(self, server: Server) -> State:
        """Everybody in one cluster."""
        clusters = Clusters(members=(server.clients,))
        return State(clusters=clusters, models=(server.initial_params(),), window={}, heard={}, peaks=(0.0,))

    def round(self, state: State, server: Server) -> State:
        """FedAvg within each cluster, then split those that have converged to a disagreement."""
        state, cohort = place_cohort(self.onboard, state, lambda s: s.clusters.labels(), server)
        requests = train_own(state.models, state.clusters.labels(), cohort, self.local)
        replies = server.ask(train, requests)
        heard = {**state.heard, **dict.fromkeys(replies, server.round)}
        heard = {c: r for c, r in sorted(heard.items()) if r > server.round - self.window}
        latest = {**state.window, **replies}
        state_after = replace(
            state,
            models=step_each(state.models, state.clusters.group(replies)),
            window={client: latest[client] for client in heard},
            heard=heard,
        )
        norms = {}
        for k, seen in state.clusters.group(state_after.window).items():
            updates = [reply.update for reply in seen.values()]
            # Members count equally: one large client must not decide whether the others agree.
            norms[k] = (mean(updates).norm(), max(update.norm() for update in updates))
            peaks = list(state_after.peaks)
            peaks[k] = max(peaks[k], norms[k][0])
            state_after = replace(state_after, peaks=tuple(peaks))
            if server.round >= self.acts_from(server.num_rounds) and self._disagrees(
                state_after, k, len(seen), *norms[k]
            ):
                state_after = self._split(state_after, k, state.models[k], server)
        server.note(num_clusters=len(state_after.clusters), norms={str(k): n for k, n in norms.items()})
        return state_after

    def acts_from(self, num_rounds: int, participation: float = 1.0) -> int:
        """The first round in which a cluster may split."""
        return 1 + (min(20, num_rounds // 4) if self.min_rounds is None else self.min_rounds)

    def _disagrees(self, state: State, k: int, seen: int, mean_norm: float, max_norm: float) -> bool:
        size = len(state.clusters.members[k])
        eps1 = self.relative_eps1 * state.peaks[k] if self.eps1 is None else self.eps1
        eps2 = self.eps2_over_eps1 * eps1 if self.eps2 is None else self.eps2
        return size > 2 and seen > 1 and seen >= self.min_seen * size and mean_norm < eps1 and max_norm > eps2

    def _split(self, state: State, k: int, model: Params, server: Server) -> State:
        members = state.clusters.members[k]
        updates = {c: state.window[c].update for c in members if c in state.window}
        stay, leave = bipartition(updates, self.linkage)
        split = Split(
            cluster=k,
            child=len(state.clusters),
            model=model,
            stayed={c: updates[c] for c in updates if c in stay},
            left={c: updates[c] for c in updates if c in leave},
        )
        # Members without an update since the last split are placed as newcomers; who does not answer stays.
        late = self._place(dict.fromkeys(set(members) - set(updates), k), (split,), server)
        leave |= {c for c, place in late.items() if place == split.child}
        return State(
            clusters=state.clusters.split(k, set(members) - leave, leave),
            models=(*state.models, state.models[k]),
            window={c: reply for c, reply in state.window.items() if c not in members},
            heard={c: round_ for c, round_ in state.heard.items() if c not in members},
            peaks=(*state.peaks, state.peaks[k]),
            splits=(*state.splits, split),
        )

    def _place(self, places: Mapping[str, int], splits: Iterable[Split], server: Server) -> dict[str, int]:
        """Descend the tree: one update at each split on the way, to the side with the nearest update."""
        places = dict(sorted(places.items()))
        for split in splits:
            here = [client for client, k in places.items() if k == split.cluster]
            if not here:
                continue
            request = Train(params=split.model, local=self.local)
            with contextlib.suppress(QuorumMissed):
                for client, reply in server.ask(train, broadcast(request, here)).items():
                    places[client] = split.side(reply.update)
        return places

    def deploy(self, state: State, client: str) -> Deployment:
        """The model of the client's cluster; outside of all clusters, whichever fits its data best."""
        labels = state.clusters.labels()
        return Deployment(models=(state.models[labels[client]],) if client in labels else state.models)

    def clustering(self, state: State) -> Clustering:
        """The clusters after all splits, and the angles between the updates heard since the last one."""
        heard = {client: reply.update.parameters.numpy() for client, reply in state.window.items()}
        views = {}
        if len(heard) > 1:
            views["Update angles"] = View(gradient_angles(np.stack([*heard.values()])), "degrees")
        splits = "No split so far." if not state.splits else f"Splits so far: {len(state.splits)}."
        how = f"A cluster is split when its members' updates contradict each other. {splits}"
        return Clustering(clusters=state.clusters, how=how, clients=tuple(heard), views=views)

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers descend the tree of splits."""
        clusters = state.clusters
        for client, k in self._place(dict.fromkeys(newcomers, 0), state.splits, server).items():
            clusters = clusters.add(client, k)
        return replace(state, clusters=clusters)
