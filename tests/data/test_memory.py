# SPDX-License-Identifier: Apache-2.0
"""Federations from data in memory; the snippets of the documentation are run as they are printed."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.memory import federation_from

ROOT = Path(__file__).parents[2]


def samples(number=20, seed=0, words=("no", "yes")):
    rng = Seed(seed).numpy()
    return rng.normal(size=(number, 3)), np.array(words)[np.arange(number) % len(words)]


def test_arrays_per_client_with_named_classes():
    made = federation_from({"anna": samples(), "bert": samples(seed=1)})
    assert made.ids == ("anna", "bert")
    assert made.class_names == ("no", "yes")
    assert len(made.examples("anna", "test")) == 4
    rows = np.concatenate([made.examples("anna", split).x for split in ("train", "validation", "test")])
    assert {tuple(row) for row in rows} == {tuple(row) for row in samples()[0].astype(np.float32)}


def test_the_same_samples_in_a_folder_give_the_same_federation(tmp_path):
    data = {"anna": samples(), "bert": samples(seed=1)}
    for name, (x, y) in data.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    config = DataConfig(name="own", path=tmp_path, cache=tmp_path.with_name("cache"))
    from_files = build_federation(config, PartitionConfig(), None, Seed(1))
    from_memory = federation_from(data)
    for client in data:
        for split in ("train", "validation", "test"):
            expected, got = from_files.examples(client, split), from_memory.examples(client, split)
            assert np.array_equal(expected.x, got.x)
            assert np.array_equal(expected.y, got.y)


def test_a_test_part_is_used_as_it_is():
    x, y = samples()
    made = federation_from({"anna": {"train": (x, y), "test": (x[:5], y[:5])}, "bert": {"train": (x, y)}})
    assert np.array_equal(made.examples("anna", "test").x, x[:5].astype(np.float32))
    assert len(made.examples("bert", "test")) == 4


def test_lists_numbers_and_missing_labels_are_taken():
    made = federation_from({7: ([[1, 2], [3, 4.5]] * 5, [0, 1] * 5)})
    assert made.ids == ("7",)
    with_gaps = {"a": ([[1.0], [2.0], [3.0]] * 4, ["u", None, "v"] * 4)}
    with pytest.raises(InvalidInput, match="a: 4 missing labels in y"):
        federation_from(with_gaps)
    assert len(federation_from(with_gaps, missing="drop").train) == 6


def test_later_changes_of_the_arrays_do_not_change_the_federation():
    x, y = samples()
    made = federation_from({"anna": (x, y)})
    before = np.array(made.train.x)
    x[:] = 0
    assert np.array_equal(made.train.x, before)


def test_an_object_with_clients_a_federation_and_another_partition():
    class Mine:
        def clients(self):
            return {"u1": samples(), "u2": samples(seed=1)}

    made = federation_from(Mine())
    assert made.ids == ("u1", "u2")
    assert federation_from(made) is made
    dealt = federation_from(Mine(), partition=PartitionConfig(kind="iid"), num_clients=5, seed=Seed(3))
    assert len(dealt.ids) == 5


def test_a_hugging_face_dataset_with_a_client_column():
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    table = datasets.Dataset.from_dict(
        {
            "x": [[i, 2.0] for i in range(20)],
            "label": ["u", "v"] * 10,
            "writer": [f"w{i % 4 // 2}" for i in range(20)],
        }
    )
    made = federation_from(table, client="writer")
    assert made.ids == ("w0", "w1")
    assert made.class_names == ("u", "v")
    dealt = federation_from(table.remove_columns("writer"), client=None, num_clients=4)
    assert len(dealt.ids) == 4
    with pytest.raises(InvalidInput, match=r"choose one of data\['train'\], data\['test'\]"):
        federation_from(datasets.DatasetDict({"train": table, "test": table}))
    with pytest.raises(InvalidInput, match=r"'x', 'writer' must hold one number per row"):
        federation_from(table, client=None)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "there are no clients"),
        (5, "data: expected a mapping client → .*, got int"),
        ({"a": 3}, r"client 'a': expected \(x, y\)"),
        ({"a": ([[1], [2, 3]], [0, 1])}, r"client 'a': expected \(x, y\)"),
        ({"a": {"train": samples(), "tset": samples()}}, "'tset' is neither 'train' nor 'test'"),
        ({"a": {"test": samples()}}, r"client 'a': expected \(x, y\)"),
        ({"a": (np.ones((2, 1)), [0, 0])}, "one class; at least two are needed"),
        (
            {"a": (np.ones((2, 1)), [0, 1]), "b": (np.ones((2, 2)), [0, 1])},
            r"samples of shape \(2,\), others",
        ),
        ({"a": (np.array([["x"], ["y"]]), [0, 1])}, "expected numbers"),
        ({"a": (np.float32(1), 0)}, "expected samples × features"),
    ],
)
def test_what_is_no_data_is_refused_in_one_sentence(data, sentence):
    with pytest.raises(InvalidInput, match=sentence) as caught:
        federation_from(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("document", ["own-data.md", "data.md"])
def test_the_python_snippets_of_the_documentation_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    assert snippets
    for snippet in snippets:
        for package in ("flwr_datasets", "datasets"):
            if f"from {package} " in snippet or f"from {package}." in snippet:
                pytest.importorskip(package, reason=f"pip install {package.replace('_', '-')}")
        exec(compile(snippet, document, "exec"), names)


def test_the_example_from_python_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "own_data" / "from_python.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("machine")
