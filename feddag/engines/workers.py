# SPDX-License-Identifier: Apache-2.0
"""The worker processes of the process engine: how they start, call back, are replaced and end.

A worker starts as `python -P`: files in the current folder cannot stand for a library, because the current
folder comes last. feddag itself is loaded from where this process has it. A worker imports everything, reads
from its standard input where to call back, calls back, opens the data, and says that it is ready. Its
standard input stays open: when it ends, the engine is gone, and the worker ends too.
"""

import contextlib
import json
import math
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import IO, Any

from feddag.core import codec
from feddag.core.errors import FederationError
from feddag.core.task import ClientId

START_TIMEOUT = 120.0  # seconds a worker may take to import and connect
START_ATTEMPTS = 4  # how often one worker is started for one question before the run gives up
TAIL = 600  # characters of a worker's last words that are repeated
LONGEST_SOCKET = 100  # characters: systems allow 104 to 108 in the path of a socket
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

PACKAGE = Path(__file__).parents[1] / "__init__.py"  # feddag as this process has it
# Loads feddag from a known folder, without making other files beside it importable.
BOOT = """
import gc, importlib.util, sys
gc.disable()  # half a million objects are imported, none of them garbage
spec = importlib.util.spec_from_file_location("feddag", sys.argv[1])
sys.modules["feddag"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from feddag.engines.worker import main
gc.enable()
main()
"""


@dataclass
class Worker:
    """One worker process as the engine sees it."""

    process: subprocess.Popen
    number: int
    started: float
    attempt: int = 1  # how often in a row it was started
    errors: IO[bytes] | None = None  # what it writes to standard error until it is ready
    connection: Connection | None = None  # None until it has imported everything and called back
    ready: bool = False  # whether it has opened the data
    clients: list[ClientId] = field(default_factory=list)  # whom it works for now, as they will be answered
    since: float = 0.0
    limit: float = math.inf  # seconds from then on

    def end(self) -> None:
        """Kill the process and close everything that belongs to it."""
        self.process.kill()
        self.process.wait()
        for file in (self.connection, self.process.stdin, self.errors):
            if file is not None:
                with contextlib.suppress(OSError):  # unsent bytes of a pipe that nobody reads
                    file.close()

    def how_it_ended(self) -> str:
        """The exit code or signal, in words."""
        code = self.process.wait()
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        """The end of what it wrote to standard error, as one line."""
        if self.errors is None:
            return ""
        self.errors.seek(0)
        text = self.errors.read().decode("utf-8", "replace").encode("unicode_escape").decode("ascii")
        return text.replace("\\n", " | ")[-TAIL:].strip(" |")


class Crew:
    """A fixed number of worker processes; whoever dies is replaced."""

    def __init__(self, count: int) -> None:
        self._spawned = 0
        self._key = secrets.token_bytes(32)
        self._listener: Listener | None = None
        self._hello: codec.Payload = {}
        self.workers: list[Worker] = []
        try:
            for _ in range(count):
                self.workers.append(self._spawn())
        except OSError as error:
            self.close()
            raise FederationError(
                f"no worker process can be started: {error.strerror or error}: use fewer engine.workers"
            ) from error

    def open(self, folder: Path, **hello: Any) -> None:
        """Tell the workers, who import meanwhile, where to call back; `hello` says what they work on."""
        address = str(folder / "socket")
        private = hasattr(socket, "AF_UNIX") and len(address) < LONGEST_SOCKET
        # Where the path is too long for a socket: a port of this machine; the key keeps strangers out.
        self._listener = Listener(address if private else ("127.0.0.1", 0), authkey=self._key, backlog=64)
        self._hello = {"folder": str(folder), **hello}
        for worker in self.workers:
            self._tell(worker)

    @property
    def socket(self) -> socket.socket:
        """Where starting workers call; it can be waited for."""
        return self._listener._listener._socket  # type: ignore[union-attr]

    def starting(self) -> list[Worker]:
        """Workers that are not ready yet."""
        return [worker for worker in self.workers if not worker.ready]

    def admit(self, ready: list[Any]) -> None:
        """Take in workers that have called back or are ready; replace those that cannot start."""
        if self.socket in ready:
            self._accept()
        for worker in self.starting():
            failed = worker.process.poll() is not None
            if worker.connection is not None and worker.connection in ready:
                try:
                    worker.ready = bool(codec.unpack(worker.connection.recv_bytes())["ready"])
                    worker.attempt = 1
                    failed = False
                except (EOFError, OSError):
                    failed = True
            if failed or (not worker.ready and time.monotonic() - worker.started > START_TIMEOUT):
                self._start_again(worker)

    def replace(self, worker: Worker, attempt: int = 1) -> None:
        """End a worker and let another start in its place."""
        worker.end()
        fresh = self._spawn()
        fresh.attempt = attempt
        self.workers[self.workers.index(worker)] = fresh
        self._tell(fresh)

    def begin_question(self) -> None:
        """Count attempts to start anew: a long run may lose many workers, one question only a few."""
        for worker in self.workers:
            worker.attempt = 1

    def replace_dead(self) -> None:
        """Replace workers that died while nobody asked them anything: no client lost an answer."""
        for worker in self.workers:
            if worker.ready and not worker.clients and worker.process.poll() is not None:
                self.replace(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.end()
        if self._listener is not None:
            with contextlib.suppress(OSError):  # its file is gone already
                self._listener.close()

    def _start_again(self, worker: Worker) -> None:
        if worker.attempt >= START_ATTEMPTS:
            worker.process.kill()
            how, words = worker.how_it_ended(), worker.last_words()
            raise FederationError(
                f"a worker process could not start in {START_ATTEMPTS} attempts ({how})"
                + (f"; its last words: {words}" if words else "")
            )
        self.replace(worker, worker.attempt + 1)

    def _accept(self) -> None:
        """Take one call; a worker that dies meanwhile is noticed by its exit code."""
        assert self._listener is not None
        try:
            connection = self._listener.accept()
            number = codec.unpack(connection.recv_bytes())["number"]
            connection.send_bytes(codec.pack(self._hello))
        except (EOFError, OSError, AuthenticationError):
            return
        for worker in self.starting():
            if worker.number == number and worker.connection is None:
                worker.connection = connection
                return
        connection.close()  # it was replaced while it called

    def _spawn(self) -> Worker:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(import_path()))
        environment |= dict.fromkeys(THREADS, "1")
        self._spawned += 1
        errors, screen = _error_file()
        try:
            # A session of its own: Ctrl-C reaches this process alone, which then stops the workers in order.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(PACKAGE)],
                stdin=subprocess.PIPE,
                stderr=errors,
                pass_fds=() if screen is None else (screen,),
                env=environment,
                start_new_session=True,
            )
        finally:
            if screen is not None:
                os.close(screen)
        worker = Worker(process, self._spawned, time.monotonic(), errors=errors)
        self._write(worker, {"number": worker.number, "screen": screen})
        return worker

    def _tell(self, worker: Worker) -> None:
        if self._listener is not None:
            self._write(worker, {"address": self._listener.address, "key": self._key.hex()})

    @staticmethod
    def _write(worker: Worker, line: dict[str, Any]) -> None:
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # it died: its exit code says so
            worker.process.stdin.write(json.dumps(line).encode() + b"\n")
            worker.process.stdin.flush()


def import_path() -> list[str]:
    """Where workers look for modules: as this process does, but in the current folder last of all."""
    here = os.getcwd()
    return [p for p in sys.path if p and os.path.abspath(p) != here] + [here]


def _error_file() -> tuple[IO[bytes] | None, int | None]:
    """A file for what a starting worker says, and a copy of our standard error for what it says later."""
    if os.name != "posix":
        return None, None  # other systems cannot hand over the copy: the worker writes to our standard error
    try:
        return tempfile.TemporaryFile(), os.dup(2)
    except OSError:  # no space, or no standard error
        return None, None
