# SPDX-License-Identifier: Apache-2.0
"""The story of a run, event by event: for reports, and for pages that follow a run while it goes on.

`RunLog` takes events one at a time, so that nobody has to read a long log twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feddag.reporting.tables.lifecycle import Story
from feddag.reporting.tables.log import Event

MOST_FAILURES = 5000  # that are kept by name; all are counted
MOST_LINES = 400  # of the log in words


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: scores over clients and of each client, and what the run had cost until then."""

    round: int
    test: Mapping[str, Any]
    validation: Mapping[str, Any]
    clients: Mapping[str, float]  # client → accuracy; clients without test samples are left out
    bytes: int
    seconds: float


@dataclass
class Cost:
    """What one phase cost: bytes, seconds that clients computed, seconds that the server computed."""

    bytes_down: int = 0
    bytes_up: int = 0
    client_seconds: float = 0.0
    server_seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """One client that did not answer a question."""

    round: int
    task: str
    client: str
    reason: str


@dataclass
class RunLog:
    """What the events of a run say together."""

    about: Event = field(default_factory=dict)  # the event `started` or `resumed`
    round: int = -1  # the newest finished round
    seconds: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    special: dict[str, Evaluation] = field(default_factory=dict)  # "final", "chosen", "newcomers"
    rounds: list[tuple[int, float, int]] = field(default_factory=list)  # round, seconds, size of the cohort
    costs: dict[str, Cost] = field(default_factory=dict)  # phase → cost
    failures: list[Failure] = field(default_factory=list)
    num_failures: int = 0
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # the log in words, the newest last
    clusters: dict[str, int] = field(default_factory=dict)  # client → cluster, as far as the method tells
    notes: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # round → what the method noted
    story: Story = field(default_factory=Story)  # who joined, left and changed

    def add(self, event: Event) -> None:
        """Take in the next event; kinds that are not known change nothing."""
        kind = event.get("event", "")
        self.story.add(event)
        handle = getattr(self, f"_on_{kind}", None)
        if handle is not None:
            handle(event)
        elif kind.endswith("_evaluation"):
            self.special[kind.removesuffix("_evaluation")] = self._evaluation(event)

    def _on_started(self, event: Event) -> None:
        self.about = event
        self._say("started" if event["event"] == "started" else f"resumed after round {max(self.round, 0)}")

    _on_resumed = _on_started

    def _on_exchange(self, event: Event) -> None:
        evaluation = event["task"] == "evaluate"
        for phase, cost in _phases(event).items():
            total = self.costs.setdefault(phase, Cost())
            total.bytes_down += cost.bytes_down
            total.bytes_up += cost.bytes_up
            total.client_seconds += cost.client_seconds
        if not evaluation:
            self.bytes_down += event["bytes_down"]
            self.bytes_up += event["bytes_up"]
        for client, reason in event["failures"].items():
            self.num_failures += 1
            if len(self.failures) < MOST_FAILURES:
                self.failures.append(Failure(event["round"], event["task"], client, reason))
            self._say(f"round {event['round']}: {client} failed in {event['task']}: {reason}")

    def _on_round(self, event: Event) -> None:
        self.round = event["round"]
        self.seconds += event["seconds"]
        self.rounds.append((event["round"], event["seconds"], len(event["cohort"])))
        if "waited" in event:  # what is not spent waiting for clients is the server's own work
            own = self.costs.setdefault("averaging" if event["round"] else "clustering", Cost())
            own.server_seconds += max(0.0, event["seconds"] - event["waited"])
        if event.get("notes"):
            self.notes[event["round"]] = event["notes"]
        name = f"round {event['round']}" if event["round"] else "start"
        self._say(f"{name}: {len(event['cohort'])} clients, {event['seconds']:.2f} s")

    _on_start = _on_round

    def _on_evaluation(self, event: Event) -> None:
        self.evaluations.append(self._evaluation(event))
        accuracy = event["test"].get("accuracy")
        if accuracy is not None:
            self._say(f"round {event['round']}: accuracy {100 * accuracy:.2f}%")

    def _on_clusters(self, event: Event) -> None:
        self.clusters = {**self.clusters, **event["clusters"]}

    _on_standing = _on_clusters  # the same in runs whose clients come, go and change

    def _on_warning(self, event: Event) -> None:
        self.warnings.append(event["text"])
        self._say(f"warning: {event['text']}")

    def _on_check(self, event: Event) -> None:
        if event["alarms"]:
            self._say(f"round {event['round']}: alarms of {', '.join(event['alarms'][:10])}")

    def _on_moved(self, event: Event) -> None:
        self._say(f"round {event['round']}: {len(event['clients'])} clients moved to another cluster")

    def _on_newcomers(self, event: Event) -> None:
        self._say(f"round {event['round']}: {len(event['clients'])} clients joined")

    def _evaluation(self, event: Event) -> Evaluation:
        clients = {c: s["accuracy"] for c, s in event.get("test_clients", {}).items() if s}
        cost = self.bytes_down + self.bytes_up
        return Evaluation(
            event["round"], event["test"], event.get("validation", {}), clients, cost, self.seconds
        )

    def _say(self, line: str) -> None:
        self.lines.append(line)
        if len(self.lines) > 2 * MOST_LINES:
            del self.lines[:MOST_LINES]


def _phases(event: Event) -> dict[str, Cost]:
    """What one question cost, by phase; older logs name only the task."""
    if "phases" in event:
        return {phase: Cost(*amounts) for phase, amounts in event["phases"].items()}
    seconds = sum(event.get("client_seconds", {}).values())
    phase = "evaluation" if event["task"] == "evaluate" else event["task"]
    return {phase: Cost(event["bytes_down"], event["bytes_up"], seconds)}


@dataclass
class LogFollower:
    """Reads a log that is still being written: each call takes in what has come since the last one."""

    path: Path
    log: RunLog = field(default_factory=RunLog)
    offset: int = 0
    damaged: bool = False  # a whole line that is no event: reading has ended there, as for every reader

    def catch_up(self) -> bool:
        """Whether there was anything new. A log that became shorter (resume cut it) is read anew."""
        try:
            size = self.path.stat().st_size
            if size < self.offset:
                self.log, self.offset, self.damaged = RunLog(), 0, False
            if size == self.offset or self.damaged:
                return False
            with self.path.open("rb") as file:
                file.seek(self.offset)
                return self._read(file)
        except OSError:
            return False

    def _read(self, file: Any) -> bool:
        news = False
        for line in file:
            if not line.endswith(b"\n"):  # its end has not been written yet
                break
            try:
                self.log.add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                self.damaged = True
                break
            self.offset += len(line)
            news = True
        return news


def read_run_log(path: Path) -> RunLog:
    """The whole log of a run, as far as it can be read."""
    follower = LogFollower(path)
    follower.catch_up()
    return follower.log
