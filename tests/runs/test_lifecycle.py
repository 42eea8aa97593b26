# SPDX-License-Identifier: Apache-2.0
"""Runs in which clients join, leave and change; and a new client for a finished run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from feddag.core.clusters import Clusters
from feddag.core.errors import InvalidInput
from feddag.reporting.tables.log import read_events
from feddag.runs.assignment import assigned
from feddag.runs.newcomer import place_newcomer
from feddag.runs.run import load_run
from feddag.runs.simulate import build, run
from tests.contracts.toys import SETTINGS, experiment


@dataclass
class ToyState:
    clusters: Clusters
    models: tuple[str, ...]
    peaks: tuple[float, ...] = (1.0, 2.0)


@pytest.mark.parametrize(
    ("changed", "truth", "members", "models"),
    [
        ("d", {"a": 0, "b": 0, "c": 1, "d": 0, "e": 1}, ["abd", "ce"], "xy"),  # to others of its group
        ("bd", {"a": 0, "b": 5, "c": 1, "d": 5, "e": 1}, ["a", "ce", "bd"], "xyx"),  # a new group
        (
            "abcde",
            {"a": 0, "b": 7, "c": 1, "d": 7, "e": 1},
            ["bd", "ce", "a"],
            "xyx",
        ),  # the largest one stays
        ("ce", {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0}, ["abe", "c"], "xy"),  # no cluster is left empty
    ],
)
def test_the_oracle_gives_every_planted_group_a_cluster(
    changed: str, truth: dict[str, int], members: list[str], models: str
) -> None:
    before = {"d": ["ab", "cde"], "bd": ["abd", "ce"], "abcde": ["abd", "ce"], "ce": ["ab", "ce"]}[changed]
    state = ToyState(Clusters(members=tuple(tuple(group) for group in before)), ("x", "y"))
    truth = {c: g for c, g in truth.items() if c in "".join(before)}
    after = assigned(state, tuple(changed), truth)
    assert ["".join(group) for group in after.clusters.members] == members
    assert "".join(after.models) == models
    assert after.peaks == tuple({"x": 1.0, "y": 2.0}[model] for model in models)


def changing(**changes: Any) -> Any:
    fields = {"partition": {}, "num_rounds": 6, "lifecycle": {"every": 2}}
    warms_up = {**SETTINGS["feddag"], "preset": "two_encoders"}  # newcomers train alone for two rounds first
    return experiment("feddag", warms_up, **{**fields, **changes})


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder / "events.jsonl") if event["event"] == kind]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody joins and changes in the same round, everybody is away in another one."""
    scenario = {
        "join": [{"at": 3, "clients": ["c000"]}],
        "drift": [
            {"at": 3, "clients": ["c000"], "kind": "feature"},
            {"at": 4, "clients": ["c001"], "kind": "feature"},
        ],
        "leave": [{"at": 2, "clients": [f"c{i:03d}" for i in range(1, 8)], "back": 3}],
    }
    return Path(run(changing(scenario=scenario), folder=tmp_path_factory.mktemp("runs") / "run"))


def test_a_client_that_joins_and_changes_in_one_round_joins_with_its_new_data(done: Path) -> None:
    assert [(e["round"], e["clients"]) for e in events(done, "newcomers")] == [(5, ["c000"])]
    assert all("c000" not in e["alarms"] for e in events(done, "check")), "it never signed other data"


def test_a_round_without_anybody_is_survived(done: Path) -> None:
    digests = {e["round"]: e["digest"] for e in events(done, "round")}
    assert digests[2] == digests[1]


def test_the_result_tells_the_story(done: Path) -> None:
    told = json.loads((done / "result.json").read_text())["lifecycle"]
    assert told["newcomers"] == 1
    assert told["drifts"] >= 1
    header, *rows = (done / "metrics.csv").read_text().splitlines()
    assert header.endswith("present,waiting,clusters,ari,alarms,moved")
    assert len(rows) == 3


def test_joins_alone_are_a_reason_to_look_at_the_clusters_again(tmp_path: Path) -> None:
    joins = {"join": [{"at": 3, "clients": ["c000", "c001"]}]}
    often = {**SETTINGS["feddag"], "follow": {"least_changed": 2, "changed": 0.1, "rest": 2}}
    asked = experiment("feddag", often, partition={}, num_rounds=6, lifecycle={"every": 2}, scenario=joins)
    folder = Path(run(asked, folder=tmp_path / "run"))
    assert not events(folder, "check"), "nobody's data can change, so nobody is watched"
    assert [e["round"] for e in events(folder, "recluster")] == [6], "newcomers train alone for two rounds"


@pytest.mark.parametrize(("wake", "alarms"), [(2.0, [2, 4]), (0.0, [2])])
def test_a_large_change_ends_a_rest(wake: float, alarms: list[int], tmp_path: Path) -> None:
    twice = [
        {"at": 2, "clients": ["c001"], "kind": "concept", "to": "reverse"},
        {"at": 4, "clients": ["c001"], "kind": "concept", "to": "shift"},
    ]
    watched = {"every": 2, "cooldown": 2, "wake": wake}
    folder = Path(run(changing(scenario={"drift": twice}, lifecycle=watched), folder=tmp_path / "run"))
    assert [e["round"] for e in events(folder, "check") if "c001" in e["alarms"]] == alarms


@pytest.fixture(scope="module")
def samples(done: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    federation = build(load_run(done).experiment).federation
    share = federation.clients["c002"]
    path = tmp_path_factory.mktemp("new") / "clinic.npz"
    labels = np.asarray(federation.train.y)[share.train]
    names = load_run(done).models.problem.class_names
    np.savez(
        path, x=np.asarray(federation.train.x)[share.train], y=np.array(names)[labels] if names else labels
    )
    return path


def test_a_new_client_gets_the_cluster_of_those_who_have_the_same_data(done: Path, samples: Path) -> None:
    before = sorted(path.name for path in done.rglob("*"))
    placed = place_newcomer(load_run(done), samples)
    last = events(done, "standing")[-1]["clusters"]
    assert placed.client == "clinic"
    assert placed.cluster == last["c002"]
    assert "c002" in placed.mates
    assert min(placed.distances, key=lambda z: placed.distances[z]) == placed.cluster
    assert sorted(path.name for path in done.rglob("*")) == before, "the run is not changed"
    with safe_open(placed.files[0], "numpy") as file:
        assert list(file.keys())
    assert json.loads(json.dumps(placed.as_dict()))["samples"] == placed.samples


def test_a_name_that_took_part_is_refused(done: Path, samples: Path) -> None:
    with pytest.raises(InvalidInput, match="'c002' took part in this run"):
        place_newcomer(load_run(done), samples, "c002")


def test_samples_without_classes_are_refused(done: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", x=np.zeros((5, 6), dtype=np.float32))
    with pytest.raises(InvalidInput, match="expected samples with their classes"):
        place_newcomer(load_run(done), tmp_path / "new.npz")
