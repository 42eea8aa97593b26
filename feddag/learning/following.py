# SPDX-License-Identifier: Apache-2.0
"""How FedDAG's clusters follow clients that join, leave and change: the responses of its lifecycle.

take_in         newcomers and clients whose data changed are placed, with everybody else fixed (Algorithm 4)
answer_drift    alarmed clients sign again and are placed; a storm of alarms is one re-clustering instead
settle          after enough change, cluster again; accepted only with evidence, never twice in a row
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.again import of_items, overlaps, renumbered, separation, stability
from feddag.clustering.agglomerative import agreement
from feddag.clustering.newcomers import place_newcomers
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.pipeline import ClusteringResult, cluster_signatures
from feddag.clustering.proximity import Frame
from feddag.clustering.tree import KeptTree
from feddag.core.algorithm import Server
from feddag.core.averaging import mean
from feddag.core.clusters import Clusters
from feddag.core.message import options
from feddag.core.params import Params
from feddag.learning.dual import EncoderOptions, Sources
from feddag.learning.signature import Signature, items_of


@options
class FollowOptions:
    """When clusters are looked at again."""

    storm: Annotated[float, Gt(0), Le(1)] = (
        0.3  # share of alarmed clients above which all are clustered again
    )
    changed: Annotated[float, Gt(0), Le(1)] = 0.2  # share of new, moved and weak clients before a new look
    least_changed: Annotated[int, Ge(1)] = 5  # and their least number
    alike: Annotated[float, Gt(0), Le(1)] = 0.95  # a clustering that agrees as much (ARI) changes nothing
    gain: Annotated[float, Ge(0)] = 0.05  # growth of the silhouette that a new clustering needs
    stable: Annotated[float, Gt(0), Le(1)] = 0.9  # mean ARI with clusterings of 90% of the clients
    rest: Annotated[int, Ge(0)] = 20  # rounds between two looks
    heir: Annotated[float, Gt(0), Le(1)] = 0.6  # share of the samples that makes an old model the new one
    forget: bool = False  # delete the signatures of clients that leave
    idle: Annotated[int, Ge(0)] = 50  # rounds after which a cluster without anybody there teaches no other


class Method(Protocol):
    """What the responses need of FedDAG."""

    @property
    def clustering_options(self) -> ClusteringOptions: ...  # noqa: D102
    @property
    def graph(self) -> GraphOptions: ...  # noqa: D102
    @property
    def follow(self) -> FollowOptions: ...  # noqa: D102
    @property
    def encoders(self) -> EncoderOptions: ...  # noqa: D102


class FollowingState(Protocol):
    """What the responses need of a state."""

    clusters: Clusters
    models: tuple[Params, ...]
    sources: tuple[tuple[int, ...], ...]
    signatures: dict[str, Signature]
    mask: int
    frame: Frame
    tree: KeptTree
    changed: tuple[str, ...]  # clients that joined, moved or fit badly since the last clustering
    settled: int  # the round of the last look
    empty: dict[str, int] | None  # cluster of which nobody is there → since which round; None: no such one


State = TypeVar("State", bound=Any)


def take_in(state: State, signed: Mapping[str, Signature], method: Method, server: Server) -> State:
    """Clients with these fresh signatures get clusters; nobody else moves.

    A cluster of which all members have signed again keeps their old signatures as its anchor.
    """
    labels = state.clusters.labels()
    left = {labels[c] for c in state.signatures if c not in signed}
    ids = [*state.signatures]
    anchors = [i for i, c in enumerate(ids) if c not in signed or labels[c] not in left]
    old = {ids[i]: state.signatures[ids[i]] for i in anchors}
    labels_N = np.array([labels[c] for c in old])
    placed = place_newcomers(
        items_of(dict(signed)), items_of(old), labels_N, of_items(state.frame, anchors), state.tree.threshold
    )
    found = {c: int(z) for c, z in zip(signed, placed.labels_M, strict=True)}
    weak = [c for c, weak in zip(signed, placed.weak_M, strict=True) if weak]
    server.note(placed=found, weak=weak)
    stay = [i for i, c in enumerate(old) if c not in signed]
    fresh = range(len(anchors), len(anchors) + len(signed))
    # A new cluster starts from the nearest cluster's model, and learns from the same sources.
    own = [(len(state.models) + k,) for k in range(len(placed.opened_from))]
    learned = [state.sources[z] for z in placed.opened_from] if method.encoders.sharing else own
    moved = [c for c in signed if labels.get(c, -1) != found[c]]
    return _without_empty(
        replace(
            state,
            models=(*state.models, *(state.models[z] for z in placed.opened_from)),
            sources=(*state.sources, *learned),
            signatures={
                **{ids[i]: state.signatures[ids[i]] for i in anchors if ids[i] not in signed},
                **signed,
            },
            frame=of_items(placed.frame, [*stay, *fresh]),
            changed=_union(state.changed, [*moved, *weak]),
        ),
        {**labels, **found},
    )


def _without_empty(state: State, labels: Mapping[str, int]) -> State:
    """The state with these clusters; those that nobody is in any more are gone, with their models."""
    kept = sorted(set(labels.values()))
    place = {z: k for k, z in enumerate(kept)}
    members: list[list[str]] = [[] for _ in kept]
    for client, z in labels.items():
        members[place[z]].append(client)
    sources = tuple(tuple(place[s] for s in state.sources[z] if s in place) or (place[z],) for z in kept)
    return replace(
        state,
        clusters=Clusters(members=tuple(tuple(group) for group in members)),
        models=tuple(state.models[z] for z in kept),
        sources=sources,
        sharing=tuple(place[z] for z in state.sharing if z in place),
        empty={str(place[int(z)]): t for z, t in (state.empty or {}).items() if int(z) in place} or None,
    )


def who_is_there(state: State, server: Server) -> State:
    """The state with a note of the clusters of which nobody is there, and since when."""
    labels = state.clusters.labels()
    there = {labels[c] for c in server.clients if c in labels}
    since = state.empty or {}
    empty = {str(z): since.get(str(z), server.round) for z in range(len(state.models)) if z not in there}
    return replace(state, empty=empty or None) if empty != since else state


def active_sources(state: Any, idle: int, round_: int) -> Sources:
    """From whom clusters learn now.

    A cluster of which nobody is there learns nothing, so that it keeps its model bit for bit. After `idle`
    rounds it is no source either; whom nobody else teaches learns from itself. Until somebody returns.
    """
    sources: Sources = state.sources
    if not state.empty:
        return sources
    gone = {int(z) for z, since in state.empty.items() if round_ - since >= idle}
    return tuple(
        () if str(z) in state.empty else tuple(s for s in of_z if s not in gone) or (z,)
        for z, of_z in enumerate(sources)
    )


def answer_drift(
    state: State,
    signed: Mapping[str, Signature],
    method: Method,
    server: Server,
) -> State:
    """Place clients whose data changed; in a storm everybody is clustered again, if that is better."""
    if not signed:
        return state
    if getattr(state, "unsigned", None) is not None:  # there is nothing to cluster all of them by
        return take_in(state, signed, method, server)
    everyone = {**state.signatures, **signed}
    storm = len(signed) > method.follow.storm * max(len(server.clients), 1)
    if storm or len(signed) == len(everyone):
        found = _evident(everyone, state, method, server)
        if found is not None:
            return _adopted(state, everyone, found, method, server)
        if len(signed) == len(everyone):  # nobody is left to be placed by
            return replace(state, signatures=everyone, changed=_union(state.changed, signed))
    return take_in(state, signed, method, server)


def settle(
    state: State,
    method: Method,
    server: Server,
) -> State:
    """Cluster again if enough clients are new, moved or weak, and the last look is long ago.

    Very many clients keep their clusters: the signatures of most of them are not kept.
    """
    if getattr(state, "unsigned", None) is not None:
        return state
    enough = max(method.follow.least_changed, method.follow.changed * len(state.signatures))
    if server.round - state.settled < method.follow.rest or len(state.changed) < enough:
        return state
    found = _evident(state.signatures, state, method, server)
    if found is None:
        return replace(state, settled=server.round)
    return _adopted(state, state.signatures, found, method, server)


def _evident(
    signatures: dict[str, Signature],
    state: FollowingState,
    method: Method,
    server: Server,
) -> ClusteringResult | None:
    """A new clustering, if it is another one, a better one, and a stable one."""
    items = items_of(signatures)
    found = cluster_signatures(items, method.clustering_options, method.graph, seed=state.mask)
    labels = state.clusters.labels()
    now_N, new_N = np.array([labels[c] for c in signatures]), np.asarray(found.labels_N)
    alike = agreement(new_N, now_N)
    gain = separation(found.distances_NN, new_N) - separation(found.distances_NN, now_N)
    evidence = {"agreement": round(alike, 4), "gain": round(gain, 4), "clusters": found.count}
    accepted = alike < method.follow.alike and gain >= method.follow.gain
    if accepted:
        clients = [*signatures]

        def cluster_rows(rows: np.ndarray) -> np.ndarray:
            some = {clients[i]: signatures[clients[i]] for i in rows}
            return np.asarray(
                cluster_signatures(
                    items_of(some), method.clustering_options, method.graph, seed=state.mask
                ).labels_N
            )

        generator = (server.seed / "settle" / server.round).numpy()
        evidence["stability"] = round(stability(new_N, cluster_rows, generator), 4)
        accepted = evidence["stability"] >= method.follow.stable
    server.note(recluster={**evidence, "accepted": accepted})
    return found if accepted else None


def _adopted(
    state: State,
    signatures: dict[str, Signature],
    found: ClusteringResult,
    method: Method,
    server: Server,
) -> State:
    """The state with a new clustering: clusters renumbered by overlap, models carried over, a new graph."""
    labels, samples_N = (
        state.clusters.labels(),
        np.array([s.counts.sum() for s in signatures.values()], float),
    )
    old_N, raw_N = np.array([labels[c] for c in signatures]), np.asarray(found.labels_N)
    new_N = renumbered(raw_N, old_N, samples_N)
    number = dict(zip(raw_N.tolist(), new_N.tolist(), strict=True))
    sources: list[tuple[int, ...]] = [(z,) for z in range(found.count)]
    if method.encoders.sharing:
        for z, learned in enumerate(found.sources()):
            sources[number[z]] = tuple(number[s] for s in learned)
    models = tuple(
        _model_of(state.models, brought, method.follow.heir) for brought in overlaps(new_N, old_N, samples_N)
    )
    members = [[c for c, z in zip(signatures, new_N, strict=True) if z == k] for k in range(found.count)]
    return replace(
        state,
        clusters=Clusters(members=tuple(tuple(group) for group in members)),
        models=models,
        sources=tuple(sources),
        signatures=dict(signatures),
        frame=found.frame,
        tree=kept_tree(signatures, found),
        changed=(),
        settled=server.round,
        sharing=(),
        empty=None,
    )


def _model_of(models: tuple[Params, ...], brought_Z: np.ndarray, heir: float) -> Params:
    """The model of the old cluster that brings most samples, or else the mean by samples."""
    if not brought_Z.sum():
        return models[0]
    if brought_Z.max() >= heir * brought_Z.sum():
        return models[int(brought_Z.argmax())]
    used = np.flatnonzero(brought_Z)
    return mean([models[z] for z in used], brought_Z[used].tolist())


def kept_tree(signatures: Iterable[str], found: ClusteringResult) -> KeptTree:
    """The tree of a clustering, for the state."""
    return KeptTree.of(signatures, found)


def forget(state: State, gone: Iterable[str]) -> State:
    """The state without these clients, but for those who are the last ones of their cluster."""
    labels = state.clusters.labels()
    sizes = Counter(labels.values())
    for client in gone:
        if sizes[labels.get(client, -1)] > 1:
            sizes[labels.pop(client)] -= 1
    stay = [i for i, c in enumerate(state.signatures) if c in labels]
    return replace(
        _without_empty(state, labels),
        signatures={c: s for c, s in state.signatures.items() if c in labels},
        frame=of_items(state.frame, stay),
        changed=tuple(c for c in state.changed if c in labels),
    )


def _union(old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*old, *new}))
