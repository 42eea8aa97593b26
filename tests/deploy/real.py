# SPDX-License-Identifier: Apache-2.0
"""Deployments of real processes on loopback, for tests: free ports, few clients, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feddag.deploy.init import deployed, make_deployment
from feddag.deploy.services import free_port

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 800, "test": 80}},
    "num_clients": 4,
    "num_rounds": 3,
    "fraction_train": 1.0,
    "model": "mlp",
    "algorithm": {"name": "feddag", "clustering": {"num_clusters": 2}, "signature": {"vectors": 1}},
    "training": {"local_epochs": 1, "batch_size": 16, "lr": 0.1},
    "evaluation": {"every": 10, "after_training": False},
}
LIMIT = 900.0  # seconds; far more than anything takes, also on a busy machine


def make(folder: Path, insecure: bool = False, **changes: Any) -> Path:
    """A deployment on free ports."""
    make_deployment(
        deployed(SETTINGS | changes), folder, server=f"127.0.0.1:{free_port()}", insecure=insecure
    )
    return folder


def feddag(*arguments: str, cwd: Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen:
    """The command in a group of its own, so that it can be ended with everything it started."""
    log = (cwd / f"{arguments[1]}-{time.monotonic_ns()}.log").open("wb")
    command = [*prefix, sys.executable, "-m", "feddag", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def finish(process: subprocess.Popen) -> int:
    """The exit code; at the limit the whole group is killed."""
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        end(process)


def end(process: subprocess.Popen) -> None:
    """Kill what is left of a group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(condition: Callable[[], Any], process: subprocess.Popen | None = None) -> Any:
    """Wait for something; AssertionError at the limit, or if the process ends before."""
    started = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() - started < LIMIT, "it did not happen"
        assert process is None or process.poll() is None, "the process ended before it happened"
        time.sleep(0.2)
    return found


def words(folder: Path) -> str:
    """Everything that was said, for a test that fails."""
    logs = [*folder.parent.glob("*.log"), *folder.rglob("logs/*.log")]
    return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


def run_folder(deployment: Path) -> Path:
    """The folder of the deployment's run."""
    return Path(json.loads((deployment / "server" / "state.json").read_text())["folder"])


def result(deployment: Path) -> dict[str, Any]:
    """What the run gave."""
    return json.loads((run_folder(deployment) / "result.json").read_text())


def checkpoint(deployment: Path, round_: int) -> bool:
    """Whether a round is on the server's disk."""
    try:
        return (run_folder(deployment) / "checkpoints" / f"round-{round_:06d}.json").exists()
    except (OSError, ValueError, KeyError):
        return False


def inline_digest(deployment: Path, folder: Path) -> str:
    """The digest that the same settings give on one machine."""
    from feddag.experiment.settings import Experiment
    from feddag.runs.simulate import run

    experiment = Experiment.from_file(deployment / "server" / "experiment.json", ["engine.name=inline"])
    return json.loads((run(experiment, folder=folder) / "result.json").read_text())["state_digest"]


def processes_of(folder: Path) -> list[str]:
    """Command lines of live processes that have to do with a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                home = str(folder).encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            # The test itself names the folder nowhere in its environment.
            if int(entry.name) != os.getpid() and (str(folder) in line or home):
                found.append(line.strip())
    return [line for line in found if line]
