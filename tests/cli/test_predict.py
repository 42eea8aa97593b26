# SPDX-License-Identifier: Apache-2.0
"""`feddag predict` on images, arrays and tables, as a user types it."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddag.core.errors import InvalidInput
from feddag.experiment.recipes import resolve
from feddag.runs.predict import predictions_csv, read_for
from feddag.runs.run import load_run
from feddag.runs.simulate import run
from tests.support.cli import feddag

FAST = ["num_rounds=2", "engine=inline", "training.local_epochs=2", "algorithm=fedavg"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of own images, bright and dark, and a run on it."""
    place = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for client in ("north", "south"):
        for name, level in (("bright", 200), ("dark", 40)):
            folder = place / "data" / client / name
            folder.mkdir(parents=True)
            for i in range(12):
                pixels = rng.integers(level - 30, level + 30, size=(8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    run(resolve(str(place / "data"), FAST), folder=place / "run")
    return place


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with a number, a text column and a missing value, and a run on them."""
    place = tmp_path_factory.mktemp("tables")
    (place / "data").mkdir()
    for client in ("a", "b"):
        rows = [f"{i % 7},{'red' if i % 2 else 'blue'},{'yes' if i % 2 else 'no'}" for i in range(40)]
        rows[3] = ",red,yes"
        (place / "data" / f"{client}.csv").write_text("\n".join(["size,colour,label", *rows]) + "\n")
    run(resolve(str(place / "data"), [*FAST, "data.missing=impute"]), folder=place / "run")
    return place


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_folder_of_images_becomes_a_table_and_known_classes_are_checked(pictures: Path) -> None:
    done = feddag("predict", pictures / "run", pictures / "data" / "north", "--client", "south")
    assert done.code == 0
    rows = rows_of(done.out)
    assert [row["sample"] for row in rows[:2]] == ["bright/0.png", "bright/1.png"]
    assert {row["class"] for row in rows} == {"bright", "dark"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert done.err.strip() == "100.0% of 24 samples right"


def test_one_image_every_class_and_a_file(pictures: Path, tmp_path: Path) -> None:
    image = pictures / "data" / "north" / "dark" / "3.png"
    colour = tmp_path / "colour.png"
    Image.open(image).convert("RGB").save(colour)  # the network takes grey images
    out = tmp_path / "table.csv"
    done = feddag("predict", pictures / "run", colour, "--client", "north", "--every-class", "--out", out)
    assert (done.code, done.out, done.err) == (0, "", "")
    (row,) = rows_of(out.read_text())
    assert row["class"] == "dark"
    assert float(row["p(dark)"]) == float(row["probability"])
    assert float(row["p(dark)"]) + float(row["p(bright)"]) == pytest.approx(1)


def test_a_client_that_was_not_there_is_served_by_the_model_that_fits(pictures: Path) -> None:
    new = pictures / "data" / "south"
    done = feddag("predict", pictures / "run", new, "--like", new)
    assert done.code == 0
    assert "that of north, south fits these 24 samples best" in done.err
    done = feddag("predict", pictures / "run", new, "--like", new / "dark" / "1.png")
    assert done.code == 2
    assert "expected samples with their classes" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--client", "east"], "client 'east' took no part in this run, which has north, south"),
        ([], "give either --client ID, or --like SAMPLES"),
    ],
)
def test_mistakes_are_told_in_a_sentence(pictures: Path, arguments: list[str], sentence: str) -> None:
    done = feddag("predict", pictures / "run", pictures / "data" / "north", *arguments)
    assert done.code == 2
    assert sentence in done.err


def test_images_of_another_size_and_things_that_are_no_samples_are_refused(
    pictures: Path, tmp_path: Path
) -> None:
    done = load_run(pictures / "run")
    Image.new("L", (9, 8)).save(tmp_path / "wide.png")
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("a\n1\n")
    np.savez(tmp_path / "flat.npz", x=np.zeros(3))
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    for name, sentence in (
        ("wide.png", r"wide.png: 8×9 pixels; this run was trained on 8×8: resize it first"),
        ("note.txt", "is not an image, a folder of images"),
        ("nothing.npz", "does not exist; expected an image"),
        ("empty", "no images in this folder"),
        ("table.csv", "this run was not trained on tables"),
        ("flat.npz", "expected one row per sample"),
        ("other.npz", "no array 'x'; it has z"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            read_for(done, tmp_path / name)


def test_tables_are_read_by_column_name_as_in_training(tables: Path, tmp_path: Path) -> None:
    done = load_run(tables / "run")
    assert done.models.problem.columns == (("size", ()), ("colour", ("blue", "red")))
    table = tmp_path / "new.csv"
    table.write_text("colour,extra,size\nred,9,3\nblue,9,\n")
    samples = read_for(done, table)
    mean = done.models.problem.scaling.mean[0]
    assert samples.x.tolist() == [[3, 0, 1], [pytest.approx(mean), 1, 0]]  # a missing number is the mean
    rows = rows_of(predictions_csv(done.model("a"), samples))
    assert [row["class"] for row in rows] == ["yes", "no"]
    for text, sentence in (
        ("colour\nred\n", "no column 'size', which the run was trained on; it has colour"),
        ("colour,size\ngreen,1\n", "column 'colour' holds 'green'; in training it held blue, red"),
        ("colour,size\nred,tall\n", "column 'size' holds 'tall'; expected numbers"),
    ):
        table.write_text(text)
        with pytest.raises(InvalidInput, match=sentence):
            read_for(done, table)
    with pytest.raises(InvalidInput, match="trained on samples of shape"):
        read_for(done, tmp_path)
