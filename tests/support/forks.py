# SPDX-License-Identifier: Apache-2.0
"""Drivers and workers that are forks of this process: everything is imported, so a kill costs milliseconds.

They are real processes, and they end by signal 9. A fork counts its own moments (events of a run, operations
on files, messages between engine and worker) and kills itself at one of them, or it is killed from outside.
"""

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from feddag.engines import worker, workers

LONG = 300.0  # seconds after which a test that hangs fails
OPERATIONS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree"}


def fork(work: Callable[[], Any], closing: Callable[[], Any] = lambda: None) -> int:
    """The process id of a child that does this work; its exit code is 1 if the work raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        closing()
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # nothing that belongs to the tests is closed or written twice


def code_of(child: int) -> int:
    """How a child ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    """As if by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


class Moments:
    """Counts moments of this process, which dies at the n-th."""

    def __init__(self, last: int) -> None:
        self.left = last

    def __call__(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            die()

    def count_operations(self) -> None:
        """From now on whatever is done to files counts too; there is no way back, as for audit hooks."""
        force = os.fsync

        def fsync(descriptor: int) -> None:
            self()
            force(descriptor)

        os.fsync = fsync
        sys.addaudithook(lambda name, _: self() if name in OPERATIONS else None)


class Living:
    """A pipe that this process reads, and that ends when all who hold its other end have ended."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def begin(self) -> None:
        """All who shall hold it are started."""
        os.close(self.writing)

    def ended(self, seconds: float) -> bool:
        """Wait; whether all have ended."""
        return bool(select.select([self.reading], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self.reading)


# -- workers -------------------------------------------------------------------------------------------------


class ForkedWorker:
    """Stands in for `subprocess.Popen` of a worker process."""

    plan: Callable[[int], int] = staticmethod(lambda number: 0)  # number of a worker → its last message
    kept: tuple[int, ...] = ()  # what every worker keeps open: `deaths`, and the pipe of those who live
    deaths = -1  # a worker that kills itself writes here whether it was starting or working
    started = 0

    def __init__(
        self, command: list[str], *, stdin: int, stderr: Any, pass_fds: tuple[int, ...], **_: Any
    ) -> None:
        reading, writing = os.pipe()
        ForkedWorker.started += 1
        last, keeps = self.plan(ForkedWorker.started), {*pass_fds, *self.kept}

        def prepare() -> None:
            os.setsid()
            os.dup2(reading, 0)
            if stderr is not None:
                os.dup2(stderr.fileno(), 2)
            close_all_but(keeps)
            count_messages(last, self.deaths)

        self.pid = fork(worker.main, prepare)
        self.returncode: int | None = None
        os.close(reading)
        self.stdin = open(writing, "wb")  # noqa: SIM115 - the engine closes it

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, how: int) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, how)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def close_all_but(kept: set[int]) -> None:
    """Close what was inherited: else nobody notices when the other end of a pipe is gone."""
    edges = sorted({2, *kept})
    for low, high in zip(edges, [*edges[1:], 4096], strict=True):
        os.closerange(low + 1, high)


def count_messages(last: int, deaths: int) -> None:
    """Die at the n-th message that this worker reads or writes; 0 means that it lives."""
    left, ready = last, False

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.write(deaths, b"w" if ready else b"s")
                die()
            return original(*arguments, **options)

        return counted

    def desk(*arguments: Any) -> Any:
        nonlocal ready
        made = original_desk(*arguments)
        ready = True
        return made

    if last:
        original_desk = worker.Desk
        worker.Desk = desk  # type: ignore[assignment,misc]
        worker.read_line = before(worker.read_line)
        worker.perform_together = before(worker.perform_together)
        Connection.send_bytes = before(Connection.send_bytes)  # type: ignore[method-assign]
        Connection.recv_bytes = before(Connection.recv_bytes)  # type: ignore[method-assign]


@contextmanager
def forked_workers(patch: Any, plan: Callable[[int], int], *kept: int) -> Iterator[Callable[[], bytes]]:
    """While this lasts, workers are forks with these plans; gives a function that tells who killed itself."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def told() -> bytes:
        try:
            return os.read(reading, 2**16)
        except BlockingIOError:
            return b""

    with patch.context() as during:
        # Of the module `subprocess`, workers.py alone sees another one.
        during.setattr(workers, "subprocess", SimpleNamespace(Popen=ForkedWorker, PIPE=subprocess.PIPE))
        during.setattr(ForkedWorker, "plan", staticmethod(plan))
        during.setattr(ForkedWorker, "kept", (writing, *kept))
        during.setattr(ForkedWorker, "deaths", writing)
        during.setattr(ForkedWorker, "started", 0)
        try:
            yield told
        finally:
            os.close(reading)
            os.close(writing)
