# SPDX-License-Identifier: Apache-2.0
"""Algorithms, datasets and partitions of users: by module:name and by entry points."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from feddag.algorithms import ALGORITHMS
from feddag.core import plugins
from feddag.core.errors import InvalidInput
from feddag.data.catalog import DATASETS
from feddag.data.dealing.partitions import PARTITIONS
from feddag.experiment.listing import table_of
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import build, run

MINE = "plugged_in:HalfStep"


def experiment(**changes) -> Experiment:
    base = {"data": "plugged_in:three_sites", "num_rounds": 1, "fraction_train": 1.0, "engine": "inline"}
    return Experiment.from_settings(base | changes)


def test_a_users_algorithm_and_dataset_run_like_ours(tmp_path: Path) -> None:
    settings = {"name": MINE, "step": 0.25}
    done = run(experiment(algorithm=settings, data="plugged_in:three_sites"), root=tmp_path)
    assert done.folder.relative_to(tmp_path).parts[:2] == ("plugged_in-HalfStep", "plugged_in-three_sites")
    assert done.result["source"]["dataset"] == "plugged_in:three_sites"
    assert [row["client"] for row in done.client_rows] == ["site0", "site1", "site2"]
    assert done.experiment.build_algorithm().step == 0.25
    with pytest.raises(InvalidInput, match=r"'stride' is unknown: 'plugged_in:HalfStep' has step"):
        experiment(algorithm={"name": MINE, "stride": 1})


def test_a_users_algorithm_runs_on_worker_processes(tmp_path: Path) -> None:
    inline, workers = (
        run(experiment(algorithm=MINE, engine=engine), folder=tmp_path / engine["name"])
        for engine in ({"name": "inline"}, {"name": "process", "workers": 2})
    )
    assert inline.result["state_digest"] == workers.result["state_digest"]


def test_a_users_partition_deals_the_rows() -> None:
    changes = {
        "data": "digits",
        "num_clients": 4,
        "partition": {"kind": "plugged_in:every_other", "validation": 0},
    }
    federation = build(experiment(**changes)).federation
    assert federation.clients["c001"].train.tolist()[:3] == [1, 5, 9]
    assert federation.notes["partition"].startswith("plugged_in:every_other")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algorithm": "plugged_in:Nothing"}, "algorithm 'plugged_in:Nothing' cannot be imported: module"),
        ({"algorithm": "no_such:A"}, "cannot be imported: No module named 'no_such' .looked in the current"),
        ({"algorithm": ":A"}, "expected module:name"),
        ({"algorithm": "plugged_in:"}, "expected module:name"),
        ({"algorithm": "plugged_in:NoAlgorithm"}, "not an algorithm: it has no tasks, start, round"),
        ({"algorithm": "plugged_in:fit"}, "not an algorithm: it is no class"),
        ({"algorithm": "fedavgg"}, "unknown: choose one of feddag, fedavg, .* or your own as module:Class"),
        ({"data": "plugged_in:broken"}, "dataset 'plugged_in:broken' failed: OSError: the disk is gone$"),
        ({"data": "plugged_in:MOVED"}, "cannot be imported"),
        ({"data": "nonsense"}, "is not one of cifar10, .* nor your own module:function"),
        ({"data": "digits", "partition": "plugged_in:twice"}, "gave a row to two clients"),
        ({"partition": "nonsense"}, "expected 'auto', 'iid', .* or your own as 'module:function'"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(changes: dict, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        build(experiment(**changes))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[0], [1]], "gave rows for 2 of 3 clients"),
        ([[0], [1], [99]], "expected rows from 0 to 9"),
        ([[0], [1], [0.5]], "expected row numbers, got float64"),
        (None, "failed: TypeError"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import plugged_in

    from feddag.data.dealing.partitions import DealingJob

    monkeypatch.setattr(plugged_in, "odd", lambda y, clients, rng: rows, raising=False)
    kind = PARTITIONS._made("plugged_in:odd", plugged_in.odd)
    with pytest.raises(InvalidInput, match=sentence):
        kind.split(DealingJob(np.zeros(10), 2, 3, None, None))  # type: ignore[arg-type]


def test_packages_offer_theirs_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "feddag.algorithms": EntryPoint("half", MINE, "feddag.algorithms"),
        "feddag.datasets": EntryPoint("sites", "plugged_in:three_sites", "feddag.datasets"),
        "feddag.partitions": EntryPoint("dealt", "plugged_in:every_other", "feddag.partitions"),
    }
    plugins.offers.cache_clear()
    monkeypatch.setattr(plugins, "entry_points", lambda group: [points[group]])
    try:
        assert list(ALGORITHMS)[-1] == "half"
        assert len(ALGORITHMS) == len(ALGORITHMS.ours) + 1
        assert ("sites", "Three sites with two classes each.") in table_of("datasets")
        assert "dealt" in PARTITIONS
        assert "plugged" not in DATASETS
        settings = {"partition": "dealt", "num_clients": 3, "algorithm": {"name": "half", "step": 1.0}}
        prepared = build(experiment(data="sites", **settings))
        assert len(prepared.federation.clients["c000"].train) == 22  # of 24 dealt rows 2 are for validation
        assert table_of("half") == [("step", "0.5", "part of the way")]
    finally:
        plugins.offers.cache_clear()
        for table in (ALGORITHMS, DATASETS, PARTITIONS):
            table._loaded.clear()
