# SPDX-License-Identifier: Apache-2.0
"""The list of clients may change between rounds: they join, stay away, come back, and one never answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddag.core.capabilities import WarmsUp
from feddag.core.engine import Answer
from feddag.engines.inline import InlineEngine
from feddag.reporting.tables.log import read_events
from feddag.runs.driver import Driver
from feddag.runs.events import EventLog
from feddag.runs.presence import ReachedPresence
from feddag.runs.simulate import SimulationFacts
from tests.contracts.toys import Around, every_algorithm, toy


@dataclass(frozen=True)
class Scripted:
    """Who is there in which round, written down."""

    rounds: Mapping[int, tuple[str, ...]]

    def present(self, round_: int) -> tuple[str, ...]:
        return tuple(sorted(self.rounds.get(round_, self.rounds[max(self.rounds)])))

    def trains(self, client: str) -> bool:
        return True


@dataclass
class Deaf(Around):
    """Some clients answer nothing while they are on this list."""

    silent: set[str] = field(default_factory=set)

    def ask(self, task: Any, requests: Mapping[str, Any], exchange: Any) -> Mapping[str, Answer]:
        heard = {c: r for c, r in requests.items() if c not in self.silent or task.sees_test}
        answers = dict(super().ask(task, heard, exchange))
        return answers | {c: Answer(failure="no answer") for c in requests if c not in heard}


def drive(
    name: str, rounds: Mapping[int, tuple[str, ...]], folder: Path, silent: set[str] = frozenset()
) -> Driver:
    simulation = toy(name, num_rounds=4, fraction_train=1.0, evaluation={"every": 1})
    engine = Deaf(InlineEngine(simulation.site), set(silent))
    facts = SimulationFacts(simulation.federation, engine.memories)
    (folder / "checkpoints").mkdir()
    log = EventLog(folder / "events.jsonl")
    driver = Driver(
        simulation.prepared, engine, Scripted(rounds), folder / "checkpoints", log, lambda e: None, facts
    )
    driver.run_rounds()
    log.close()
    engine.close()
    return driver


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["event"] == kind]


A, B, C, D, E, F, G, H = (f"c{i:03d}" for i in range(8))
SCRIPT = {
    0: (A, B, C, D),
    1: (A, B, C, D),
    2: (A, C, D, E, F),  # B is away, E and F join
    3: (A, B, C, D, E, F, G),  # B is back, G joins
    4: (B, C, E, F, G),
}


@every_algorithm
def test_clients_join_leave_and_come_back(name: str, tmp_path: Path) -> None:
    driver = drive(name, SCRIPT, tmp_path)
    algorithm = driver.prepared.algorithm
    alone = algorithm.warmup() if isinstance(algorithm, WarmsUp) else 0
    joined = {2 + alone: [E, F], 3 + alone: [G]}
    in_time = {round_: clients for round_, clients in joined.items() if round_ <= 4}
    assert {e["round"]: e["clients"] for e in events(tmp_path, "newcomers")} == in_time
    assert driver.progress.known == tuple(sorted({A, B, C, D}.union(*in_time.values())))
    assert sorted(driver.progress.waiting) == sorted({E, F, G} - {*driver.progress.known})
    for event in events(tmp_path, "round"):
        assert set(event["cohort"]) <= set(SCRIPT[event["round"]])
    for event in events(tmp_path, "evaluation"):
        assert sorted(event["test_clients"]) == sorted(SCRIPT[event["round"]])
        assert event["unscored"] == []
        assert np.isfinite(event["test"]["loss"])
    assert not [f for e in events(tmp_path, "exchange") for f in e["failures"]]


@every_algorithm
def test_a_newcomer_that_never_answers_disturbs_nobody(name: str, tmp_path: Path) -> None:
    driver = drive(name, SCRIPT, tmp_path, silent={E})
    assert driver.progress.round == 4
    last = events(tmp_path, "evaluation")[-1]
    assert sorted(last["test_clients"]) == [B, C, E, F, G], "it is served all the same"


@every_algorithm
def test_a_round_in_which_nobody_is_there_changes_nothing(name: str, tmp_path: Path) -> None:
    drive(name, {0: (A, B, C, D), 1: (A, B, C, D), 2: (), 3: (A, B, C, D)}, tmp_path)
    digests = {event["round"]: event["digest"] for event in events(tmp_path, "round")}
    assert digests[2] == digests[1]
    assert len(digests) == 4


def test_without_a_script_the_engine_says_who_is_there() -> None:
    simulation = toy("fedavg")
    presence = ReachedPresence(InlineEngine(simulation.site))
    assert presence.present(3) == simulation.federation.ids
    assert presence.trains(A)


@pytest.mark.parametrize("name", ["ditto", "fedper", "feddag"])
def test_no_checkpoint_holds_what_a_client_remembers(name: str, tmp_path: Path) -> None:
    simulation = toy(name)
    engine = InlineEngine(simulation.site, tmp_path / "memories")
    facts = SimulationFacts(simulation.federation, engine.memories)
    (tmp_path / "checkpoints").mkdir()
    log = EventLog(tmp_path / "events.jsonl")
    folder = tmp_path / "checkpoints"
    driver = Driver(simulation.prepared, engine, simulation.presence, folder, log, lambda e: None, facts)
    driver.run_rounds()
    log.close()
    remembered = [
        (value.vector.numpy() if hasattr(value, "vector") else value).tobytes()
        for memory in engine.memories.of.values()
        for value in memory.values()
    ]
    assert remembered or name == "feddag"  # FedDAG's clients forget their warm model at the start
    saved = [path.read_bytes() for path in folder.iterdir()]
    assert not any(private in data for private in remembered for data in saved)
    engine.close()
