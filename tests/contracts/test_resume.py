# SPDX-License-Identifier: Apache-2.0
"""A run that was killed goes on to the same bits as one that never stopped."""

import json
from pathlib import Path
from typing import Any

import pytest

from feddag.core import codec
from feddag.core.errors import Interrupted
from feddag.reporting.tables.log import read_events
from feddag.runs.checkpoint import load_checkpoint
from feddag.runs.simulate import build, resume, run
from tests.contracts.toys import every_algorithm, experiment


class Killed(BaseException):
    """Stands for a power cut: nobody handles it, nothing is saved because of it."""


def kill_in_round(number: int, how: type[BaseException]) -> Any:
    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "exchange" and event["round"] == number:
            raise how

    return watch


def evidence(folder: Path, name: str) -> dict[str, Any]:
    """All that must not depend on whether the run was interrupted."""
    prepared = build(experiment(name))
    _, state = load_checkpoint(folder / "checkpoints", 4, prepared.prepared.state_class)
    result = json.loads((folder / "result.json").read_text())
    del result["seconds"]
    rounds = {e["round"]: e["digest"] for e in read_events(folder / "events.jsonl") if e["event"] == "round"}
    return {
        "rounds": rounds,
        "state": codec.digest(state),
        "memory": {path.name: path.read_bytes() for path in (folder / "memories").glob("*.safetensors")},
        "result": result,
        "models": {path.name: path.read_bytes() for path in (folder / "models").iterdir()},
    }


@every_algorithm
def test_resumed_equals_uninterrupted(name: str, tmp_path: Path) -> None:
    whole = run(experiment(name), folder=tmp_path / "whole")
    cut = tmp_path / "cut"
    with pytest.raises(Killed):
        run(experiment(name), folder=cut, watch=kill_in_round(2, Killed))
    with pytest.raises(Interrupted):
        resume(cut, watch=kill_in_round(4, KeyboardInterrupt))
    resume(cut)
    expected = evidence(whole, name)
    assert sorted(expected["rounds"]) == [1, 2, 3, 4]
    assert evidence(cut, name) == expected
