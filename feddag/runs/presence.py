# SPDX-License-Identifier: Apache-2.0
"""Who is there in which round."""

from collections.abc import Collection
from dataclasses import dataclass

from feddag.core.engine import Engine
from feddag.core.task import ClientId


@dataclass(frozen=True)
class FixedPresence:
    """The same clients in every round; newcomers join after the last one."""

    clients: tuple[ClientId, ...]
    num_rounds: int
    newcomers: tuple[ClientId, ...] = ()
    spectators: Collection[ClientId] = ()  # clients without training samples

    def present(self, round_: int) -> tuple[ClientId, ...]:
        """Everybody but the newcomers; after the last round everybody."""
        everyone = (*self.clients, *self.newcomers) if round_ > self.num_rounds else self.clients
        return tuple(sorted(everyone))

    def trains(self, client: ClientId) -> bool:
        """Everybody who has training samples."""
        return client not in self.spectators


@dataclass(frozen=True)
class ReachedPresence:
    """Whoever the engine can reach: clients join and leave as they like."""

    engine: Engine

    def present(self, round_: int) -> tuple[ClientId, ...]:
        """Clients that can be reached now."""
        return self.engine.clients()

    def trains(self, client: ClientId) -> bool:
        """Every client: one without samples answers that it has none."""
        return True
