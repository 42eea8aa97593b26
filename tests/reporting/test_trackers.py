# SPDX-License-Identifier: Apache-2.0
"""Trackers see the numbers of a run: real local stores of TensorBoard and MLflow, a stand-in for wandb."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from feddag.core.errors import Interrupted, InvalidInput
from feddag.experiment.recipes import RECIPES
from feddag.reporting.trackers import Tracking
from feddag.runs.simulate import resume, run

SMALL = ("num_clients=4", "num_rounds=3", "engine=inline", "training.local_epochs=1", "evaluation.every=1")


def small(*changes: str):
    return RECIPES["digits"]().with_overrides([*SMALL, *changes])


def stop_in_round(number: int) -> Any:
    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "exchange" and event["round"] == number:
            raise KeyboardInterrupt

    return watch


def test_tensorboard_gets_every_round(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = run(small("track.tensorboard=true"), folder=tmp_path / "run")
    log = EventAccumulator(str(done / "tensorboard")).Reload()
    points = log.Scalars("test/accuracy")
    assert [point.step for point in points] == [1, 2, 3]
    expected = [float(row["accuracy"]) for row in done.metric_rows]
    assert [point.value for point in points] == pytest.approx(expected, rel=1e-6)
    assert log.Scalars("final/before/accuracy")[0].value == pytest.approx(expected[-1], rel=1e-6)
    sent = sum(point.value for point in log.Scalars("bytes_up/train"))
    assert sent == pytest.approx(done.result["bytes_up"], rel=1e-6)


def test_mlflow_has_one_run_per_folder_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the one store that needs no database
    mlflow = pytest.importorskip("mlflow")
    store = (tmp_path / "store").as_uri()
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(small(f"track.mlflow={store}", "name=mine"), folder=folder, watch=stop_in_round(2))
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("feddag").experiment_id
    (begun,) = client.search_runs([experiment])
    assert begun.info.status == "KILLED"
    done = resume(folder)
    (found,) = client.search_runs([experiment])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    assert found.data.params["training.lr"] == "0.1"
    history = {m.step: m.value for m in client.get_metric_history(found.info.run_id, "test/accuracy")}
    assert history == {int(r["round"]): float(r["accuracy"]) for r in done.metric_rows}
    assert found.data.metrics["final/before/accuracy"] == history[3]


def test_weights_and_biases_is_told_settings_numbers_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Any]] = []

    class Summary(dict):
        pass

    summary = Summary()
    made = SimpleNamespace(
        log=lambda numbers: told.append(("log", numbers)),
        summary=summary,
        finish=lambda exit_code: told.append(("finish", exit_code)),
    )
    stand_in = SimpleNamespace(init=lambda **options: (told.append(("init", options)), made)[1])
    stand_in.__spec__ = SimpleNamespace(name="wandb")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stand_in)  # type: ignore[arg-type]
    done = run(small("track.wandb=mine"), folder=tmp_path / "run")
    assert told[0][0] == "init"
    assert told[0][1]["project"] == "mine"
    assert told[0][1]["config"]["seed"] == 1
    assert [n["round"] for kind, n in told if kind == "log" and "test/accuracy" in n] == [1, 2, 3]
    assert told[-1] == ("finish", 0)
    assert summary["final/before/accuracy"] == done.result["final"]["before"]["accuracy"]


def test_a_tracker_that_is_not_installed_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feddag.experiment.track.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"track.wandb needs wandb \(pip install 'feddag\[wandb\]'\)"):
        run(small("track.wandb=mine"), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_fails_is_a_warning_and_not_asked_again() -> None:
    seen: list[dict[str, Any]] = []
    calls: list[int] = []

    class Broken:
        def begin(self, settings):
            calls.append(1)
            raise ConnectionError("no route\nto host")

        def log(self, numbers, step):
            calls.append(2)

        def end(self, result):
            calls.append(3)

    tracking = Tracking(seen.append, lambda: [Broken()])
    tracking({"event": "started", "experiment": {}})
    tracking({"event": "round", "round": 1, "seconds": 1.0, "cohort": []})
    tracking.close()
    assert calls == [1]
    assert seen[1]["text"] == "Broken failed and is told nothing more: no route"


def test_trackers_change_no_digest() -> None:
    assert small().digest == small("track.tensorboard=true", "track.mlflow=x", "track.wandb=y").digest
