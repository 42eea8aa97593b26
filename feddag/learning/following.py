# SPDX-License-Identifier: Apache-2.0
"""How FedDAG's clusters follow clients that join, leave and change: the responses of its lifecycle.

take_in         newcomers and clients whose data changed are placed, with everybody else fixed (Algorithm 4)
answer_drift    alarmed clients sign again and are placed; if they are many, all are clustered again
settle          after enough change, cluster again; accepted only with evidence, never twice in a row
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from feddag.clustering.again import of_items
from feddag.clustering.items import Items
from feddag.clustering.kin import Kinship
from feddag.clustering.newcomers import Placement, place_newcomers
from feddag.core.algorithm import Server
from feddag.core.clusters import Clusters
from feddag.learning.dual import Sources
from feddag.learning.reclustering import Method, State, adopted, evident, measured_anew
from feddag.learning.signature import Signature, items_of

LEAST_GROUP = 3  # clients: fewer are no group of their own


def take_in(
    state: State, signed: Mapping[str, Signature], method: Method, server: Server, alone: bool = False
) -> State:
    """Clients with these fresh signatures get clusters; nobody else moves.

    A cluster of which all members have signed again keeps their old signatures as its anchor. With `alone`
    a client that fits no cluster gets one of its own, else the nearest one.
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
    if alone:
        placed = _by_kind(placed, signed, old, labels, method)
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


def _by_kind(
    placed: Placement,
    signed: Mapping[str, Signature],
    old: Mapping[str, Signature],
    labels: Mapping[str, int],
    method: Method,
) -> Placement:
    """The placement in which nobody is in a cluster of another kind; a new one starts from the one before."""
    everyone = Items.joined([items_of(dict(old)), items_of(dict(signed))])
    kinship = Kinship.of(everyone, method.clustering_options)
    members: dict[int, list[int]] = {z: [] for z in range(max(labels.values()) + 1)}
    for i, client in enumerate(old):
        members[labels[client]].append(i)
    rows = range(len(old), len(old) + len(signed))
    found_M = np.array(kinship.place(rows, placed.labels_M.tolist(), members), dtype=np.int64)
    before = [labels[c] for c in signed]
    first = {int(z): before[m] for m, z in reversed([*enumerate(found_M)])}
    return replace(
        placed,
        labels_M=found_M,
        opened_from=tuple(first[z] for z in sorted(first) if z not in members),
        weak_M=placed.weak_M & (found_M == placed.labels_M),
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
        partners=tuple(
            tuple(place[q] for q in state.partners[z] if q in place) for z in kept if z < len(state.partners)
        ),
        weights=(),
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
    kinds = method.clustering_options.composes
    placed = take_in(state, signed, method, server, alone=kinds)
    placed = replace(placed, changed=_union(placed.changed, signed))
    storm = len(signed) > method.follow.storm * max(len(server.clients), 1)
    if storm or len(signed) == len(everyone):
        found, other = evident(everyone, state, method, server, rival=placed if kinds else None)
        if found is not None and other:
            return adopted(state, everyone, found, method, server)
        if len(signed) == len(everyone) and not kinds:  # nobody is left to be placed by
            return replace(state, signatures=everyone, changed=_union(state.changed, signed))
    # Clients that changed alike may be a group that no cluster is for: one by one they only seem to fit.
    if len(placed.changed) < max(LEAST_GROUP, method.follow.alarmed * len(everyone)):
        return placed
    found, other = evident(placed.signatures, placed, method, server)
    if found is None:
        return placed
    if other:
        return adopted(placed, placed.signatures, found, method, server)
    return measured_anew(placed, found, method, server)


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
    found, other = evident(state.signatures, state, method, server)
    if found is None:
        return replace(state, settled=server.round)
    if not other:  # the clusters are right as they are: nothing is left to look at
        return replace(measured_anew(state, found, method, server), settled=server.round)
    return adopted(state, state.signatures, found, method, server)


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
