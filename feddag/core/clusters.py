# SPDX-License-Identifier: Apache-2.0
"""Clusters: a partition of client ids that is checked, so that nobody lands in two clusters or in none."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from feddag.core.errors import InvalidMessage
from feddag.core.message import message, public

T = TypeVar("T")


@message
class Clusters:
    """Disjoint, non-empty groups of client ids; cluster k is `members[k]`, its ids sorted."""

    members: tuple[tuple[str, ...], ...] = public()

    def __post_init__(self) -> None:
        ids = [client for cluster in self.members for client in cluster]
        if len(ids) != len(set(ids)):
            twice = next(c for c, times in Counter(ids).items() if times > 1)
            raise InvalidMessage("members", "each client in one cluster", f"'{twice}' in several")
        if not all(self.members):
            raise InvalidMessage("members", "clusters with at least one client", "an empty cluster")
        object.__setattr__(self, "members", tuple(tuple(sorted(cluster)) for cluster in self.members))

    @classmethod
    def from_labels(cls, clients: Sequence[str], labels: Iterable[int]) -> "Clusters":
        """Clusters numbered by their smallest member, from one label per client."""
        groups: dict[int, list[str]] = {}
        for client, label in sorted(zip(clients, labels, strict=True)):
            groups.setdefault(int(label), []).append(client)
        return cls(members=tuple(tuple(group) for group in groups.values()))

    def __len__(self) -> int:
        return len(self.members)

    def of(self, client: str) -> int:
        """The number of the client's cluster."""
        if client not in self:
            raise KeyError(f"client '{client}' is in no cluster")
        return self._numbers[client]

    def __contains__(self, client: object) -> bool:
        return client in self._numbers

    @cached_property
    def largest(self) -> int:
        """The number of the cluster with most clients; of equal ones the first."""
        sizes = [len(cluster) for cluster in self.members]
        return sizes.index(max(sizes))

    def labels(self) -> dict[str, int]:
        """Client id → cluster number."""
        return dict(self._numbers)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {client: k for k, cluster in enumerate(self.members) for client in cluster}

    def group(self, replies: Mapping[str, T]) -> dict[int, dict[str, T]]:
        """Replies by cluster, clusters and clients in order; clusters nobody answered for are left out."""
        labels = self.labels()
        grouped: dict[int, dict[str, T]] = {}
        for client in sorted(replies):
            grouped.setdefault(labels[client], {})[client] = replies[client]
        return dict(sorted(grouped.items()))

    def split(self, k: int, *parts: Iterable[str]) -> "Clusters":
        """Cluster k divided into parts; the first keeps the number, the others are appended."""
        sets = [set(part) for part in parts]
        if sorted(c for part in sets for c in part) != list(self.members[k]):
            raise InvalidMessage("members", f"parts that make up cluster {k}", "other clients")
        members = list(self.members)
        members[k] = tuple(sets[0])
        return Clusters(members=(*members, *(tuple(part) for part in sets[1:])))

    def add(self, client: str, k: int) -> "Clusters":
        """The partition with a newcomer in cluster k (`len(self)` opens a new one)."""
        members = [*self.members, ()] if k == len(self) else list(self.members)
        members[k] = (*members[k], client)
        return Clusters(members=tuple(members))
