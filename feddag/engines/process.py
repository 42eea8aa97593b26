# SPDX-License-Identifier: Apache-2.0
"""Persistent worker processes: one torch thread each, samples mapped from shared files, longest client first.

Nothing is pickled and the user's main module is not imported again: a worker is a plain
`python -m feddag.engines.worker` that receives packed messages. A request that many clients share is written
once to shared memory. What a client remembers lives here, so a worker may die at any moment.
"""

import contextlib
import json
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import FederationError, InvalidMessage
from feddag.core.host import num_cores
from feddag.core.task import ClientId, ClientTask, Memory
from feddag.engines.perform import Site
from feddag.engines.simulated import SimulatedClients
from feddag.engines.worker import blob

SHARED_MEMORY = "/dev/shm"  # exists on Linux only
START_TIMEOUT = 120.0  # seconds a worker may take to import and connect


@dataclass
class _Worker:
    process: subprocess.Popen
    started: float
    connection: Connection | None = None  # None until it has imported everything and called back
    client: ClientId = ""  # whom it works for now
    since: float = 0.0

    def end(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.process.kill()
        self.process.wait()


class ProcessEngine(SimulatedClients):
    """Carries questions to worker processes."""

    def __init__(self, site: Site, model: str, workers: int = 0, memories: Path | None = None) -> None:
        super().__init__(site, memories)
        self.model = model
        _remove_leftovers()
        self.folder = Path(tempfile.mkdtemp(prefix=f"feddag-{os.getpid()}-", dir=_shared_memory()))
        self._blocks = 0
        self._key = secrets.token_bytes(32)
        self._listener = Listener(authkey=self._key, backlog=64)
        count = min(workers or num_cores(), len(site.federation.clients))
        self._workers = [self._spawn() for _ in range(count)]  # they import torch while the data are written
        site.federation.save(self.folder / "data")

    @property
    def workers(self) -> int:
        """How many worker processes there are."""
        return len(self._workers)

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Hand clients to idle workers, those with most samples first, until all have answered or failed."""
        blocks, sizes = self._share(requests)
        shares = self.site.federation.clients
        waiting = sorted(requests, key=lambda c: (-len(shares[c].train), c), reverse=True)
        answers: dict[ClientId, Answer] = {}
        try:
            while len(answers) < len(requests):
                for worker in self._workers:
                    if waiting and worker.connection is not None and not worker.client:
                        client = waiting.pop()
                        self._send(worker, task, client, blocks[id(requests[client])], exchange)
                for client, answer in self._collect(task, exchange.deadline):
                    answers[client] = replace(answer, bytes_down=sizes[id(requests[client])])
                    exchange.on_answer(client)
        finally:
            for worker in self._workers:
                if worker.client:  # interrupted: what it still computes belongs to no question any more
                    self._replace(worker)
            for block in blocks.values():
                block.unlink(missing_ok=True)
        return answers

    def close(self) -> None:
        """End the workers and remove the shared files."""
        for worker in self._workers:
            worker.end()
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        super().close()

    # -- one question ------------------------------------------------------------------------------------

    def _share(self, requests: Mapping[ClientId, Any]) -> tuple[dict[int, Path], dict[int, int]]:
        """Write every distinct request once; by identity: path of its block, size in canonical form."""
        blocks: dict[int, Path] = {}
        sizes: dict[int, int] = {}
        for request in requests.values():
            if id(request) not in blocks:
                self._blocks += 1
                blocks[id(request)] = self.folder / f"request-{self._blocks}"
                blocks[id(request)].write_bytes(codec.encode(request))
                sizes[id(request)] = codec.nbytes(request)
        return blocks, sizes

    def _send(
        self, worker: _Worker, task: ClientTask, client: ClientId, block: Path, exchange: Exchange
    ) -> None:
        assert worker.connection is not None
        worker.client, worker.since = client, time.monotonic()
        question = {
            "task": task.address,
            "client": client,
            "request": str(block),
            "round": exchange.round,
            "root": exchange.seed.root,
            "path": json.dumps(exchange.seed.path),
            "memory": blob(codec.encode(Memory.of(self.memories.get(client)))),
        }
        with contextlib.suppress(OSError):  # a dead worker: collecting finds out and says so
            worker.connection.send_bytes(codec.pack(question))

    def _collect(self, task: ClientTask, deadline: float) -> list[tuple[ClientId, Answer]]:
        """Answers that have arrived, and failures of workers that died or took too long."""
        busy = {w.connection: w for w in self._workers if w.connection is not None and w.client}
        starting = [w for w in self._workers if w.connection is None]
        limits = [deadline - (time.monotonic() - w.since) for w in busy.values()]
        limits += [0.2] if starting else []  # look now and then whether a starting worker has died
        soonest = min(limits, default=0.0)
        listening = [self._socket] if starting else []
        ready = wait([*busy, *listening], None if soonest == math.inf else max(0.0, soonest))
        if starting:
            self._admit(starting, self._socket in ready)
        collected: list[tuple[ClientId, Answer]] = []
        for connection, worker in busy.items():
            if connection in ready:
                answer = self._receive(worker, task)
            elif time.monotonic() - worker.since >= deadline:
                answer = Answer(failure=f"it exceeded the deadline of {deadline:g} s", seconds=deadline)
                self._replace(worker)
            else:
                continue
            collected.append((worker.client, answer))
            worker.client = ""
        return collected

    def _receive(self, worker: _Worker, task: ClientTask) -> Answer:
        assert worker.connection is not None
        try:
            data = worker.connection.recv_bytes()
        except (EOFError, OSError):
            code = worker.process.wait()
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            self._replace(worker)
            return Answer(failure=f"its worker process died ({how})")
        try:
            payload = codec.unpack(data)
            if payload["failure"]:
                return Answer(failure=payload["failure"], seconds=payload["seconds"])
            reply = codec.decode(task.reply, payload["reply"].tobytes())
            self.memories.put(worker.client, codec.decode(Memory, payload["memory"].tobytes()).unwrap())
        except InvalidMessage as error:
            return Answer(failure=str(error))
        return Answer(reply=reply, seconds=payload["seconds"], bytes_up=payload["bytes_up"])

    # -- worker processes --------------------------------------------------------------------------------

    @property
    def _socket(self) -> socket.socket:
        return self._listener._listener._socket  # type: ignore[attr-defined]

    def _spawn(self) -> _Worker:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p or os.getcwd() for p in sys.path))
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # A session of its own: Ctrl-C reaches this process alone, which then stops the workers in order.
        process = subprocess.Popen(
            [sys.executable, "-m", "feddag.engines.worker"],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps([self._listener.address, self._key.hex()]).encode() + b"\n")
        process.stdin.close()
        return _Worker(process, time.monotonic())

    def _admit(self, starting: list[_Worker], calling: bool) -> None:
        """Take in a worker that has called back; notice one that cannot start."""
        if calling:
            connection = self._listener.accept()
            pid = codec.unpack(connection.recv_bytes())["pid"]
            next(w for w in starting if w.process.pid == pid).connection = connection
            hello = {
                "folder": str(self.folder),
                "data": str(self.folder / "data"),
                "model": self.model,
                "backend": self.site.backend,
            }
            connection.send_bytes(codec.pack(hello))
        for worker in starting:
            late = time.monotonic() - worker.started > START_TIMEOUT
            if worker.connection is None and (late or worker.process.poll() is not None):
                raise FederationError("a worker process could not start: see its error above")

    def _replace(self, worker: _Worker) -> None:
        """End a worker and let another start in its place."""
        worker.end()
        self._workers[self._workers.index(worker)] = self._spawn()


def _shared_memory() -> str | None:
    """A folder in memory where the system has one; None: use the ordinary temporary folder."""
    return SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) and os.access(SHARED_MEMORY, os.W_OK) else None


def _remove_leftovers() -> None:
    """Remove shared folders whose engine is gone (killed before it could clean up)."""
    root = Path(_shared_memory() or tempfile.gettempdir())
    for folder in root.glob("feddag-*-*"):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
