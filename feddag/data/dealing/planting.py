# SPDX-License-Identifier: Apache-2.0
"""The planted groups of a partition: which client belongs to which group, and which classes it may hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import PartitionConfig


@dataclass(frozen=True)
class PlantedGroups:
    """The planted groups, drawn once for all clients: each client's group and the classes it may hold."""

    groups: np.ndarray | None = None
    holds_NC: np.ndarray | None = None
    names: tuple[str, ...] = ("all alike",)  # of the groups, in words
    label_sets: tuple[tuple[int, ...], ...] = ()  # the classes of each group, where they make the group
    notes: Mapping[str, str] = field(default_factory=dict)


def one_group(
    num_classes: int, clients: int, config: PartitionConfig, rng: np.random.Generator
) -> PlantedGroups:
    """All clients are alike."""
    return PlantedGroups(groups=np.zeros(clients, dtype=np.int64))


def no_groups(
    num_classes: int, clients: int, config: PartitionConfig, rng: np.random.Generator
) -> PlantedGroups:
    """Every client is different; there is no true grouping."""
    return PlantedGroups()


def label_groups(
    num_classes: int, clients: int, config: PartitionConfig, rng: np.random.Generator
) -> PlantedGroups:
    """Distribution I: each group holds ρ% of the labels; labels that no group holds yet are given first."""
    groups = 5 if config.groups is None else config.groups
    size = max(1, round(config.label_share * num_classes))
    _enough_clients(clients, groups)
    if comb(num_classes, size) < groups:
        raise InvalidInput(
            f"partition.groups: {groups} groups with different labels are impossible, because "
            f"{num_classes} classes have only {comb(num_classes, size)} different sets of {size} labels"
        )
    label_sets: list[tuple[int, ...]] = []
    unheld = list(rng.permutation(num_classes))
    for _ in range(groups):
        fresh, unheld = unheld[:size], unheld[size:]
        label_sets.append(_distinct_set(fresh, size, num_classes, label_sets, rng))
    return _groups_from_sets(label_sets, _sequential_membership(clients, groups, rng), num_classes)


def label_pairs(
    num_classes: int, clients: int, config: PartitionConfig, rng: np.random.Generator
) -> PlantedGroups:
    """Many clusters: each group holds its own pair of labels, and all groups have about the same size."""
    groups = 11 if config.groups is None else config.groups
    _enough_clients(clients, groups)
    pairs = [(a, b) for a in range(num_classes) for b in range(a + 1, num_classes)]
    if groups > len(pairs):
        raise InvalidInput(
            f"partition.groups: {groups} distinct label pairs are impossible, because {num_classes} classes "
            f"have only {len(pairs)} pairs"
        )
    chosen = [pairs[i] for i in rng.choice(len(pairs), size=groups, replace=False)]
    return _groups_from_sets(chosen, rng.permutation(np.arange(clients) % groups), num_classes)


def _enough_clients(clients: int, groups: int) -> None:
    if clients < groups:
        raise InvalidInput(
            f"partition.groups: {groups} planted groups need at least as many clients, "
            f"but num_clients is {clients}"
        )


def _distinct_set(
    fresh: list[int], size: int, num_classes: int, taken: list[tuple[int, ...]], rng: np.random.Generator
) -> tuple[int, ...]:
    """A set of labels: the fresh ones and random others, different from every set taken so far."""
    others = np.array([c for c in range(num_classes) if c not in fresh])
    for _ in range(100):
        fill = rng.choice(others, size=size - len(fresh), replace=False)
        labels = tuple(sorted(int(c) for c in (*fresh, *fill)))
        if labels not in taken:
            return labels
    # Few sets are left, and chance did not find one: try all of them (the caller checked that one is left).
    stack: list[tuple[int, ...]] = [()]
    while stack:
        prefix = stack.pop()
        if len(prefix) == size and prefix not in taken:
            return prefix
        if len(prefix) < size:
            stack += [(*prefix, c) for c in range(prefix[-1] + 1 if prefix else 0, num_classes)]
    raise InvalidInput("partition.groups: there are fewer different label sets than groups")


def _sequential_membership(clients: int, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Group by group, each free client joins with probability 1/(groups left); no group stays empty."""
    member = np.full(clients, -1, dtype=np.int64)
    for g in range(groups):
        joins = rng.random(clients) < 1.0 / (groups - g)
        member[(member < 0) & joins] = g
    for g in range(groups):
        if not (member == g).any():
            largest = np.bincount(member, minlength=groups).argmax()
            member[np.flatnonzero(member == largest)[-1]] = g
    return member


def _groups_from_sets(
    label_sets: list[tuple[int, ...]], member: np.ndarray, num_classes: int
) -> PlantedGroups:
    holds_GC = np.zeros((len(label_sets), num_classes), dtype=bool)
    for g, labels in enumerate(label_sets):
        holds_GC[g, list(labels)] = True
    unheld = np.flatnonzero(~holds_GC.any(axis=0))
    notes = {"unused labels": " ".join(map(str, unheld))} if len(unheld) else {}
    names = tuple("labels " + " ".join(map(str, labels)) for labels in label_sets)
    return PlantedGroups(member, holds_GC[member], names, tuple(label_sets), notes)
