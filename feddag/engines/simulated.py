# SPDX-License-Identifier: Apache-2.0
"""What the engines of a simulation share: the site, the clients on it, and what they remember."""

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from feddag.core.task import ClientId
from feddag.engines.memories import Memories
from feddag.engines.perform import Site, single_threaded


class SimulatedClients:
    """All clients of a federation, in this process or in its workers."""

    def __init__(self, site: Site, memories: Path | None = None, owner: str = "") -> None:
        self.site = site
        self.memories = Memories(memories, owner)
        self.closing = ExitStack()
        self.closing.enter_context(single_threaded())

    def clients(self) -> tuple[ClientId, ...]:
        """Everyone in the federation."""
        return self.site.federation.ids

    def save_memories(self, label: str) -> None:
        """Keep what the clients remember now, durably."""
        self.memories.save(label)

    def restore_memories(self, label: str) -> None:
        """Let the clients remember what was saved."""
        self.memories.restore(label)

    def prune_memories(self, keep: Collection[str]) -> None:
        """Forget what was saved under other labels."""
        self.memories.prune(keep)

    def describe(self) -> dict[str, Any]:
        """Which backend computes."""
        return {"backend": self.site.backends()}

    def close(self) -> None:
        """Release everything, and let torch compute as before."""
        self.closing.close()
