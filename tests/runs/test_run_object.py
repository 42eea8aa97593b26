# SPDX-License-Identifier: Apache-2.0
"""A run as an object: a path, data frames, clusters, plots, and a few lines of HTML."""

import builtins
import os
from pathlib import Path

import numpy as np
import pytest

import feddag
from feddag.core.errors import InvalidInput
from feddag.reporting.pages.summary import run_summary


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> feddag.Run:
    rng = np.random.default_rng(1)
    data = {}
    for i in range(6):  # two concepts: the second three clients use the labels the other way round
        y = rng.integers(0, 2, size=60)
        data[f"site <{i}>"] = (rng.normal(size=(60, 5)) + 3 * y[:, None], np.where(y == (i < 3), "a", "b"))
    settings = {"num_rounds": 2, "fraction_train": 1.0, "algorithm": "feddag", "engine": "inline"}
    experiment = feddag.Experiment.from_settings({**settings, "evaluation": {"every": 1}})
    return feddag.run(experiment, data=data, folder=tmp_path_factory.mktemp("object") / "run")


def test_it_stands_for_the_path_of_its_folder(done: feddag.Run) -> None:
    assert os.fspath(done) == str(done) == str(done.folder)
    assert (done / "result.json").is_file()
    assert Path(done) == done.folder
    assert feddag.load_run(done).result == done.result
    with pytest.raises(
        InvalidInput, match="was made with data from memory"
    ):  # taken for a folder, not for data
        feddag.cluster(done)


def test_tables_are_data_frames_with_numbers(done: feddag.Run) -> None:
    assert done.metrics["round"].tolist() == [1, 2]
    assert done.metrics["accuracy"].between(0, 1).all()
    assert len(done.clients) == 6
    assert done.clients["accuracy"].mean() == pytest.approx(done.result["final"]["before"]["accuracy"])
    assert done.clients["note"].tolist() == [row["note"] for row in done.client_rows]
    training = done.exchanges[done.exchanges["task"] != "evaluate"]
    assert training["bytes_up"].sum() == done.result["bytes_up"]
    assert training["failures"].sum() == done.result["failures"] == 0


def test_clusters_name_everybody_once(done: feddag.Run) -> None:
    assert sorted(client for members in done.clusters.values() for client in members) == sorted(
        row["client"] for row in done.client_rows
    )
    assert len(done.clusters) == done.result["clusters"]


def test_without_pandas_there_is_a_sentence_and_there_are_rows(
    done: feddag.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without_pandas(name, *rest):
        if name == "pandas":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(InvalidInput, match=r"needs pandas \(pip install 'feddag\[frames\]'\)"):
        _ = done.exchanges
    assert done.exchange_rows[0]["round"] == 0


@pytest.mark.parametrize("plot", ["plot_accuracy", "plot_clients", "plot_cost"])
def test_plots_are_figures_with_something_in_them(done: feddag.Run, plot: str, tmp_path: Path) -> None:
    figure = getattr(done, plot)()
    figure.savefig(tmp_path / "plot.png")
    (axes,) = figure.axes
    assert axes.lines or axes.patches


def test_it_shows_itself_as_html_and_escapes_names(done: feddag.Run) -> None:
    html = done._repr_html_()
    assert "feddag" in html
    assert "as served" in html
    assert all(f"<td>{z}</td>" in html for z in done.clusters)
    hostile = [{"client": "<script>", "cluster": "0", "accuracy": "0.5"}]
    settings = {"algorithm": {"name": "<b>"}, "data": {"name": "own"}, "num_rounds": 3}
    html = run_summary("<i>", settings, None, hostile, [{"round": "1", "accuracy": "0.25"}])
    assert "<script>" not in html
    assert "<b>&lt;b&gt;</b>" in html
    assert "&lt;i&gt;" in html
    assert "not finished; go on with feddag.resume; after round 1: 25.00%" in html


def test_an_unfinished_run_shows_how_far_it_is(done: feddag.Run, tmp_path: Path) -> None:
    for name in ("experiment.json", "events.jsonl"):
        (tmp_path / name).write_bytes((done / name).read_bytes())
    unfinished = feddag.load_run(tmp_path)
    assert "not finished" in unfinished._repr_html_()
    assert len(unfinished.metrics) == 2
    with pytest.raises(InvalidInput, match="is not finished"):
        _ = unfinished.clusters
