# SPDX-License-Identifier: Apache-2.0
"""Persistent worker processes: one torch thread each, samples mapped from shared files, longest client first.

Nothing is pickled and the user's main module is not imported again: a worker is a plain Python process that
receives packed messages. A request that many clients share is written once to shared memory. What a client
remembers lives here, so a worker may die at any moment.
"""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import InvalidMessage
from feddag.core.task import ClientId, ClientTask, Memory
from feddag.data.federation import Federation
from feddag.engines.perform import Site
from feddag.engines.private_folder import PrivateFolder, open_folder, write_block
from feddag.engines.simulated import SimulatedClients
from feddag.engines.together import groups
from feddag.engines.worker import blob
from feddag.engines.workers import Crew, Worker

SHARED_MEMORY = "/dev/shm"  # exists on Linux only
GLANCE = 0.2  # seconds between two looks at workers that are starting


class ProcessEngine(SimulatedClients):
    """Carries questions to worker processes."""

    def __init__(
        self, site: Site, model: str, workers: int = 0, memories: Path | None = None, owner: str = ""
    ) -> None:
        super().__init__(site, memories, owner)
        self._blocks = 0
        self._crew: Crew | None = None
        self._opened: PrivateFolder | None = None
        try:
            # They import torch while the data are written.
            self._crew = Crew(min(workers or site.num_workers, len(site.federation.clients)))
            self._opened = open_folder(
                Path(SHARED_MEMORY),
                _bytes_of(site.federation),
                lambda folder: site.federation.save(folder / "data"),
            )
            self.folder = self._opened.path
            self._crew.open(
                self.folder,
                data=str(self.folder / "data"),
                model=model,
                backend=site.backend,
                computing=blob(codec.encode(site.computing)),
                **self._privacy(),
            )
        except BaseException:
            self.close()
            raise

    def _privacy(self) -> dict[str, Any]:
        """What a worker must know about privacy."""
        if self.site.privacy is None:
            return {}
        ledger = self.site.privacy.ledger.path or self.folder / "ledger.jsonl"
        return {"privacy": blob(codec.encode(self.site.privacy.options)), "ledger": str(ledger)}

    def close(self) -> None:
        """End the workers and remove the shared files."""
        if self._crew is not None:
            self._crew.close()
        if self._opened is not None:
            self._opened.close()
        super().close()

    @property
    def crew(self) -> Crew:
        """The worker processes."""
        assert self._crew is not None
        return self._crew

    @property
    def workers(self) -> int:
        """How many worker processes there are."""
        return len(self.crew.workers)

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Hand clients to idle workers, those with most samples first, until all have answered or failed."""
        self.crew.begin_question()
        blocks, sizes = self._share(requests)
        shares = self.site.federation.at(exchange.round).clients
        ordered = sorted(requests, key=lambda c: (-shares[c].size(), c))
        waiting = groups(self.site, ordered, exchange.round, self.workers)[::-1]
        answers: dict[ClientId, Answer] = {}
        try:
            while len(answers) < len(requests):
                self.crew.replace_dead()
                for worker in self.crew.workers:
                    if waiting and worker.ready and not worker.clients:
                        clients = {client: blocks[id(requests[client])] for client in waiting.pop()}
                        self._send(worker, task, clients, exchange)
                for client, answer in self._collect(task, exchange.deadline):
                    answers[client] = replace(answer, bytes_down=sizes[id(requests[client])])
                    exchange.on_answer(client)
        finally:
            for worker in self.crew.workers:
                if worker.clients:  # interrupted: what it still computes belongs to no question any more
                    self.crew.replace(worker)
            for block in blocks.values():
                block.unlink(missing_ok=True)
        return answers

    # -- one question ------------------------------------------------------------------------------------

    def _share(self, requests: Mapping[ClientId, Any]) -> tuple[dict[int, Path], dict[int, int]]:
        """Write every distinct request once; by identity: path of its block, size in canonical form."""
        blocks: dict[int, Path] = {}
        sizes: dict[int, int] = {}
        for request in requests.values():
            if id(request) not in blocks:
                self._blocks += 1
                name = f"request-{self._blocks}"
                blocks[id(request)] = write_block(self.folder, name, codec.encode(request))
                sizes[id(request)] = codec.nbytes(request)
        return blocks, sizes

    def _send(
        self, worker: Worker, task: ClientTask, clients: Mapping[ClientId, Path], exchange: Exchange
    ) -> None:
        assert worker.connection is not None
        worker.clients, worker.since = list(clients), time.monotonic()
        worker.limit = exchange.deadline * len(clients)
        memories = [codec.encode(Memory.of(self.memories.get(client))) for client in clients]
        question = {
            "task": task.address,
            "clients": json.dumps({client: str(block) for client, block in clients.items()}),
            "round": exchange.round,
            "root": exchange.seed.root,
            "path": json.dumps(exchange.seed.path),
            **{f"memory {i}": blob(memory) for i, memory in enumerate(memories)},
        }
        with contextlib.suppress(OSError):  # a dead worker: collecting finds out and says so
            worker.connection.send_bytes(codec.pack(question))

    def _collect(self, task: ClientTask, deadline: float) -> list[tuple[ClientId, Answer]]:
        """Answers that have arrived, and failures of workers that died or took too long."""
        busy = {w.connection: w for w in self.crew.workers if w.connection is not None and w.clients}
        limits = [w.limit - (time.monotonic() - w.since) for w in busy.values()]
        waited: list[Any] = [*busy]
        if starting := self.crew.starting():
            limits.append(GLANCE)  # look now and then whether a starting worker has died
            waited += [self.crew.socket, *(w.connection for w in starting if w.connection is not None)]
        soonest = min(limits, default=0.0)
        ready = wait(waited, None if soonest == math.inf else max(0.0, soonest))
        if starting:
            self.crew.admit(ready)
        collected: list[tuple[ClientId, Answer]] = []
        for connection, worker in busy.items():
            if connection in ready:
                try:
                    data = worker.connection.recv_bytes()  # type: ignore[union-attr]
                except (EOFError, OSError):
                    lost = Answer(failure=f"its worker process died ({worker.how_it_ended()})")
                else:
                    client = worker.clients.pop(0)
                    collected.append((client, self._receive(client, data, task)))
                    continue
            elif time.monotonic() - worker.since >= worker.limit:
                lost = Answer(failure=f"it exceeded the deadline of {deadline:g} s", seconds=deadline)
            else:
                continue
            self.crew.replace(worker)
            collected += [(client, lost) for client in worker.clients]
        return collected

    def _receive(self, client: ClientId, data: bytes, task: ClientTask) -> Answer:
        try:
            payload = codec.unpack(data)
            if payload["failure"]:
                return Answer(failure=payload["failure"], seconds=payload["seconds"])
            reply = codec.decode(task.reply, payload["reply"].tobytes())
            self.memories.put(client, codec.decode(Memory, payload["memory"].tobytes()).unwrap())
        except InvalidMessage as error:
            return Answer(failure=str(error))
        counted = {name: payload[name] for name in ("seconds", "samples", "epochs", "bytes_up")}
        return Answer(reply=reply, phases=json.loads(payload["phases"]), **counted)


def _bytes_of(federation: Federation) -> int:
    """How much space the data need in the shared folder, at least; files that exist are not copied."""
    pools = (getattr(pool, part) for pool in (federation.train, federation.test) for part in ("x", "y"))
    copied = sum(array.nbytes for array in pools if not isinstance(array, np.memmap))
    return copied + sum(share.train.nbytes + share.test.nbytes for share in federation.shares())
