# SPDX-License-Identifier: Apache-2.0
"""Real processes, killed with signal 9 at random moments: drivers, working workers, starting workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toys import Order, blob_site, obey

import feddag
from feddag.core.algorithm import broadcast
from feddag.core.engine import Exchange
from feddag.core.seeds import Seed
from feddag.engines.process import ProcessEngine
from feddag.runs.simulate import run
from tests.hard.attacks import evidence, small

pytestmark = pytest.mark.hard
LONG = 300.0  # seconds after which a test that hangs fails
DRIVERS = 12
ROOT = Path(feddag.__file__).parents[1]

# Runs or resumes, and kills itself at the n-th of all moments that it counts: events, and files forced to the
# disk.
DRIVER = """
import os, signal, sys
from pathlib import Path
from feddag.runs.simulate import Experiment, resume, run

settings, folder, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def moment(event=None):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def fsync(descriptor, force=os.fsync):
    moment()
    force(descriptor)

os.fsync = fsync
if (folder / "experiment.json").exists():
    resume(folder, watch=moment)
else:
    run(Experiment.from_file(settings), folder=folder, watch=moment)
"""


def test_drivers_are_killed_again_and_again_until_one_may_finish(tmp_path: Path) -> None:
    settings = small(num_rounds=8, engine={"name": "process", "workers": 1})
    expected = evidence(run(small(num_rounds=8), folder=tmp_path / "whole"))
    (tmp_path / "settings.json").write_text(json.dumps(settings.settings()))
    generator = Seed(4).numpy()
    # From its fourth moment on, a run has a folder that can be resumed.
    moments = [*generator.integers(8, 70, size=DRIVERS).tolist(), 10**9]
    codes = []
    for number in moments:
        command = [sys.executable, "-c", DRIVER, tmp_path / "settings.json", tmp_path / "run", str(number)]
        environment = dict(os.environ, PYTHONPATH=str(ROOT))
        codes.append(subprocess.run(command, check=False, timeout=LONG, env=environment).returncode)
        if codes[-1] == 0:
            break
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert codes[-1] == 0
    assert len(codes) > 3
    assert evidence(tmp_path / "run") == expected


def test_workers_are_killed_while_they_start_and_while_they_work() -> None:
    clients = [f"c{i:03d}" for i in range(4)]
    engine = ProcessEngine(blob_site(sizes=(8,) * 4), "mlp", workers=2)
    try:
        for round_ in range(8):
            for worker in engine.crew.workers:
                if not worker.ready or round_ % 2:
                    os.kill(worker.process.pid, signal.SIGKILL)
            order = Order(action="die" if round_ % 3 == 0 else "count", victim="c001")
            answers = engine.ask(obey, broadcast(order, clients), Exchange(round_, Seed(round_)))
            failed = {client for client, answer in answers.items() if answer.failure}
            assert failed <= ({"c001"} if order.action == "die" else set()) | lost_with_a_killed_worker(
                answers
            )
            assert engine.workers == 2
    finally:
        engine.close()


def lost_with_a_killed_worker(answers: dict) -> set[str]:
    """A kill that comes between the last look and the question costs one client its answer, by name."""
    return {c for c, a in answers.items() if a.failure == "its worker process died (killed by signal 9)"}
