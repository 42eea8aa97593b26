# SPDX-License-Identifier: Apache-2.0
"""What a finished run leaves, per client: rows, models, and what happens if nobody can be scored."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from feddag.compare.grid import ComparisonGrid
from feddag.compare.run import compare
from feddag.core.errors import InvalidInput, QuorumMissed
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.experiment.recipes import RECIPES
from feddag.experiment.settings import Experiment
from feddag.reporting.figures.curves import draw_curves
from feddag.reporting.tables.clients import COLUMNS
from feddag.reporting.tables.comparison import read_outcome
from feddag.reporting.terminal.progress import Watcher
from feddag.reporting.terminal.show import show_run
from feddag.runs.run import load_run
from feddag.runs.simulate import run
from tests.reporting.toys import recorded, recording_console

SMALL = ("num_clients=8", "num_rounds=1", "engine=inline", "training.local_epochs=1", "evaluation.every=1")
UNSCORABLE = (
    "num_clients=6",
    "training.local_epochs=1",
    "model=unscorable:make",
)  # trains, but is never scored


def small(*overrides: str) -> Experiment:
    return RECIPES["digits"]().with_overrides([*SMALL, *overrides])


@pytest.fixture(scope="module")
def clustered(tmp_path_factory) -> Path:
    experiment = small("algorithm=feddag", "partition.newcomers=0.25")
    return run(experiment, folder=tmp_path_factory.mktemp("result") / "feddag")


def test_every_client_has_a_row_with_cluster_model_and_scores(clustered):
    rows = load_run(clustered).client_rows
    assert [row["client"] for row in rows] == [f"c{i:03d}" for i in range(8)]
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        assert row["cluster"].isdigit()
        assert (clustered / "models" / row["model"]).is_file()
        assert int(row["test_samples"]) > 0
        for column in ("accuracy", "balanced_accuracy", "accuracy_after", "balanced_accuracy_after"):
            assert 0 <= float(row[column]) <= 1
    old = [float(row["accuracy"]) for row in rows if "newcomer" not in row["note"]]
    assert load_run(clustered).result["final"]["before"]["accuracy"] == pytest.approx(np.mean(old))


def test_newcomers_have_rows_models_and_a_note(clustered):
    run_ = load_run(clustered)
    newcomers = {row["client"] for row in run_.client_rows if "newcomer" in row["note"]}
    (event,) = [e for e in run_.events if e["event"] == "newcomers"]
    assert newcomers == set(event["clients"])
    assert len(newcomers) == 2
    described = json.loads((clustered / "models" / "clients.json").read_text())["clients"]
    assert newcomers < set(described)


def test_a_newcomer_that_fits_badly_is_called_weak(clustered, monkeypatch, tmp_path):
    experiment = small("algorithm=feddag", "partition.newcomers=0.25")
    algorithm = type(experiment.build_algorithm())
    original = algorithm.onboard

    def onboard(self, state, newcomers, server):
        state = original(self, state, newcomers, server)
        server.note(weak=[newcomers[0]])
        return state

    monkeypatch.setattr(algorithm, "onboard", onboard)
    rows = load_run(run(experiment, folder=tmp_path / "f")).client_rows
    assert sorted(row["note"] for row in rows if row["note"]) == ["newcomer", "newcomer; weak"]


def test_newcomers_that_cannot_join_do_not_cost_the_result(monkeypatch, tmp_path):
    experiment = small("algorithm=feddag", "partition.newcomers=0.25")

    def onboard(self, state, newcomers, server):
        raise QuorumMissed("sign", 1, 0, 1, 2, [])

    monkeypatch.setattr(type(experiment.build_algorithm()), "onboard", onboard)
    warnings = []
    watch = lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None  # noqa: E731
    run_ = load_run(run(experiment, folder=tmp_path / "f", watch=watch))
    assert run_.result["newcomers"] is None
    assert len(run_.client_rows) == 6
    assert any("newcomers could not join and are not scored" in text for text in warnings)


def test_rows_of_an_unfinished_run_are_refused_in_a_sentence(tmp_path, clustered):
    (tmp_path / "experiment.json").write_text((clustered / "experiment.json").read_text())
    for what in ("client_rows", "result"):
        with pytest.raises(InvalidInput, match="is not finished: go on with feddag resume"):
            getattr(load_run(tmp_path), what)


# -- saved models -------------------------------------------------------------------------------------------


def test_saved_models_say_what_goes_in_and_what_comes_out(clustered):
    described = json.loads((clustered / "models" / "clients.json").read_text())
    experiment = load_run(clustered).experiment
    federation = build_federation(
        experiment.data, experiment.partition, experiment.num_clients, Seed(experiment.seed)
    )
    assert described["model"] == "mlp"
    assert tuple(described["input_shape"]) == federation.problem.input_shape == (1, 8, 8)
    assert described["class_names"] == list(federation.class_names)
    assert described["num_classes"] == 10
    assert described["integer_codes"] is False
    assert described["scaling"]["unit"] == federation.problem.scaling.unit > 1
    assert len(described["scaling"]["mean"]) == len(described["scaling"]["std"]) == 1
    for entry in described["clients"].values():
        assert entry["uses"] == entry["files"][0]
        tensors = load_file(clustered / "models" / entry["uses"])
        assert all(tensor.dtype == np.float32 for tensor in tensors.values())
        assert entry["network"] == "single"


def test_where_a_method_offers_several_models_the_chosen_file_is_named(tmp_path):
    folder = run(small("algorithm=ifca", "algorithm.num_clusters=2"), folder=tmp_path / "ifca")
    described = json.loads((folder / "models" / "clients.json").read_text())["clients"]
    (final,) = [e for e in load_run(folder).events if e["event"] == "final_evaluation"]
    assert len(described) == len(final["uses"]) == 8
    for client, entry in described.items():
        assert len(entry["files"]) == 2
        assert entry["uses"] == entry["files"][final["uses"][client]]
    files = {row["client"]: row["model"] for row in load_run(folder).client_rows}
    assert files == {client: entry["uses"] for client, entry in described.items()}


def test_a_mixture_uses_all_files_and_names_none(tmp_path):
    folder = run(small("algorithm=fedrc"), folder=tmp_path / "f")
    described = json.loads((folder / "models" / "clients.json").read_text())["clients"]
    mixtures = [entry for entry in described.values() if len(entry["files"]) > 1]
    assert mixtures
    for entry in mixtures:
        assert entry["uses"] is None
        assert len(entry["weights"]) == len(entry["files"])


# -- nobody can be scored -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unscored(tmp_path_factory) -> tuple[Path, str]:
    """A run whose model no client can score; and what it printed."""
    folder, console = tmp_path_factory.mktemp("result") / "lr", recording_console(width=200)
    experiment = small(*UNSCORABLE)
    with Watcher(console, 1) as watch:
        run(experiment, folder=folder, watch=watch)
    return folder, " ".join(recorded(console).split())


def test_a_run_in_which_every_evaluation_failed_ends_and_says_so(unscored):
    folder, text = unscored
    result = load_run(folder).result
    assert result["final"]["asked"] == 6
    assert result["final"]["before"]["clients"] == 0
    assert result["final"]["before"]["accuracy"] is None
    assert len(result["unscored"]) == 6
    assert result["evaluation_failures"] >= 6
    assert "final: 0 of 6 clients scored, 6 failed" in text
    assert f"{result['evaluation_failures']} of them in evaluation" in text


def test_its_tables_have_empty_cells(unscored):
    folder, _ = unscored
    assert {row["note"] for row in load_run(folder).client_rows} == {"not scored"}
    assert {row["accuracy"] for row in load_run(folder).client_rows} == {""}
    assert [row["round"] for row in load_run(folder).metric_rows] == ["1"]


def test_it_can_be_shown_and_compared(unscored, tmp_path):
    folder, _ = unscored
    console = recording_console(width=200)
    show_run(folder, console)
    assert "0 of 6 clients scored" in recorded(console)
    outcome = read_outcome(folder, "fedavg", "", 1)
    assert (outcome.scores, outcome.low) == ({}, {})
    draw_curves([outcome], ["fedavg"], [""], tmp_path / "curves.png", "accuracy")
    assert (tmp_path / "curves.png").is_file()


def test_a_comparison_of_such_runs_is_a_table_of_dashes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))
    grid = ComparisonGrid(base=small(*UNSCORABLE).settings(), methods=("fedavg",), seeds=(1,))
    (line,) = compare(grid, tmp_path / "c", jobs=1)
    assert line.mean == {"accuracy": None, "balanced_accuracy": None, "proportional_accuracy": None}
    assert "| fedavg | – |" in (tmp_path / "c" / "comparison.md").read_text()
