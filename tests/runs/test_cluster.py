# SPDX-License-Identifier: Apache-2.0
"""Which clients are alike: before training, and from the stored values of every method that clusters."""

import json
from pathlib import Path

import numpy as np
import pytest

from feddag.algorithms import ALGORITHMS
from feddag.core.capabilities import FindsClusters
from feddag.core.errors import InvalidInput
from feddag.experiment.settings import Experiment
from feddag.runs.checkpoint import latest_checkpoint
from feddag.runs.run import load_run
from feddag.runs.simulate import build, cluster, run
from tests.contracts.toys import every_algorithm, experiment, play, reference, toy

CLUSTERING = ("feddag", "pacfl", "cfl", "cfl_gp", "fedgwc", "ifca", "fedrc", "fedsoft", "feddrift")
AT_START = ("feddag", "pacfl")


@every_algorithm
def test_every_method_that_clusters_declares_it(name: str) -> None:
    assert isinstance(ALGORITHMS[name](), FindsClusters) == (name in CLUSTERING)
    if name in CLUSTERING:
        assert ALGORITHMS[name].clusters_at_start == (name in AT_START)


@pytest.mark.parametrize("name", CLUSTERING)
def test_a_clustering_fits_what_is_served_and_its_views_fit_its_clients(name: str) -> None:
    simulation, trace = toy(name), reference(name)
    for state in trace.states:
        found = simulation.algorithm.clustering(state)
        n = len(found.clients)
        assert all(view.matrix_NN.shape == (n, n) for view in found.views.values())
        assert all(np.isfinite(view.matrix_NN).all() for view in found.views.values())
        assert found.how.endswith(".")
        assert set(found.clusters.labels()) <= set(simulation.federation.ids)
        if found.tree is not None:
            assert len(found.tree.linkage_matrix) == len(found.tree.clients) - 1


@pytest.mark.parametrize("name", ["feddag", "pacfl", "cfl", "fedgwc", "cfl_gp"])
def test_clients_of_one_cluster_are_served_the_same_model(name: str) -> None:
    simulation, trace = toy(name), reference(name)
    state = trace.states[-1]
    labels = simulation.algorithm.clustering(state).clusters.labels()
    served = {c: simulation.algorithm.deploy(state, c).models[0].digest() for c in labels}
    assert len(labels) == 8, "newcomers are in it"
    models = {z: {served[c] for c in labels if labels[c] == z} for z in labels.values()}
    assert all(len(digests) == 1 for digests in models.values())


@pytest.mark.parametrize("name", CLUSTERING)
def test_a_finished_run_has_its_clusters_as_a_page_and_as_values(name: str, tmp_path: Path) -> None:
    folder = run(experiment(name), folder=tmp_path / "run")
    written = json.loads((folder / "clustering" / "clustering.json").read_text())
    state = latest_checkpoint(folder / "checkpoints", build(experiment(name)).prepared.state_class)[0][1]
    labels = ALGORITHMS[name]().clustering(state).clusters.labels()
    assert written["labels"] == labels
    assert written["planted_groups"] == 2
    again = cluster(folder, tmp_path / "page")
    assert Path(again["page"]).read_text().startswith("<!doctype html>")
    assert {k: v for k, v in again.items() if k != "page"} == written
    rows = {row["client"]: row for row in load_run(folder).client_rows}
    told = {client: int(row["cluster"]) for client, row in rows.items() if row["cluster"]}
    assert {client: told[client] for client in labels} == labels
    assert set(told) - set(labels) <= set(build(experiment(name)).federation.newcomers)


@pytest.mark.parametrize("name", AT_START)
def test_clusters_can_be_asked_for_before_any_training(name: str, tmp_path: Path) -> None:
    summary = cluster(experiment(name), tmp_path / "page")
    assert summary["num_clusters"] == 2
    assert summary["ari"] == 1.0
    assert sorted(path.name for path in (tmp_path / "page").glob("*.html")) == ["index.html"]
    tasks = [json.loads(line).get("task") for line in (tmp_path / "page" / "events.jsonl").open()]
    assert "train" not in tasks
    assert "train_dual" not in tasks


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fedavg", "algorithm 'fedavg' has no clusters to show"),
        ("ifca", "the clusters of 'ifca' form during training: run it, then use"),
    ],
)
def test_a_method_without_clusters_at_the_start_says_so(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        cluster(experiment(name), tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_a_run_of_a_method_without_clusters_says_so(tmp_path: Path) -> None:
    folder = run(experiment("fedavg"), folder=tmp_path / "run")
    with pytest.raises(InvalidInput, match="algorithm 'fedavg' has no clusters to show"):
        cluster(folder)
    assert not (folder / "clustering").exists()


def test_the_page_of_a_run_shows_the_clusters_in_use_after_newcomers_joined() -> None:
    simulation = toy("feddag")
    before, after = play(simulation, rounds=1).states[-2:]
    found = [simulation.algorithm.clustering(state) for state in (before, after)]
    assert [len(c.clusters.labels()) for c in found] == [6, 8]
    assert len(found[1].views["Proximity"].matrix_NN) == 8
    old, new = found[0].tree, found[1].tree
    assert old.clients == new.clients
    assert np.array_equal(old.linkage_matrix, new.linkage_matrix), "the tree is the one that was cut"


def test_two_pages_of_one_experiment_do_not_collide(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages = {cluster(experiment("pacfl"))["page"] for _ in range(2)}
    assert len(pages) == 2


def test_a_folder_with_something_in_it_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(InvalidInput, match="exists and is not empty"):
        cluster(experiment("pacfl"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_run_that_has_not_begun_has_no_clusters_yet(tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text(json.dumps(Experiment().settings()))
    with pytest.raises(InvalidInput, match="has no checkpoint yet"):
        cluster(tmp_path)
