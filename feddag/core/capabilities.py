# SPDX-License-Identifier: Apache-2.0
"""What a method may do beside training: it declares a capability by having the methods named here."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from feddag.core.algorithm import Server
from feddag.core.clustering import Clustering
from feddag.core.task import ClientId


@runtime_checkable
class FindsClusters(Protocol):
    """The declared capability of a method that puts clients into clusters."""

    clusters_at_start: ClassVar[bool]  # whether `start` finds them; else they form during the rounds

    def clustering(self, state: Any) -> Clustering:
        """The clusters in use, and what they were decided by; from stored values, nothing is found anew."""
        ...


@runtime_checkable
class FollowsChange(Protocol):
    """The declared capability of a method that answers changes of clients and of their data."""

    def depart(self, state: Any, gone: tuple[ClientId, ...], server: Server) -> Any:
        """Clients have left; they may come back."""
        ...

    def drifted(self, state: Any, alarmed: tuple[ClientId, ...], server: Server) -> Any:
        """These clients' data have changed."""
        ...

    def settle(self, state: Any, server: Server) -> Any:
        """A time to look at the clusters as a whole."""
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """The declared capability of a method whose newcomers train alone before they are taken in."""

    def warmup(self) -> int:
        """For how many rounds."""
        ...
