# SPDX-License-Identifier: Apache-2.0
"""The machine that runs feddag: its hardware and versions, and Ctrl-C that must wait."""

import importlib.metadata
import os
import platform
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIBRARIES = ("feddag", "torch", "numpy", "scipy", "scikit-learn")


def describe_machine() -> dict[str, Any]:
    """Hardware and versions, as far as results and speed depend on them."""
    return {
        "cpu": _cpu_name(),
        "cores": num_cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "threads_per_client": 1,
        "flush_denormals": True,
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def num_cores() -> int:
    """The number of cores that this process may use; all cores where the system has no such limit."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Bytes that can be used without swapping; a very large number where there is no /proc."""
    return _proc_bytes(Path("/proc/meminfo"), "MemAvailable:") or 2**60


def peak_memory(pid: int) -> int:
    """The most memory that a process has used so far, in bytes; 0 where there is no /proc."""
    return _proc_bytes(Path(f"/proc/{pid}/status"), "VmHWM:")


def _proc_bytes(path: Path, key: str) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done; a process that ignores Ctrl-C goes on ignoring it."""
    # None: a handler that is not Python's, which signal.signal could not restore.
    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if pressed:
        raise KeyboardInterrupt
