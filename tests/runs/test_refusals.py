# SPDX-License-Identifier: Apache-2.0
"""A run never goes on with other settings, other data, another log or damaged files to other results."""

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.data.federation import Pool
from feddag.experiment.recipes import RECIPES
from feddag.experiment.settings import Experiment
from feddag.runs import result
from feddag.runs.checkpoint import saved_rounds
from feddag.runs.simulate import build, resume, run

SMALL = ("num_rounds=6", "num_clients=6", "fraction_train=0.5", "engine=inline", "evaluation.every=1")


def small(*overrides: str) -> Experiment:
    return RECIPES["digits"]().with_overrides([*SMALL, *overrides])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Ditto that was interrupted after the third round."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"

    def stop(event: dict) -> None:
        if event["event"] == "round" and event["round"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(Exception, match="stopped after round 3"):
        run(small("algorithm=ditto"), folder=folder, watch=stop)
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "copy")


def evidence(folder: Path) -> tuple:
    outcome = json.loads((folder / "result.json").read_text())
    outcome.pop("seconds")
    return outcome, {path.name: path.read_bytes() for path in (folder / "models").iterdir()}


def test_a_missing_log_is_refused_and_nothing_is_written(copy: Path) -> None:
    (copy / "events.jsonl").unlink()
    before = sorted(path.name for path in copy.rglob("*"))
    with pytest.raises(InvalidInput, match="is not the log that this run wrote"):
        resume(copy)
    assert sorted(path.name for path in copy.rglob("*")) == before


def test_other_settings_are_refused(copy: Path) -> None:
    settings = json.loads((copy / "experiment.json").read_text())
    settings["training"]["lr"] = 0.3
    (copy / "experiment.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidInput, match="has other settings than the run was started with: restore them"):
        resume(copy)


def test_another_engine_or_name_is_no_other_setting(copy: Path, stopped: Path, tmp_path: Path) -> None:
    settings = json.loads((copy / "experiment.json").read_text())
    settings["engine"] |= {"name": "process", "workers": 1}
    (copy / "experiment.json").write_text(json.dumps(settings | {"name": "other"}))
    resume(copy)
    resume(shutil.copytree(stopped, tmp_path / "same"))
    assert evidence(copy) == evidence(tmp_path / "same")


def test_other_data_are_refused(copy: Path) -> None:
    federation = build(small()).federation
    share = federation.clients["c000"]
    other = {**federation.clients, "c000": replace(share, train=share.train[1:])}
    with pytest.raises(InvalidInput, match="was made with other data: restore them"):
        resume(copy, data=replace(federation, clients=other))
    source = replace(federation.source, sha256="0" * 64)
    with pytest.raises(InvalidInput, match="was made with other data: restore them"):
        resume(copy, data=replace(federation, source=source, train=Pool(*vars(federation.train).values())))


def test_a_checkpoint_under_another_rounds_name_is_passed_over(copy: Path) -> None:
    folder, (older, newer) = copy / "checkpoints", saved_rounds(copy / "checkpoints")[-2:]
    for ending in ("safetensors", "json"):
        source = folder / f"round-{older:06d}.{ending}"
        shutil.copy(source, folder / f"round-{newer:06d}.{ending}")
    warnings: list[str] = []
    resume(copy, watch=lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None)
    assert any(f"the checkpoint of round {newer} is damaged and was passed over" in w for w in warnings)


def test_a_checkpoint_whose_memories_are_damaged_is_passed_over(
    copy: Path, stopped: Path, tmp_path: Path
) -> None:
    newest = sorted((copy / "memories").glob("*.safetensors"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    warnings: list[str] = []
    resume(copy, watch=lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None)
    assert len(warnings) == 1
    assert newest.name in warnings[0]
    resume(shutil.copytree(stopped, tmp_path / "sound"))
    assert evidence(copy) == evidence(tmp_path / "sound")


def test_a_damaged_checkpoint_of_the_chosen_round_costs_its_scores_alone(tmp_path: Path) -> None:
    folder, chosen = tmp_path / "run", []

    def damage(event: dict) -> None:
        if event["event"] == "evaluation" and event["round"] == 6:
            rounds = saved_rounds(folder / "checkpoints")
            chosen.extend(r for r in rounds if r < rounds[-2])
            for round_ in chosen:
                (folder / "checkpoints" / f"round-{round_:06d}.safetensors").write_bytes(b"")

    # So large a learning rate that the last rounds are not the best ones.
    warnings: list[str] = []

    def watch(event: dict) -> None:
        damage(event)
        warnings.extend([event["text"]] if event["event"] == "warning" else [])

    run(small("training.lr=0.9", "algorithm=fedavg"), folder=folder, watch=watch)
    outcome = json.loads((folder / "result.json").read_text())
    assert chosen, "an early round was chosen"
    assert outcome["chosen"] is None
    assert outcome["final"]["round"] == 6
    assert any("cannot be scored, it is damaged" in w for w in warnings)


def test_a_page_that_cannot_be_drawn_is_a_warning_and_the_result_is_there(
    tmp_path: Path, monkeypatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ValueError("no ink")

    monkeypatch.setattr(result, "write_clustering_page", broken)
    warnings: list[str] = []
    folder = run(
        small("algorithm=pacfl", "num_rounds=1"),
        folder=tmp_path / "run",
        watch=lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None,
    )
    assert warnings == ["the clustering page could not be written: no ink"]
    assert (folder / "result.json").is_file()


def test_training_that_diverges_ends_with_a_result_that_says_so(tmp_path: Path) -> None:
    folder = run(small("training.lr=1e30", "num_rounds=1", "engine.quorum=0"), folder=tmp_path / "run")
    outcome = json.loads((folder / "result.json").read_text())
    assert outcome["failures"] > 0
    assert outcome["final"]["asked"] == 6


def test_checkpoints_and_memories_are_readable_by_their_owner_alone(stopped: Path) -> None:
    files = [path for part in ("checkpoints", "memories") for path in (stopped / part).iterdir()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_samples_never_enter_a_checkpoint_or_the_log(stopped: Path) -> None:
    pool = np.ascontiguousarray(build(small()).federation.train.x)
    written = [p.read_bytes() for p in (*(stopped / "checkpoints").iterdir(), stopped / "events.jsonl")]
    assert not any(pool[i].tobytes() in data for i in range(0, len(pool), 50) for data in written)
