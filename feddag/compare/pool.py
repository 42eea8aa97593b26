# SPDX-License-Identifier: Apache-2.0
"""Many runs at once, each in its own process with the inline engine, as cores and memory allow.

Several runs side by side keep the cores busier than one run with many workers, because no run waits for the
slowest client of another. Every run writes checkpoints, so no finished round is computed twice.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from feddag.core.errors import Interrupted
from feddag.core.host import available_memory, num_cores, peak_memory
from feddag.experiment.settings import EngineConfig, Experiment
from feddag.reporting.tables.comparison import Outcome

MIN_MEMORY = 1_000_000_000  # bytes that must be free to start another run, before any run was measured
PATIENCE = 60.0  # seconds that a stopped run has for its checkpoint


class Board(Protocol):
    """Shows what happens."""

    def progress(self, name: str, news: Mapping[str, Any]) -> None:
        """A round of a run is done: `round`, and `scores` if it was evaluated."""
        ...

    def finished(self, name: str, outcome: Outcome) -> None:
        """A run is complete."""
        ...

    def failed(self, name: str, reason: str) -> None:
        """A run ended without a result."""
        ...


@dataclass
class Running:
    """A run in its process."""

    process: subprocess.Popen
    errors: Path
    reader: threading.Thread
    peak: int = field(default=0)

    def stop(self) -> None:
        """Ask it to stop at a checkpoint: it stops when its input ends."""
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()

    def reason(self) -> str:
        """Why it failed: the last line it wrote."""
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with exit code {self.process.returncode}"


def run_side_by_side(
    experiments: Mapping[str, Experiment],
    folder: Path,
    jobs: int,
    board: Board,
    read: Callable[[str], Outcome],
) -> dict[str, str]:
    """Run or resume every experiment in folder/cells/<name>; returns the failed ones with the reason."""
    jobs = min(jobs or num_cores(), max(len(experiments), 1))
    waiting, running, failures = list(experiments), dict[str, Running](), dict[str, str]()
    need = MIN_MEMORY
    try:
        while waiting or running:
            # One run may always start, even if little memory is free.
            while waiting and len(running) < jobs and (not running or available_memory() > need):
                name = waiting.pop(0)
                running[name] = _start(name, experiments[name], folder, inline=jobs > 1, board=board)
            time.sleep(0.1)
            for name, run in list(running.items()):
                run.peak = max(run.peak, peak_memory(run.process.pid))
                if run.process.poll() is None:
                    continue
                del running[name]
                run.reader.join()
                need = max(need, int(1.2 * run.peak))
                if run.process.returncode == 0:
                    run.errors.unlink(missing_ok=True)
                    board.finished(name, read(name))
                else:
                    failures[name] = run.reason()
                    board.failed(name, failures[name])
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; go on with: feddag compare --folder {folder}") from None
    finally:
        _stop_all(running.values())
    return failures


def _start(name: str, experiment: Experiment, folder: Path, inline: bool, board: Board) -> Running:
    if inline:
        engine = EngineConfig(**{**experiment.engine.model_dump(), "name": "inline"})
        experiment = experiment.model_copy(update={"engine": engine})
    errors = folder / "cells" / f"{name}.errors.txt"
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            # -P: a file in the current folder, such as numpy.py, must not replace a library.
            [sys.executable, "-P", "-m", "feddag.compare.cell", str(folder / "cells" / name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            # One thread per run: results must not depend on how many runs share the machine.
            env={**os.environ, "OMP_NUM_THREADS": "1"} if inline else None,
            start_new_session=True,  # Ctrl-C reaches this process alone; a run stops when its input ends
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(experiment.settings()) + "\n")
        process.stdin.flush()
    reader = threading.Thread(target=_read, args=(name, process, board), daemon=True)
    reader.start()
    return Running(process, errors, reader)


def _read(name: str, process: subprocess.Popen, board: Board) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            board.progress(name, json.loads(line))


def _stop_all(running: Iterable[Running]) -> None:
    runs = list(running)
    for run in runs:
        run.stop()
    for run in runs:
        try:
            run.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            run.process.kill()
