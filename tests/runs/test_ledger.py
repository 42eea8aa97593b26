# SPDX-License-Identifier: Apache-2.0
"""What a run spent, before and after a kill: never lowered, never doubled, and the same result."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from feddag.runs.simulate import resume, run
from tests.contracts.toys import experiment

ROOT = Path(__file__).parents[2]
LEVELS: dict[str, dict[str, Any]] = {
    "private": {"level": "private"},
    "strict": {"level": "strict", "budget": 1e4, "update": {"noise": 4.0}},
}
KILLED = """
import os, signal, sys
from feddag.runs.simulate import run
from tests.runs.test_ledger import setting
seen = 0
def watch(event):
    global seen
    seen += event["event"] == "exchange"
    if seen == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
run(setting(sys.argv[1]), folder=sys.argv[2], watch=watch)
"""


def setting(level: str) -> Any:
    data = {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 1600, "test": 80}}
    return experiment(
        "feddag",
        privacy=LEVELS[level],
        num_rounds=3,
        data=data,
        training={"local_epochs": 1, "batch_size": 64},
    )


def spent(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The ledger by client and release; a release that stands there twice is an error."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines() if line]
    found = {(line["client"], line["release"]): line for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture(scope="module", params=sorted(LEVELS))
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    run(setting(request.param), folder=folder)
    return request.param, folder


@pytest.mark.parametrize("exchange", [2, 8])
def test_a_kill_neither_lowers_nor_doubles_what_was_spent(
    undisturbed: tuple[str, Path], tmp_path: Path, exchange: int
) -> None:
    level, whole = undisturbed
    folder = tmp_path / "run"
    arguments = [sys.executable, "-c", KILLED, level, str(folder), str(exchange)]
    killed = subprocess.run(arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=False)
    assert killed.returncode == -signal.SIGKILL
    before = spent(folder)
    assert before
    resume(folder)
    after = spent(folder)
    assert before.items() <= after.items()
    assert after == spent(whole)
    results = [json.loads((path / "result.json").read_text()) for path in (folder, whole)]
    assert results[0]["privacy"] == results[1]["privacy"]
    assert results[0]["state_digest"] == results[1]["state_digest"]


def test_the_result_has_the_documented_form(undisturbed: tuple[str, Path]) -> None:
    level, folder = undisturbed
    told = json.loads((folder / "result.json").read_text())["privacy"]
    assert told["level"] == level
    assert {"unit", "delta", "budget", "releases", "clients", "clusters", "by_round", "not_covered"} <= set(
        told
    )
    assert {"assumes", "refused_sums", "largest", "median", "planned", "update_mode"} <= set(told)
    assert told["largest"] == max(told["clients"].values()) == told["by_round"][-1]["largest"]
    assert all(row.keys() == {"kind", "mechanism", "times", "clients", "epsilon"} for row in told["releases"])
    assert told["largest"] <= told["planned_worst"] + 1e-3
    assert told["withheld_classes"] == 0  # noisy counts say which classes are there


@pytest.mark.parametrize("name", ["fedavg", "ifca", "feddag"])
@pytest.mark.parametrize("level", ["guarded", "private", "strict"])
def test_nothing_leaves_that_was_not_planned(name: str, level: str, tmp_path: Path) -> None:
    if (name, level) == ("ifca", "strict"):
        return  # it is refused
    settings = LEVELS.get(level, {"level": level})
    data = {"name": "synthetic", "synthetic": {"groups": 2, "dimensions": 6, "train": 800, "test": 80}}
    few = {"local_epochs": 1, "batch_size": 64}
    folder = run(
        experiment(name, privacy=settings, num_rounds=2, data=data, training=few), folder=tmp_path / "run"
    )
    told = json.loads((folder / "result.json").read_text())["privacy"]
    assert {row["kind"] for row in told["releases"]} <= {row["kind"] for row in told["planned"]}
    if level == "guarded" and name == "feddag":
        assert told["withheld_classes"] > 0  # 25 samples of each class are too few for a vector


def test_without_privacy_there_is_no_ledger_and_no_account(tmp_path: Path) -> None:
    folder = run(experiment("fedavg", num_rounds=1), folder=tmp_path / "run")
    assert not (folder / "ledger.jsonl").exists()
    assert "privacy" not in json.loads((folder / "result.json").read_text())
