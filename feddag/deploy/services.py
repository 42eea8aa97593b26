# SPDX-License-Identifier: Apache-2.0
"""Processes that must stay: started again when they end, and ended together with everything they started."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Nothing leaves the machine unasked, and the pauses of Flower's that can be shortened are.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PATIENCE = 5.0  # seconds that a process has to end by itself
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds before a process that ended is started again
LONG_LIFE = 60.0  # seconds after which a process counts as well started
PR_SET_PDEATHSIG = 1
LAST_LINES = 4000  # bytes of a log that are shown when something is wrong


def environment(flower_home: Path) -> dict[str, str]:
    """For everything that is started: quiet, with Flower's files in this folder, one thread per library."""
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    modules = os.pathsep.join(p or os.getcwd() for p in sys.path if not p.endswith(".zip"))
    own = {"FLWR_HOME": str(flower_home), "PATH": binaries, "PYTHONPATH": modules}
    return {**os.environ, **dict.fromkeys(THREADS, "1"), **QUIET, **own}


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind((host, 0))
        return found.getsockname()[1]


class Service:
    """One process with everything it starts."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.command, self.env, self.log = name, list(command), dict(env), log
        self.process: subprocess.Popen | None = None
        self.starts = 0
        self._pause, self._since, self._again = FIRST_PAUSE, 0.0, 0.0

    def start(self) -> None:
        """Start it; what it says goes to its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # ends when this process does, however it ends
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self.starts += 1
        self._since = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self.process is not None and self.process.poll() is None

    def tend(self) -> bool:
        """Start it again if it has ended, after a pause that grows; whether it was started now."""
        if self.alive:
            return False
        now = time.monotonic()
        if self.process is not None:  # it has just been found dead: its children must not stay
            _signal_group(self.process, signal.SIGKILL)
            self._pause = (
                FIRST_PAUSE if now - self._since > LONG_LIFE else min(LONGEST_PAUSE, 2 * self._pause)
            )
            self._again, self.process = now + self._pause, None
        if now < self._again:
            return False
        self.start()
        return True

    def end(self) -> None:
        """End it and everything in its group: first politely, then surely."""
        process, self.process = self.process, None
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        _signal_group(process, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def last_words(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return self.log.read_bytes()[-LAST_LINES:].decode(errors="replace")
        return ""


def end_all(services: Sequence[Service]) -> None:
    """End several at once, so that each one's patience counts for all."""
    for service in services:
        if service.process is not None:
            _signal_group(service.process, signal.SIGTERM)
    for service in services:
        service.end()


def _signal_group(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)  # it leads its own group


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """In the child, before it starts: let the kernel end it when its parent is killed.

    Its own children notice that, and end themselves by SIGINT, which a background command would ignore.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
