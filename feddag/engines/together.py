# SPDX-License-Identifier: Apache-2.0
"""Several clients' tasks side by side: wherever all of them want to train, they train at once.

A task is a plain function that calls `sgd` when it likes. So that tasks need not know of each other, each
runs in a thread of its own, and only one thread runs at any time:

    client a   ──task──▶ sgd ┐                ┌──task──▶ sgd ┐               ┌──▶ reply
    client b   ──task──▶ sgd ┼─ all at once ──┼──task──▶ sgd ┼─ all at once ─┼──▶ reply
    client c   ──task──▶ sgd ┘                └──task────────────▶ reply     │
    (one after another)        (this thread)    (one after another)

The trainings are computed in the thread of the engine.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from feddag.core.engine import Answer, Exchange
from feddag.core.params import Params
from feddag.core.seeds import undisturbed
from feddag.core.task import ClientId, ClientTask
from feddag.engines.memories import Remembered
from feddag.engines.perform import Site, perform
from feddag.learning.sgd import Training

Performed = tuple[Answer, Remembered]


def groups(site: Site, clients: Sequence[ClientId], round_: int, workers: int = 1) -> list[list[ClientId]]:
    """Who is asked at once: clients of similar size, the largest first; every worker has its share."""
    size = min(site.num_at_once, -(-len(clients) // workers))
    if size <= 1:
        return [[client] for client in clients]
    shares = site.federation.at(round_).clients
    ordered = sorted(clients, key=lambda client: (-shares[client].size(), client))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def perform_together(
    site: Site,
    task: ClientTask,
    requests: Mapping[ClientId, Any],
    exchange: Exchange,
    memories: Mapping[ClientId, Remembered],
) -> dict[ClientId, Performed]:
    """`perform` for some clients; their trainings are computed at once where they fit together."""
    if len(requests) == 1:
        [(client, request)] = requests.items()
        return {client: perform(site, task, request, client, exchange, memories[client])}
    started = time.perf_counter()
    turns = {
        client: Turn(site, task, request, client, exchange, memories[client])
        for client, request in requests.items()
    }
    try:
        for turn in turns.values():
            turn.go_on()
        while waiting := [turn for turn in turns.values() if turn.wanted is not None]:
            results = site.cohort.train([turn.wanted for turn in waiting if turn.wanted is not None])
            for turn, result in zip(waiting, results, strict=True):
                turn.go_on(result)
    finally:
        for turn in turns.values():
            turn.leave()
    performed = {client: turn.performed for client, turn in turns.items()}
    return dict(_shared_seconds(performed, time.perf_counter() - started))


def _shared_seconds(
    performed: Mapping[ClientId, Performed], seconds: float
) -> Iterator[tuple[str, Performed]]:
    """Every client's part of the time, in proportion to the samples it trained on."""
    work = sum(1 + answer.samples for answer, _ in performed.values())
    for client, (answer, memory) in performed.items():
        own = seconds * (1 + answer.samples) / work
        phases = {name: own * used / (answer.seconds or 1.0) for name, used in answer.phases.items()}
        yield client, (replace(answer, seconds=own, phases=phases), memory)


class Left(BaseException):
    """The engine is gone: the task ends here."""


class Turn(threading.Thread):
    """One client's task: it runs when it is told to go on, until it wants to train or is over."""

    performed: Performed

    def __init__(self, *arguments: Any) -> None:
        super().__init__(daemon=True)
        self.arguments = arguments
        self.wanted: Training | None = None  # what it wants to train; None: it has not begun, or is over
        self.given: Params | BaseException | None = None
        self.broken: BaseException | None = None  # what no client's fault explains
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)

    def go_on(self, trained: Params | BaseException | None = None) -> None:
        """Let it run, with what it has waited for, until it stops again."""
        self.wanted, self.given = None, trained
        with undisturbed():  # each task has torch's global generators for itself
            if self.ident is None:
                self.start()
            else:
                self._mine.release()
            self._theirs.acquire()
        if self.broken is not None:
            raise self.broken

    def leave(self) -> None:
        """Let it end; nothing happens if it is over."""
        if self.is_alive():
            self.wanted, self.given = None, Left()
            self._mine.release()
            self.join()

    def run(self) -> None:
        """The task, in its own thread."""
        torch.set_flush_denormal(True)
        try:
            site, task, request, client, exchange, memory = self.arguments
            self.performed = perform(site, task, request, client, exchange, memory, self._train)
        except BaseException as error:
            self.broken = error
        finally:
            self._theirs.release()

    def _train(self, training: Training) -> Params:
        self.wanted = training
        with undisturbed():
            self._theirs.release()
            self._mine.acquire()
        if isinstance(self.given, BaseException):
            raise self.given
        assert self.given is not None
        return self.given
