# SPDX-License-Identifier: Apache-2.0
"""Run a command, read its JSON lines and watch the memory of its whole process tree (Linux /proc)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.2
PROPORTIONAL_EVERY = 5  # smaps_rollup is dear: read it on every fifth sample only
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class CommandFailed(Exception):
    """A contender ended with an error."""


@dataclass
class Watched:
    """What a finished command printed and used."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    peak_rss: int = 0  # sum over processes: pages they share are counted once per process
    peak_pss: int = 0  # shared pages divided among those who share them
    others: float = 0.0  # cores that processes outside this tree kept busy meanwhile, on average


def run(command: list[str], env: dict[str, str], log: Path, timeout: float) -> Watched:
    """Run a command to its end; anything it says that is not JSON goes to the log."""
    watched = Watched()
    own: dict[int, float] = {}  # processor seconds of each process of the tree, when last seen
    busy, started = busy_seconds() - own_seconds(), time.monotonic()
    with log.open("w") as log_file:
        env = {**env, "BENCHMARK_LAUNCHED": repr(time.time())}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log_file, text=True)
        reader = threading.Thread(target=_read, args=(process, watched, own, log_file))
        reader.start()
        deadline = time.monotonic() + timeout
        try:
            sample = 0
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise CommandFailed(f"{command[1]} did not end within {timeout:.0f} s; see {log}")
                members = tree(process.pid)
                for member in members:
                    own[member] = max(own.get(member, 0.0), used_seconds(member))
                watched.peak_rss = max(watched.peak_rss, sum(map(resident, members)))
                if sample % PROPORTIONAL_EVERY == 0:
                    watched.peak_pss = max(watched.peak_pss, sum(map(proportional, members)))
                sample += 1
                time.sleep(SAMPLE_SECONDS)
        finally:
            if process.poll() is None:
                end([process.pid, *tree(process.pid)])
            process.wait()
            reader.join()
    busy = busy_seconds() - own_seconds() - busy - sum(own.values())
    watched.others = max(0.0, busy / (time.monotonic() - started))
    if process.returncode != 0:
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
        raise CommandFailed(f"{command[1]} ended with code {process.returncode}; see {log}: {last}")
    return watched


def _read(process: subprocess.Popen[str], watched: Watched, own: dict[int, float], log_file: Any) -> None:
    """Collect JSON lines, each with the processor seconds the tree had used when it was printed."""
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith("{"):
            log_file.write(line)
            continue
        used = {**own, **{member: used_seconds(member) for member in tree(process.pid)}}
        watched.lines.append({**json.loads(line), "processor_seconds": sum(used.values())})


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The command's name may hold spaces and brackets: fields start after the last bracket.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # ended meanwhile
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for member in found:  # grows while it is read: breadth first
        found += children.get(member, [])
    return found


def resident(pid: int) -> int:
    """Resident bytes of one process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """Resident bytes of one process, shared pages divided among their users."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def used_seconds(pid: int) -> float:
    """Processor seconds a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def own_seconds() -> float:
    """Processor seconds of this process alone."""
    return time.process_time()


def busy_seconds() -> float:
    """Processor seconds the whole machine has been busy, hypervisor included."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def wait_until_idle(patience: float, allowed: float = 0.15) -> float:
    """Wait until others keep fewer than `allowed` cores busy, at most `patience` s; return the last share."""
    deadline = time.monotonic() + patience
    while True:
        before, started = busy_seconds() - own_seconds(), time.monotonic()
        time.sleep(1.0)
        share = (busy_seconds() - own_seconds() - before) / (time.monotonic() - started)
        if share < allowed or time.monotonic() > deadline:
            return share


def end(members: list[int]) -> None:
    """Kill exactly these processes."""
    for pid in members:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
