# SPDX-License-Identifier: Apache-2.0
"""Clusters of any method: who is in which, without some clients, or as the planted truth has them."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from feddag.core.algorithm import Algorithm
from feddag.core.capabilities import FindsClusters
from feddag.core.clusters import Clusters
from feddag.core.errors import InvalidInput
from feddag.core.task import ClientId


def labels_of(algorithm: Algorithm, state: Any) -> dict[ClientId, int]:
    """Client → cluster; empty for a method without clusters."""
    clusters = getattr(state, "clusters", None)
    if isinstance(clusters, Clusters):
        return clusters.labels()
    return algorithm.clustering(state).clusters.labels() if isinstance(algorithm, FindsClusters) else {}


def forgotten(
    algorithm: Algorithm, state: Any, clients: tuple[ClientId, ...]
) -> tuple[Any, tuple[ClientId, ...]]:
    """The state without these clients, and those of them who may join again: no cluster is left empty."""
    clusters = getattr(state, "clusters", None)
    if not isinstance(clusters, Clusters):
        return state, clients  # they are placed by what they hold at the time, nothing is kept
    labels, free = clusters.labels(), []
    sizes = Counter(labels.values())
    for client in clients:
        if sizes[labels.get(client, -1)] > 1:
            sizes[labels.pop(client)] -= 1
            free.append(client)
        elif client not in labels:
            free.append(client)
    if hasattr(algorithm, "forget"):
        return algorithm.forget(state, tuple(free)), tuple(free)
    changes: dict[str, Any] = {
        f.name: {k: v for k, v in value.items() if k not in free}
        for f in dataclasses.fields(state)
        if isinstance(value := getattr(state, f.name), dict)
    }
    members = tuple(tuple(c for c in group if c not in free) for group in clusters.members)
    return replace(state, clusters=Clusters(members=members), **changes), tuple(free)


def assigned(state: Any, clients: tuple[ClientId, ...], truth: Mapping[ClientId, int]) -> Any:
    """The state with these clients in the clusters where most others of their planted group are.

    A group that nobody else is in keeps the cluster that it leaves if nobody stays there. Else it gets a
    cluster of its own, which begins with the model of the one before.
    """
    clusters = getattr(state, "clusters", None)
    if not isinstance(clusters, Clusters) or hasattr(state, "leaves"):
        raise InvalidInput("lifecycle.assignment 'oracle': this method keeps no clusters that can be set")
    labels = clusters.labels()
    moving = [c for c in clients if c in labels]
    rest = {c: z for c, z in labels.items() if c not in moving}
    taken = {*rest.values()}
    opened: list[int] = []  # for every new cluster, the one before
    for group, _ in Counter(truth.get(c) for c in moving).most_common():
        mates = Counter(z for c, z in rest.items() if truth.get(c) == group)
        home = Counter(labels[c] for c in moving if truth.get(c) == group).most_common(1)[0][0]
        place = mates.most_common(1)[0][0] if mates else home
        if not mates and home in taken:
            place = len(clusters) + len(opened)
            opened.append(home)
        taken.add(place)
        rest |= {c: place for c in moving if truth.get(c) == group}
    number = len(clusters) + len(opened)
    members = [tuple(c for c in labels if rest[c] == k) for k in range(number)]
    for k in range(number):  # no cluster is left empty: somebody who was there stays
        if not members[k]:
            last = next(c for c in moving if labels[c] == k)
            members = [tuple(c for c in group if c != last) for group in members]
            members[k] = (last,)
    more = {
        name: (*getattr(state, name), *(getattr(state, name)[z] for z in opened))
        for name in ("models", "sources", "peaks")  # whatever a state keeps for each cluster
        if hasattr(state, name)
    }
    return replace(state, clusters=Clusters(members=tuple(members)), **more)
