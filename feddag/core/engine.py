# SPDX-License-Identifier: Apache-2.0
"""Engine and Presence: who carries a question to the clients, and who is there to answer it.

A server knows clients through these two alone. What a client remembers stays with the engine: on the
client's own disk in a deployment, in files of its own beside the server's checkpoints in a simulation.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask


@dataclass(frozen=True)
class Exchange:
    """One question as the engine sees it: where it stands in the run, and what randomness it has."""

    round: int
    seed: Seed
    deadline: float = math.inf  # seconds one client may take
    # Called after each answer, for progress bars.
    on_answer: Callable[[ClientId], None] = field(default=lambda client: None, compare=False)

    def client_seed(self, client: ClientId) -> Seed:
        """Randomness of one client for this question."""
        return self.seed / "client" / client

    @property
    def shared_seed(self) -> Seed:
        """Randomness that all clients of this question share."""
        return self.seed / "shared"


@dataclass(frozen=True)
class Answer:
    """What came back from one client: a reply, or the reason why there is none."""

    reply: Any = None
    failure: str = ""
    remark: str = ""  # what the server changed in the reply, for the log
    seconds: float = 0.0
    samples: int = 0  # gradients of single samples that the client computed
    epochs: float = 0.0  # the same in passes over its training samples
    bytes_down: int = 0
    bytes_up: int = 0
    parts_down: Mapping[str, int] = field(default_factory=dict)  # bytes_down that belong to other phases
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds that belong to other phases
    error: Exception | None = None  # the cause, where it happened in this process


class Engine(Protocol):
    """Carries questions to clients. Answers may come in any order; the server sorts them."""

    def clients(self) -> tuple[ClientId, ...]:
        """Clients that can be reached now, sorted."""
        ...

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Ask every named client; an answer for each, never an exception for one client's fault."""
        ...

    def save_memories(self, label: str) -> None:
        """Keep what every client remembers now under a label; when this returns, a kill loses nothing."""
        ...

    def restore_memories(self, label: str) -> None:
        """Let every client remember what was saved under a label; InvalidMessage if that is not there."""
        ...

    def prune_memories(self, keep: Collection[str]) -> None:
        """Forget everything that was saved under other labels than these."""
        ...

    def describe(self) -> dict[str, Any]:
        """What computes, for the log: plain values."""
        ...

    def close(self) -> None:
        """Release processes and files."""
        ...


class Presence(Protocol):
    """Who is there in which round: from a scenario, or from the engine itself."""

    def present(self, round_: int) -> tuple[ClientId, ...]:
        """Clients that are there in a round, sorted. Round 0 is the start."""
        ...

    def trains(self, client: ClientId) -> bool:
        """Whether a client has samples to train on; others are only scored."""
        ...
