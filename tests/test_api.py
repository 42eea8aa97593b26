# SPDX-License-Identifier: Apache-2.0
"""feddag as a library: the names in `feddag`, data from memory, and the snippets of the documentation."""

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pytest

import feddag
from feddag.core.errors import InvalidInput
from feddag.data.memory import federation_from
from feddag.experiment.settings import Experiment

ROOT = Path(__file__).parents[1]
Arrays = tuple[np.ndarray, np.ndarray]


def client_arrays(seed: int, swapped: bool) -> Arrays:
    """Cats and dogs that differ in the first feature; on some clients the other way round."""
    rng = np.random.default_rng(seed)
    kind = np.tile([0, 1], 50)
    x = rng.normal(size=(100, 8))
    x[:, 0] += 6 * (kind != swapped)
    return x, np.where(kind, "dog", "cat")


def eight_clients() -> dict[str, Arrays]:
    return {f"c{i}": client_arrays(i, bool(i % 2)) for i in range(8)}


def quick(**settings) -> Experiment:
    base = {"num_rounds": 2, "fraction_train": 1.0, "engine": "inline", "training": {"local_epochs": 1}}
    return Experiment.from_settings({**base, **settings})


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_promised_name_is_there():
    assert all(getattr(feddag, name) is not None for name in feddag.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        feddag.nothing  # noqa: B018


def test_the_example_of_the_package_runs():
    assert doctest.testmod(feddag).failed == 0


def test_folders_may_be_texts():
    folder = feddag.run(quick(data="digits", num_clients=4), folder="x")
    assert Path(folder) == Path("x")
    assert feddag.load_run("x").finished
    assert Path(feddag.resume("x")) == Path("x")


# -- data from memory ---------------------------------------------------------------------------------------


class Office:
    def clients(self) -> dict[str, Arrays]:
        return eight_clients()


def hugging_face():
    datasets = pytest.importorskip("datasets")
    columns: dict[str, list] = {"a": [], "b": [], "label": [], "client": []}
    for name, (x, y) in eight_clients().items():
        columns["a"] += x[:, 0].tolist()
        columns["b"] += x[:, 1].tolist()
        columns["label"] += y.tolist()
        columns["client"] += [name] * len(y)
    return datasets.Dataset.from_dict(columns)


FORMS = {
    "arrays per client": eight_clients,
    "train and test per client": lambda: {
        name: {"train": (x, y), "test": (x[:10], y[:10])} for name, (x, y) in eight_clients().items()
    },
    "an object with clients()": Office,
    "a Hugging Face dataset": hugging_face,
    "a federation": lambda: federation_from(eight_clients()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_takes_data_from_memory_in_every_form(form):
    folder = feddag.run(quick(), data=FORMS[form](), folder="x")
    rows = feddag.load_run(folder).client_rows
    assert [row["client"] for row in rows] == [f"c{i}" for i in range(8)]
    assert json.loads((folder / "models" / "clients.json").read_text())["class_names"] == ["cat", "dog"]


def test_the_run_folder_does_not_claim_another_dataset():
    folder = feddag.run(quick(data="digits"), data=eight_clients())
    assert Path(folder).parts[:3] == ("runs", "fedavg", "own")
    assert feddag.load_run(folder).experiment.data.name == "own"
    assert feddag.load_run(folder).result["source"]["dataset"] == "own"


def test_the_settings_of_partition_and_test_share_hold_for_data_from_memory():
    experiment = quick(data={"test_share": 0.5}, partition={"newcomers": 0.25})
    rows = feddag.run(experiment, data=eight_clients(), folder="x").client_rows
    assert {row["test_samples"] for row in rows} == {"50"}
    assert sum("newcomer" in row["note"] for row in rows) == 2


def test_a_path_and_data_from_memory_contradict_each_other():
    experiment = quick(data={"name": "own", "path": "clinics"})
    with pytest.raises(InvalidInput, match=r"data\.path = 'clinics' and data from memory: leave out one"):
        feddag.run(experiment, data=eight_clients(), folder="x")
    assert not Path("x").exists()


def test_data_that_nobody_understands_is_a_sentence():
    with pytest.raises(InvalidInput, match="data: expected a mapping client → "):
        feddag.run(quick(), data=[1, 2, 3])


def test_a_run_with_data_from_memory_needs_the_same_data_to_go_on():
    folder = feddag.run(quick(), data=eight_clients(), folder="x")
    before = (folder / "result.json").read_text()
    with pytest.raises(InvalidInput, match="was made with data from memory: give the same data= again"):
        feddag.resume("x")
    others = {**eight_clients(), "c0": client_arrays(99, swapped=True)}
    with pytest.raises(InvalidInput, match="was made with other data"):
        feddag.resume("x", data=others)
    feddag.resume("x", data=eight_clients())
    assert json.loads(before)["state_digest"] == feddag.load_run("x").result["state_digest"]


# -- clusters -----------------------------------------------------------------------------------------------


def test_clusters_of_arrays_need_nothing_but_the_arrays():
    summary = feddag.cluster(eight_clients())
    assert summary["num_clusters"] == 2
    assert summary["labels"] == {f"c{i}": i % 2 for i in range(8)}
    assert Path(summary["page"]).is_file()
    assert re.fullmatch(r"clustering/\d{8}-\d{6}-run/index\.html", summary["page"])


def test_a_second_clustering_gets_a_folder_of_its_own():
    experiment = quick(algorithm="feddag")
    pages = {feddag.cluster(experiment, data=eight_clients())["page"] for _ in range(2)}
    assert len(pages) == 2


def test_clusters_of_a_run_with_data_from_memory_need_the_data():
    feddag.run(quick(algorithm="feddag"), data=eight_clients(), folder="x")
    with pytest.raises(InvalidInput, match="give the same data= again"):
        feddag.cluster("x")
    assert feddag.cluster("x", data=eight_clients())["num_clusters"] == 2


def test_data_that_is_given_twice_is_refused():
    with pytest.raises(InvalidInput, match="data was given twice"):
        feddag.cluster(eight_clients(), data=eight_clients())


# -- documentation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "docs/own-data.md"])
def test_the_python_of_the_documentation_runs(name):
    if name == "docs/own-data.md":
        pytest.importorskip("datasets")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict = {"__name__": "documentation"}
    for block in blocks:
        exec(compile(block, name, "exec"), names)  # one after another, as a reader would type them
