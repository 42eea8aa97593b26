# SPDX-License-Identifier: Apache-2.0
"""A thousand processes killed with signal 9: drivers, working workers, starting workers. No bit may differ.

Most of them are forks (`tests.support.forks`); the last two tests start processes as a user does.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from toys import Order, blob_site, obey

import feddag
from feddag.algorithms import ALGORITHMS
from feddag.core import codec
from feddag.core.algorithm import broadcast
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import QuorumMissed
from feddag.core.seeds import Seed
from feddag.core.task import Memory
from feddag.engines.inline import InlineEngine
from feddag.engines.process import ProcessEngine
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.log import log_digest
from feddag.runs.simulate import resume, run
from tests.contracts.toys import Around, toy, toy_server
from tests.hard.attacks import evidence, small
from tests.support.forks import LONG, Living, Moments, code_of, fork, forked_workers

ROOT = Path(feddag.__file__).parents[1]
KILLED = -signal.SIGKILL
Counted = Callable[[str, int], None]
hard = pytest.mark.hard


# -- drivers -------------------------------------------------------------------------------------------------


def all_of(folder: Path) -> dict[str, Any]:
    return {**evidence(folder), "log": log_digest(folder / "events.jsonl")}


def go_on(settings: Experiment, folder: Path, watch: Callable[..., None] = lambda event: None) -> None:
    """Start a run, or go on with it; what was killed before it was a run is thrown away."""
    if (folder / "experiment.json").exists():
        resume(folder, watch=watch)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        run(settings, folder=folder, watch=watch)


def at_a_moment(settings: Experiment, folder: Path, generator: Any) -> int:
    """Let a driver kill itself at a random one of its moments: events, and operations on files."""
    moments = Moments(int(generator.integers(1, 250)))

    def work() -> None:
        moments.count_operations()
        go_on(settings, folder, moments)

    return code_of(fork(work))


def at_an_instant(settings: Experiment, folder: Path, generator: Any) -> int:
    """Kill a driver at an instant that it cannot know."""
    living, seconds = Living(), float(generator.uniform(0, 0.5))
    child = fork(lambda: go_on(settings, folder))
    living.begin()
    if not living.ended(seconds):
        os.kill(child, signal.SIGKILL)
    living.close()
    return code_of(child)


def kill_drivers(
    kills: int, kill: Callable[..., int], settings: Experiment, expected: Any, place: Path, seed: int
) -> None:
    """Kill so many drivers in one folder; whichever gets to the end has all bits right."""
    generator, folder = (Seed(seed) / "kills").numpy(), place / "run"
    while kills:
        code = kill(settings, folder, generator)
        assert code in (0, KILLED)
        kills -= code == KILLED
        if code == 0:
            assert all_of(folder) == expected
            shutil.rmtree(folder)
    assert code_of(fork(lambda: go_on(settings, folder))) == 0
    assert all_of(folder) == expected
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "kills"),
    [("ditto", 8), *(pytest.param(name, 28, marks=hard) for name in sorted(ALGORITHMS))],
)
def test_drivers_are_killed_again_and_again(name: str, kills: int, tmp_path: Path, counted: Counted) -> None:
    settings = small(name, num_rounds=4)
    expected = all_of(run(settings, folder=tmp_path / "whole").folder)
    for kill, share in ((at_a_moment, kills - kills // 4), (at_an_instant, kills // 4)):
        kill_drivers(share, kill, settings, expected, tmp_path, seed=kills)
    counted("kill -9 of drivers", kills)


@hard
def test_workers_end_with_their_driver_and_its_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    settings = small("ditto", num_rounds=4, engine={"name": "process", "workers": 2})
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr("feddag.engines.process.SHARED_MEMORY", str(shared))

    def kill(settings: Experiment, folder: Path, generator: Any) -> int:
        living, moments = Living(), Moments(int(generator.integers(1, 120)))

        def work() -> None:
            with forked_workers(monkeypatch, lambda number: 0, living.writing):
                go_on(settings, folder, moments)

        child = fork(work)
        living.begin()
        assert living.ended(LONG), "a worker has outlived its driver"
        living.close()
        return code_of(child)

    expected = all_of(run(small("ditto", num_rounds=4), folder=tmp_path / "whole").folder)
    with forked_workers(monkeypatch, lambda number: 0):
        kill_drivers(40, kill, settings, expected, tmp_path, seed=1)
    assert not [*shared.iterdir()]
    counted("kill -9 of drivers", 40)


# -- workers -------------------------------------------------------------------------------------------------


@dataclass
class Recording(Around):
    """Remembers who could not answer which question, and kills workers between two answers."""

    generator: Any
    lost: list[dict[str, str]] = field(default_factory=list)
    killed: int = 0

    def ask(self, task: Any, requests: Any, exchange: Exchange) -> Any:
        def on_answer(client: str) -> None:
            exchange.on_answer(client)
            for worker in self.inner.crew.workers:  # type: ignore[attr-defined]
                if worker.clients and client not in worker.clients and self.generator.random() < 0.05:
                    os.kill(worker.process.pid, signal.SIGKILL)
                    self.killed += 1

        asked = Exchange(exchange.round, exchange.seed, exchange.deadline, on_answer)
        answers = self.inner.ask(task, requests, asked)
        self.lost.append({client: answer.failure for client, answer in answers.items() if answer.failure})
        return answers


@dataclass
class Replaying(Around):
    """An engine whose clients answer nothing where they could not answer before."""

    lost: list[dict[str, str]]

    def ask(self, task: Any, requests: Any, exchange: Exchange) -> Any:
        lost = self.lost.pop(0)
        answers = self.inner.ask(task, {c: r for c, r in requests.items() if c not in lost}, exchange)
        return {**answers, **{client: Answer(failure=failure) for client, failure in lost.items()}}


def played(name: str, engine: Any, seed: int) -> list[str]:
    """Digests of states and memories of a short run; a run that too few clients answered ends with why."""
    simulation = toy(name)
    engine.memories.of.clear()
    state, digests = None, []
    for round_ in range(5):
        server = toy_server(simulation.site, engine, round=round_, seed=Seed(seed), num_rounds=4, quorum=0.0)
        try:
            method = simulation.algorithm
            state = method.round(state, server) if round_ else method.start(server)
        except QuorumMissed as error:
            return [*digests, str(error)]
        memories = [codec.digest(Memory.of(m)) for _, m in sorted(engine.memories.of.items()) if m]
        digests.append(" ".join([codec.digest(state), *memories]))
    return digests


@hard
@pytest.mark.parametrize("name", ["ditto", "fedavg", "feddag", "fedrc", "ifca", "scaffold"])
def test_workers_are_killed_at_any_message_and_cost_only_the_clients_they_worked_for(
    name: str, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    monkeypatch.setattr("feddag.engines.workers.START_ATTEMPTS", 10**6)  # here most workers die early
    generator, deaths, killed, seed = (Seed(7) / name).numpy(), b"", 0, 0

    def plan(number: int) -> int:
        """Every other worker dies while it starts (that takes 12 messages), the rest while they work."""
        return int(generator.integers(1, 13) if number % 2 else generator.integers(13, 60))

    while len(deaths) + killed < 55:
        seed += 1
        with forked_workers(monkeypatch, plan) as told:
            engine = Recording(ProcessEngine(toy(name).site, "mlp", workers=2), generator)
            try:
                found = played(name, engine, seed)
            finally:
                engine.close()
            deaths, killed = deaths + told(), killed + engine.killed
        assert {failure for lost in engine.lost for failure in lost.values()} <= {
            "its worker process died (killed by signal 9)"
        }
        replayed = Replaying(InlineEngine(toy(name).site), list(engine.lost))
        assert found == played(name, replayed, seed)
        replayed.close()
    assert len(found) > 1
    counted("kill -9 of starting workers", deaths.count(b"s"))
    counted("kill -9 of working workers", deaths.count(b"w") + killed)


# -- processes as users start them ---------------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
from feddag.runs.simulate import Experiment
from tests.support.forks import Moments
from tests.hard.test_kills import go_on

moments = Moments(int(sys.argv[3]))
moments.count_operations()
go_on(Experiment.from_file(Path(sys.argv[1])), Path(sys.argv[2]), moments)
"""


@hard
def test_drivers_as_users_start_them_are_killed_until_one_may_finish(
    tmp_path: Path, counted: Counted
) -> None:
    settings = small(num_rounds=4, engine={"name": "process", "workers": 1})
    expected = evidence(run(small(num_rounds=4), folder=tmp_path / "whole").folder)
    (tmp_path / "settings.json").write_text(json.dumps(settings.settings()))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tests/support")]))
    codes: list[int] = []
    for last in [*Seed(4).numpy().integers(1, 250, size=10).tolist(), 10**9]:
        command = [sys.executable, "-c", DRIVER, tmp_path / "settings.json", tmp_path / "run", str(last)]
        codes.append(subprocess.run(command, check=False, timeout=LONG, env=environment).returncode)
        if codes[-1] == 0:
            break
    assert codes[-1] == 0
    assert {*codes[:-1]} == {KILLED}
    assert len(codes) > 3
    assert evidence(tmp_path / "run") == expected
    counted("kill -9 of drivers", len(codes) - 1)


@hard
def test_workers_as_the_engine_starts_them_are_killed_while_they_import_and_while_they_work(
    counted: Counted,
) -> None:
    clients = [f"c{i:03d}" for i in range(4)]
    engine, kills = ProcessEngine(blob_site(sizes=(8,) * 4), "mlp", workers=2), 0
    try:
        for round_ in range(6):
            for worker in engine.crew.workers:
                if not worker.ready or round_ % 2:
                    os.kill(worker.process.pid, signal.SIGKILL)
                    kills += 1
            order = Order(action="die" if round_ % 3 == 0 else "count", victim="c001")
            answers = engine.ask(obey, broadcast(order, clients), Exchange(round_, Seed(round_)))
            failed = {client for client, answer in answers.items() if answer.failure}
            assert failed <= ({"c001"} if order.action == "die" else set()) | lost_with_a_killed_worker(
                answers
            )
            assert engine.workers == 2
    finally:
        engine.close()
    counted("kill -9 of workers of their own", kills)


def lost_with_a_killed_worker(answers: dict) -> set[str]:
    """A kill that comes between the last look and the question costs one client its answer, by name."""
    return {c for c, a in answers.items() if a.failure == "its worker process died (killed by signal 9)"}
