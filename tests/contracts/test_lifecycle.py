# SPDX-License-Identifier: Apache-2.0
"""Every method under one scenario: join 2, leave 3, drift 4, back 5; with every detector and response."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from feddag.core.errors import Interrupted
from feddag.reporting.tables.log import log_digest, read_events
from feddag.runs.driver import Driver
from feddag.runs.simulate import resume, run
from tests.contracts.toys import every_algorithm, experiment

SCENARIO = {
    "join": [{"at": 2, "clients": ["c000"]}],
    "leave": [{"at": 3, "clients": ["c001"], "back": 5}],
    "drift": [
        {"at": 4, "clients": ["c002", "c003"], "kind": "feature"},
        {"at": 4, "clients": ["c005"], "kind": "concept", "to": "reverse", "keep": 1.0},
    ],
}
LIFECYCLE = {"every": 2, "response": "reonboard"}


def changing(name: str, **changes: Any) -> Any:
    fields = {"scenario": SCENARIO, "lifecycle": LIFECYCLE, "num_rounds": 6, "partition": {}}
    return experiment(name, **{**fields, **changes})


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["event"] == kind]


@every_algorithm
def test_a_run_with_all_changes_is_the_same_after_a_stop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(changing(name), folder=tmp_path / "whole")
    assert {e["change"] for e in events(whole, "drift")} == {"concept", "feature"}
    alarms = {client for e in events(whole, "check") for client in e["alarms"]}
    assert alarms <= {"c002", "c003", "c005"}, "nobody else's data changed"
    assert "c005" in alarms
    stopped = stopped_at(name, (4,), tmp_path / "stopped", monkeypatch)
    assert log_digest(stopped / "events.jsonl") == log_digest(whole / "events.jsonl")


@pytest.mark.hard
@every_algorithm
def test_a_run_is_the_same_after_a_stop_at_every_round(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Any
) -> None:
    whole = run(changing(name), folder=tmp_path / "whole")
    stopped = stopped_at(name, range(7), tmp_path / "stopped", monkeypatch)
    assert log_digest(stopped / "events.jsonl") == log_digest(whole / "events.jsonl")
    counted("stops of runs in which clients join, leave and change", 7)


def stopped_at(name: str, rounds: Iterable[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was stopped after these rounds, each time resumed by a new driver."""
    original = Driver.run_round
    wanted = set(rounds)

    def stops(self: Driver, round_: int) -> None:
        original(self, round_)
        if round_ in wanted:
            raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(Driver, "run_round", stops)
        for i, round_ in enumerate(sorted(wanted)):
            with pytest.raises(Interrupted, match=f"after round {round_}"):
                resume(folder) if i else run(changing(name), folder=folder)
    return resume(folder)


@pytest.mark.parametrize("name", ["feddag", "pacfl"])
def test_worker_processes_give_the_same_bits(name: str, tmp_path: Path) -> None:
    folders = [
        run(changing(name, engine={"name": engine, "workers": 2}), folder=tmp_path / engine)
        for engine in ("inline", "process")
    ]
    digests = [[e["digest"] for e in events(folder, "round")] for folder in folders]
    assert digests[0] == digests[1]
    assert events(folders[0], "check") == events(folders[1], "check")


@every_algorithm
@pytest.mark.parametrize("lifecycle", [{"response": "method"}, {"detector": "oracle", "response": "none"}])
def test_other_responses_and_the_oracle_detector(
    name: str, lifecycle: dict[str, Any], tmp_path: Path
) -> None:
    folder = run(changing(name, lifecycle={"every": 2, **lifecycle}), folder=tmp_path / "run")
    alarms = [client for e in events(folder, "check") for client in e["alarms"]]
    if "detector" in lifecycle:
        assert alarms == ["c002", "c003", "c005"]
        assert not events(folder, "moved") or name not in ("feddag", "pacfl", "fedavg")


@pytest.mark.parametrize("name", ["feddag", "pacfl"])
def test_the_oracle_puts_clients_where_their_group_is(name: str, tmp_path: Path) -> None:
    lifecycle = {"every": 2, "detector": "oracle", "assignment": "oracle"}
    folder = run(changing(name, lifecycle=lifecycle), folder=tmp_path / "run")
    last = events(folder, "standing")[-1]
    clusters, planted = last["clusters"], last["planted"]
    for client in ("c002", "c003"):
        mates = [c for c in planted if planted[c] == planted[client] and c not in ("c002", "c003", "c005")]
        if mates and client in clusters:
            most = max({clusters[m] for m in mates}, key=[clusters[m] for m in mates].count)
            assert clusters[client] == most or sum(z == clusters[client] for z in clusters.values()) == 1


@pytest.mark.parametrize("lifecycle", [{"detector": "none"}, {"detector": "auto"}])
def test_without_a_scenario_nothing_is_watched_and_no_bit_changes(
    lifecycle: dict[str, Any], tmp_path: Path
) -> None:
    one = run(experiment("feddag"), folder=tmp_path / "one")
    other = run(experiment("feddag", lifecycle=lifecycle), folder=tmp_path / "other")
    assert log_digest(one / "events.jsonl") == log_digest(other / "events.jsonl")
    assert not events(one, "check")
    assert not events(one, "standing")
