# SPDX-License-Identifier: Apache-2.0
import csv

import numpy as np
import pytest
from PIL import Image

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation, partition_dataset
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.datasets import own
from feddag.data.memory import dataset_from_clients, dataset_from_hugging_face
from feddag.data.own.checking import client_facts
from feddag.data.own.reading import read_own


def rows(path, header, lines):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


def federation(path, tmp_path, **more):
    data = DataConfig(name="own", path=path, cache=tmp_path / "cache", **more)
    return build_federation(data, PartitionConfig(validation=0.0), None, Seed(0))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "clients"
    made.mkdir()
    return made


def samples(number, seed=0, classes=2):
    rng = Seed(seed).numpy()
    return rng.normal(size=(number, 4)).astype(np.float32), np.arange(number) % classes


def test_npz_files_become_natural_clients(folder, tmp_path):
    for name in ("anna", "bert"):
        x, y = samples(10)
        np.savez(folder / f"{name}.npz", x=x, y=y)
    made = federation(folder, tmp_path)
    assert made.ids == ("anna", "bert")
    assert made.input_shape == (4,)
    assert len(made.examples("anna")) == 8
    assert len(made.examples("anna", "test")) == 2
    assert made.source.kind == "local"


def test_a_test_part_of_its_own_is_used_as_it_is(folder, tmp_path):
    x, y = samples(10)
    np.savez(folder / "anna.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    made = federation(folder, tmp_path)
    assert len(made.examples("anna")) == 10
    assert np.array_equal(made.examples("anna", "test").x, x[:3])


def test_images_in_class_folders(folder, tmp_path):
    for client in ("one", "two"):
        for c, shade in (("cat", 10), ("dog", 200)):
            (folder / client / c).mkdir(parents=True)
            for i in range(3):
                Image.fromarray(np.full((6, 5, 3), shade + i, np.uint8)).save(
                    folder / client / c / f"{i}.png"
                )
    made = federation(folder, tmp_path)
    assert made.input_shape == (3, 6, 5)
    assert made.class_names == ("cat", "dog")
    examples = made.examples("one")
    assert examples.x.dtype == np.uint8
    assert all((x.mean() > 100) == (y == 1) for x, y in zip(examples.x, examples.y, strict=True))


def test_csv_files_with_named_labels(folder, tmp_path):
    for client in ("shop1", "shop2"):
        rows(
            folder / f"{client}.csv",
            ["height", "sold", "width"],
            [[i, "yn"[i % 2], 2 * i] for i in range(10)],
        )
    made = federation(folder, tmp_path, label="sold")
    assert made.class_names == ("n", "y")
    assert made.input_shape == (2,)
    assert len(made.examples("shop1")) == 8


def test_one_table_with_a_client_column(tmp_path):
    table = tmp_path / "all.csv"
    rows(table, ["client", "a", "label"], [[f"p{i % 3}", i, i % 2] for i in range(30)])
    made = federation(table, tmp_path)
    assert made.ids == ("p0", "p1", "p2")
    assert {len(made.examples(c)) + len(made.examples(c, "test")) for c in made.ids} == {10}


def test_parquet_files(folder, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    for client in ("a", "b"):
        table = pyarrow.table({"u": np.arange(10.0), "v": np.arange(10), "label": ["x", "y"] * 5})
        parquet.write_table(table, folder / f"{client}.parquet")
    made = federation(folder, tmp_path)
    assert made.input_shape == (2,)
    assert made.class_names == ("x", "y")


def test_everything_that_is_wrong_is_said_at_once(folder):
    x, y = samples(10)
    np.savez(folder / "good.npz", x=x, y=y)
    np.savez(folder / "short.npz", x=x, y=y[:9])
    broken = x.copy()
    broken[0, 0] = np.nan
    np.savez(folder / "holes.npz", x=broken, y=y)
    np.savez(folder / "other.npz", x=x[:, :3], y=y)
    np.savez(folder / "half.npz", x=x)
    np.savez(folder / "fractions.npz", x=x, y=y + 0.5)
    np.savez(folder / "objects.npz", x=np.array([{}, 1], dtype=object), y=y[:2])
    np.savez(folder / "b&d.npz", x=x, y=y)
    (folder / "rubbish.npz").write_bytes(b"rubbish")
    (folder / "notes.txt").write_text("hello")
    (folder / "empty").mkdir()
    rows(folder / "words.csv", ["a", "label"], [["x", 1], ["y", 0]])
    rows(folder / "ragged.csv", ["a", "label"], [[1, 1], [2]])
    rows(folder / "unlabelled.csv", ["a", "b"], [[1, 1]])
    reading = read_own(folder)
    problems = "\n".join(reading.problems)
    for sentence in (
        "short: x has 10 samples but y has shape (9,)",
        "1 missing value: feature 0 1 (in holes); set data.missing to 'drop' or 'impute'",
        "other: samples of shape (3,), others have (4,)",
        "half.npz: no array 'y'; it has x",
        "fractions: y holds fractions such as 0.5; expected classes",
        "objects.npz: holds Python objects, which are never read",
        "rubbish.npz: not an .npz file",
        "notes.txt: expected a folder or an .npz, .csv or .parquet file per client",
        "empty/: no images in class folders",
        "words.csv: column 'a' (2 different texts in 2 rows, which looks like an id) cannot be a feature",
        "ragged.csv, line 3: 2 values expected, got 1",
        "unlabelled.csv: no label column 'label'; it has a, b",
    ):
        assert sentence in problems
    assert "good" not in problems
    assert "b&d" not in problems
    assert "client names are changed so that they can be file names: 'b&d' is 'b-d'" in reading.warnings


def test_loading_wrong_data_names_the_first_problem_and_how_many_more(folder, tmp_path):
    x, y = samples(10)
    np.savez(folder / "a.npz", x=x, y=y[:9])
    np.savez(folder / "b.npz", x=x, y=y[:8])
    with pytest.raises(
        InvalidInput, match=r"a: x has 10 samples .* \(and 1 more: `feddag data check` prints all\)"
    ):
        federation(folder, tmp_path)


def test_a_changed_file_is_read_again(folder, tmp_path):
    x, y = samples(10)
    np.savez(folder / "a.npz", x=x, y=y)
    before = federation(folder, tmp_path).source.sha256
    np.savez(folder / "a.npz", x=x + 1, y=y)
    after = federation(folder, tmp_path)
    assert after.source.sha256 != before
    assert after.train.x.mean() > 0.5


def test_a_file_behind_a_link_to_a_folder_is_part_of_the_hash(folder, tmp_path):
    real = tmp_path / "elsewhere"
    for c in ("cat", "dog"):
        (real / c).mkdir(parents=True)
        for i in range(2):
            Image.new("L", (4, 4), i).save(real / c / f"{i}.png")
    (folder / "anna").symlink_to(real)
    before = federation(folder, tmp_path)
    Image.new("L", (4, 4), 99).save(real / "cat" / "0.png")
    Image.new("L", (4, 4), 99).save(real / "cat" / "1.png")
    after = federation(folder, tmp_path)
    assert before.source.sha256 != after.source.sha256
    assert before.train.x.max() < 99
    assert after.train.x.max() == 99


def test_files_that_change_while_they_are_read_are_not_kept(folder, tmp_path, monkeypatch):
    x, y = samples(10)
    np.savez(folder / "a.npz", x=x, y=y)

    def read_and_change(path, settings):
        reading = read_own(path, settings)
        np.savez(folder / "a.npz", x=x + 1, y=y)
        return reading

    monkeypatch.setattr(own, "read_own", read_and_change)
    with pytest.raises(InvalidInput, match="its files changed while they were read; start again"):
        federation(folder, tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_suffixes_in_capital_letters_are_known(folder):
    x, y = samples(10)
    with (folder / "a.NPZ").open("wb") as file:
        np.savez(file, x=x, y=y)
    rows(
        folder / "b.CSV",
        ["p", "q", "r", "s", "label"],
        [[*map(float, v), c] for v, c in zip(x, y, strict=True)],
    )
    reading = read_own(folder)
    assert reading.problems == []
    assert np.array_equal(reading.clients[0].x, reading.clients[1].x)


def test_pixels_are_not_mixed_with_other_numbers(folder):
    pixels = np.arange(64, dtype=np.uint8).reshape(4, 1, 4, 4)
    y = np.array([0, 1, 0, 1])
    for name in "ab":
        np.savez(folder / f"{name}.npz", x=pixels, y=y)
    np.savez(folder / "c.npz", x=pixels / 255, y=y)
    np.savez(folder / "d.npz", x=pixels, y=y, x_test=pixels / 255, y_test=y)
    assert read_own(folder).problems == [
        "d: x holds uint8 but x_test float64; only uint8 are pixels",
        "c: x holds numbers that are not pixels, others have uint8 (pixels)",
    ]


def test_a_test_part_of_fractions_is_not_cut_to_whole_numbers(folder, tmp_path):
    x, y = np.arange(12).reshape(6, 2), np.arange(6) % 2
    np.savez(folder / "a.npz", x=x, y=y, x_test=x + 0.5, y_test=y)
    assert (federation(folder, tmp_path).examples("a", "test").x == x + 0.5).all()


def test_images_whose_channels_come_last_are_warned_about(folder):
    np.savez(folder / "a.npz", x=np.zeros((4, 8, 8, 3), np.uint8), y=np.arange(4) % 2)
    (warning,) = read_own(folder).warnings
    assert warning == (
        "samples of shape (8, 8, 3) look like images whose channels come last; "
        "expected channels × height × width"
    )


def test_images_of_different_sizes_are_named(folder):
    (folder / "c" / "cat").mkdir(parents=True)
    for i, size in enumerate((4, 5)):
        Image.fromarray(np.zeros((size, size), np.uint8)).save(folder / "c" / "cat" / f"{i}.png")
    assert read_own(folder).problems == ["c/: images of different sizes (4×4 and 5×5); all must be equal"]


@pytest.mark.parametrize("what", ["missing", "empty", "text"])
def test_a_path_that_is_no_data_is_one_sentence(tmp_path, what):
    path = tmp_path / "place"
    if what == "empty":
        path.mkdir()
    elif what == "text":
        path.write_text("hello")
    (problem,) = read_own(path).problems
    assert "expected" in problem or "is not" in problem


def test_the_check_tells_counts_shapes_classes_and_missing_values(folder):
    x, y = samples(10, classes=3)
    x[0, 0] = np.nan
    np.savez(folder / "a.npz", x=x, y=y)
    assert client_facts(read_own(folder)) == [("a", "10", "", "4", "float32", "3: 0, 1, 2", "1")]


def test_a_python_object_with_clients():
    class Mine:
        def clients(self):
            return {name: samples(10, seed) for seed, name in enumerate(("u1", "u2"))}

    made = partition_dataset(dataset_from_clients(Mine()), PartitionConfig(validation=0.0), None, Seed(0))
    assert made.ids == ("u1", "u2")
    again = dataset_from_clients(Mine().clients())
    assert again.source.sha256 == made.source.sha256


def test_whole_number_codes_stay_whole_numbers():
    codes = np.arange(40).reshape(10, 4)
    dataset = dataset_from_clients({"a": (codes, np.arange(10) % 2)})
    assert dataset.train.x.dtype == np.int64


class FakeTable:
    """What a Hugging Face Dataset offers: column names, and columns by name."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)

    def __getitem__(self, name):
        return self.columns[name]


def test_a_hugging_face_dataset_of_images_with_clients():
    images = [Image.fromarray(np.full((4, 4), 20 * i, np.uint8)) for i in range(12)]
    table = FakeTable(image=images, label=[i % 2 for i in range(12)], writer=[f"w{i % 3}" for i in range(12)])
    dataset = dataset_from_hugging_face(table, client="writer")
    assert dataset.train.x.shape[1:] == (1, 4, 4)
    assert dataset.owners.names == ("w0", "w1", "w2")


def test_a_hugging_face_dataset_without_clients_is_dealt_by_a_kind():
    table = FakeTable(a=list(range(20)), b=list(range(20)), label=[i % 2 for i in range(20)])
    dataset = dataset_from_hugging_face(table)
    assert dataset.owners is None
    assert len(partition_dataset(dataset, PartitionConfig(kind="iid"), 4, Seed(0)).clients) == 4
    with pytest.raises(InvalidInput, match="no column 'y'; it has a, b, label"):
        dataset_from_hugging_face(table, label="y")


def test_a_real_hugging_face_dataset():
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    table = datasets.Dataset.from_dict(
        {"x": [[1.0, 2.0]] * 10, "label": [0, 1] * 5, "client": ["a", "b"] * 5}
    )
    dataset = dataset_from_hugging_face(table, client="client")
    assert dataset.owners.names == ("a", "b")
    assert dataset.train.x.shape[1:] == (2,)


def test_a_real_hugging_face_dataset_of_images_keeps_the_names_of_its_classes():
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["wolf", "cat"])}
    )

    def table(labels):
        images = [Image.fromarray(np.full((8, 6, 3), i, np.uint8)) for i in range(len(labels))]
        return datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)

    dataset = dataset_from_hugging_face(table([0, 1] * 10))
    assert dataset.class_names == ("wolf", "cat")
    assert dataset.train.x.shape[1:] == (3, 8, 6)
    assert (dataset.train.y == dataset.train.x[:, 0, 0, 0] % 2).all()
    with pytest.raises(
        InvalidInput, match=r"labels -1 to 1, expected 0 to 1 \(-1 stands for samples without"
    ):
        dataset_from_hugging_face(table([0, 1, -1, 0]))
