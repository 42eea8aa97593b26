# SPDX-License-Identifier: Apache-2.0
"""Tables of your own: texts, missing cells, ids, names; nothing odd is trained on in silence."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.own.clients import OwnSettings
from feddag.data.own.reading import read_own


def write(path, header, lines):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def federation(path, tmp_path, **more):
    data = DataConfig(name="own", path=path, cache=tmp_path / "cache", **more)
    return build_federation(data, PartitionConfig(validation=0.0), None, Seed(0))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "clients"
    made.mkdir()
    return made


def read(path, **more):
    return read_own(path, OwnSettings(**more))


# -- texts ---------------------------------------------------------------------------------------------


def test_a_text_column_with_few_values_becomes_one_feature_per_value_for_all_clients(folder, tmp_path):
    write(folder / "a.csv", ["size", "ward", "label"], [[i, "north", i % 2] for i in range(10)])
    write(folder / "b.csv", ["size", "ward", "label"], [[i, "southeast"[:5], i % 2] for i in range(10)])
    made = federation(folder, tmp_path)
    assert made.input_shape == (3,)
    assert (made.examples("a").x[:, 1:] == [1, 0]).all()
    assert (made.examples("b").x[:, 1:] == [0, 1]).all()
    assert made.notes["text columns"] == "one feature per value: ward (north, south)"


def test_text_columns_that_cannot_be_encoded_are_named_all_at_once(folder):
    lines = [[f"name {i}", f"street {i % 25}", i / 7, i % 2] for i in range(60)]
    write(folder / "a.csv", ["who", "street", "x", "label"], lines)
    (problem,) = read(folder).problems
    assert problem.startswith(
        "a.csv: columns 'who' (60 different texts in 60 rows, which looks like an id), "
        "'street' (25 different texts in 60 rows) cannot be a feature"
    )


def test_a_number_with_a_slip_of_the_pen_is_not_taken_for_a_text(folder):
    write(folder / "a.csv", ["age", "label"], [[i % 5, i % 2] for i in range(40)] + [["4 years", 0]])
    (problem,) = read(folder).problems
    assert "'age' (1 of 41 cells are not numbers, such as '4 years')" in problem


def test_columns_in_another_order_are_matched_by_their_names(folder, tmp_path):
    write(folder / "a.csv", ["u", "v", "label"], [[i / 3, 100 + i / 3, i % 2] for i in range(10)])
    write(folder / "b.csv", ["label", "v", "u"], [[i % 2, 100 + i / 3, i / 3] for i in range(10)])
    made = federation(folder, tmp_path)
    for client in made.ids:
        x = made.examples(client).x
        assert (x[:, 1] > 50).all()
        assert (x[:, 0] < 50).all()


def test_a_table_with_other_columns_is_named_with_the_difference(folder):
    for name in ("a", "b"):
        write(folder / f"{name}.csv", ["u", "v", "label"], [[i / 3, i / 5, i % 2] for i in range(10)])
    write(folder / "c.csv", ["u", "w", "label"], [[i / 3, i / 5, i % 2] for i in range(10)])
    assert read(folder).problems == [
        "c.csv: no column 'v', which others have; column 'w', which others do not have"
    ]


def test_equal_column_names_are_refused_by_name(folder):
    write(folder / "a.csv", ["u", "v", "u", "label"], [[1, 2, 3, 0], [4, 5, 6, 1]])
    assert read(folder).problems == ["a.csv: more than one column is named 'u'"]


def test_an_empty_last_column_of_a_spreadsheet_and_empty_lines_are_left_out(folder):
    (folder / "a.csv").write_text("u,label,\n1.5,0,\n\n2.5,1,\n")
    reading = read(folder)
    assert reading.problems == []
    assert reading.clients[0].x.tolist() == [[1.5], [2.5]]


def test_a_table_with_semicolons_is_told_what_to_change(folder):
    (folder / "a.csv").write_text("u;label\n1;0\n2;1\n")
    (problem,) = read(folder).problems
    assert problem.endswith("it has u;label; columns must be separated by commas")


# -- which columns -------------------------------------------------------------------------------------


def test_chosen_features_are_used_in_the_chosen_order(folder, tmp_path):
    lines = [[f"name {i}", i / 3, 100 + i / 3, i % 2] for i in range(10)]
    write(folder / "a.csv", ["who", "u", "v", "label"], lines)
    made = federation(folder, tmp_path, features=("v", "u"))
    assert made.input_shape == (2,)
    assert (made.examples("a").x[:, 0] > 50).all()


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (("u", "w"), "a.csv: data.features names 'w', but it has u"),
        (("label",), "data.features: the label column cannot be a feature"),
    ],
)
def test_features_that_cannot_be_chosen_are_refused(folder, features, sentence):
    write(folder / "a.csv", ["u", "label"], [[i / 3, i % 2] for i in range(10)])
    assert read(folder, features=features).problems == [sentence]


def test_arrays_have_no_columns_to_choose(folder):
    np.savez(folder / "a.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    assert "data.features: only tables have columns to choose" in read(folder, features=("u",)).problems[0]


@pytest.mark.parametrize("name", ["id", "patient_id", "ID", "index", "Unnamed: 0", ""])
def test_a_column_named_like_an_id_is_warned_about(folder, name):
    write(folder / "a.csv", [name, "label"], [[i / 2, i % 2] for i in range(8)])
    reading = read(folder)
    assert reading.problems == []
    assert reading.warnings[0].startswith(f"column '{name}' looks like an id (its name)")


def test_a_column_of_whole_numbers_that_all_differ_is_warned_about(folder):
    write(folder / "a.csv", ["u", "v", "label"], [[7000 + i, i / 9, i % 2] for i in range(30)])
    assert read(folder).warnings == [
        "column 'u' looks like an id (its values are whole numbers that all differ); "
        "if it is one, leave it out with data.features"
    ]


# -- missing cells -------------------------------------------------------------------------------------

HOLES = [[0.5, "NA", 0], ["", 2, 1], ["nan", "N/A", 0], *([i, i / 2, i % 2] for i in range(7))]


def test_missing_cells_are_refused_in_one_sentence_that_counts_them_by_column(folder):
    write(folder / "a.csv", ["age", "bmi", "label"], HOLES)
    write(folder / "b.csv", ["age", "bmi", "label"], [*HOLES[3:], ["null", 1, 0]])
    assert read(folder).problems == [
        "5 missing values: age 3, bmi 2 (in a, b); "
        "set data.missing to 'drop' or 'impute', or choose columns with data.features"
    ]


def test_rows_with_missing_cells_are_dropped_and_counted_in_the_notes(folder, tmp_path):
    write(folder / "a.csv", ["age", "bmi", "label"], [*HOLES, [1, 2, ""]])
    made = federation(folder, tmp_path, missing="drop")
    assert len(made.examples("a")) + len(made.examples("a", "test")) == 7
    assert made.notes["missing values"] == "4 rows dropped (4 missing values: age 2, bmi 2 (in a))"


def test_missing_cells_are_filled_with_the_mean_of_training_samples_alone(folder, tmp_path):
    write(folder / "a.csv", ["age", "label"], [["NA" if i < 4 else i * i, i % 2] for i in range(40)])
    write(folder / "b.csv", ["age", "label"], [[1000 + i / 3, i % 2] for i in range(40)])
    made = federation(folder, tmp_path, missing="impute")
    train = np.concatenate([made.examples(c).x[:, 0] for c in made.ids]).tolist()
    test = np.concatenate([made.examples(c, "test").x[:, 0] for c in made.ids]).tolist()
    (filled,) = {value for value in train + test if (train + test).count(value) > 1}
    rest = [value for value in train if value != filled]
    assert np.mean(rest) == pytest.approx(filled, rel=1e-5)
    assert "filled with the mean of the training samples (4 missing" in made.notes["missing values"]


def test_a_missing_text_is_imputed_with_the_share_of_each_value(folder):
    words = ["x", "x", "x", "y"] * 5
    write(folder / "a.csv", ["ward", "label"], [[w, i % 2] for i, w in enumerate([*words, "NA"])])
    reading = read(folder, missing="impute")
    assert reading.problems == []
    assert np.isnan(reading.clients[0].x[-1]).all()
    assert "ward 1 (in a)" in reading.notes["missing values"]


@pytest.mark.parametrize("missing", ["refuse", "impute"])
def test_a_missing_label_is_never_made_up(folder, missing):
    write(folder / "a.csv", ["u", "label"], [[1.5, "x"], [2.5, "NA"], [3.5, "y"], [2.5, "y"]])
    (problem,) = read(folder, missing=missing).problems
    assert problem.startswith("a: 1 missing label in y")


def test_nothing_left_or_nothing_to_average_is_a_problem(folder):
    write(folder / "a.csv", ["u", "v", "label"], [["NA", i / 3, i % 2] for i in range(6)])
    assert "a: every row has a missing value" in read(folder, missing="drop").problems[0]
    assert "'u': all values are missing" in read(folder, missing="impute").problems[0]


def test_missing_values_of_arrays_can_be_dropped_or_imputed_too(folder, tmp_path):
    x = Seed(0).numpy().normal(size=(20, 3))
    x[4, 1] = np.nan
    np.savez(folder / "a.npz", x=x, y=np.arange(20) % 2)
    assert read(folder).problems[0].startswith("1 missing value: feature 1 1 (in a)")
    dropped = federation(folder, tmp_path, missing="drop")
    assert len(dropped.train) + len(dropped.test) == 19
    imputed = federation(folder, tmp_path, missing="impute")
    assert len(imputed.train) + len(imputed.test) == 20
    assert np.isfinite(imputed.train.x).all()
    assert np.isfinite(imputed.test.x).all()


# -- clients and classes -------------------------------------------------------------------------------


def test_client_names_with_spaces_are_made_safe_and_stay_different(folder):
    for name in ("New York", "New-York", "Zürich", "plain"):
        write(folder / f"{name}.csv", ["u", "label"], [[i / 3, i % 2] for i in range(4)])
    reading = read(folder)
    assert reading.problems == []
    assert [c.name for c in reading.clients] == ["New-York-2", "New-York", "Zurich", "plain"]
    assert reading.warnings == [
        "client names are changed so that they can be file names: 'New York' is 'New-York-2', "
        "'Zürich' is 'Zurich'"
    ]


def test_numbers_that_name_clients_stay_as_they_are_written(tmp_path):
    path = write(
        tmp_path / "a.csv", ["client", "u", "label"], [[f"00{i % 2}", i / 3, i % 2] for i in range(8)]
    )
    assert [c.name for c in read(path).clients] == ["000", "001"]


def test_rows_without_a_client_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", ["client", "u", "label"], [["p", 1, 0], ["", 2, 1], ["NA", 3, 1]])
    assert read(path).problems == ["a.csv: 2 rows have no client"]


def test_lonely_classes_lonely_samples_and_capital_letters_are_mentioned(folder):
    write(folder / "a.csv", ["u", "label"], [[i / 3, "cat"] for i in range(4)] + [[0.7, "emu"]])
    write(folder / "b.csv", ["u", "label"], [[i / 3, "cat"] for i in range(4)])
    write(folder / "c.csv", ["u", "label"], [[0.5, "Cat"]])
    assert read(folder).warnings == [
        "1 client has only one sample, to train on: c",
        "2 classes occur at one client only: 'emu' (a), 'Cat' (c)",
        "2 classes have only one sample: 'emu', 'Cat'",
        "classes 'cat' and 'Cat' differ in capital letters only",
    ]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([0, 1e300], "too large, such as 1e+300"),
        (np.array([0, 2**64 - 1], np.uint64), "too large"),
        ([0, np.inf], "too large, such as inf"),
        (np.array([b"\xff", b"a"]), "not valid text"),
    ],
)
def test_labels_that_cannot_be_kept_exactly_are_refused(folder, y, sentence):
    np.savez(folder / "a.npz", x=np.ones((2, 2)), y=np.asarray(y))
    (problem,) = read(folder).problems
    assert sentence in problem


def test_values_that_32_bits_cannot_hold_are_refused(folder):
    np.savez(folder / "a.npz", x=np.array([[1.0, 1e300], [1.0, 2.0]]), y=np.array([0, 1]))
    assert read(folder).problems == ["a: 1 value in x too large for 32-bit numbers"]


def test_warnings_are_part_of_the_notes_of_a_result(folder, tmp_path):
    write(folder / "a.csv", ["id", "label"], [[i / 2, i % 2] for i in range(8)])
    assert "column 'id' looks like an id" in federation(folder, tmp_path).notes["warnings"]


# -- Parquet -------------------------------------------------------------------------------------------


def test_parquet_columns_of_every_kind(folder, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    columns = {
        "whole": pyarrow.array([i if i else None for i in range(10)], pyarrow.int32()),
        "half": pyarrow.array([i / 2 for i in range(10)], pyarrow.float16()),
        "yes": [bool(i % 3) for i in range(10)],
        "word": pyarrow.array(["u", "v"] * 5).dictionary_encode(),
        "text": ["1", None] + ["2"] * 8,
        "label": ["x", "y"] * 5,
    }
    parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
    x = read(folder, missing="impute").clients[0].x
    assert x.shape == (10, 6)
    assert np.isnan(x[0, 0])
    assert np.isnan(x[1, 5])
    assert x[3].tolist() == [3, 1.5, 0, 0, 1, 2]
    write_time = {**columns, "when": pyarrow.array([0] * 10, pyarrow.timestamp("s"))}
    parquet.write_table(pyarrow.table(write_time), folder / "a.parquet")
    assert "'when' (holds timestamp[ms]) cannot be a feature" in read(folder, missing="drop").problems[0]
    chosen = read(folder, features=("half", "yes"))
    assert chosen.problems == []


# -- anything ------------------------------------------------------------------------------------------

CELLS = st.one_of(
    st.sampled_from(
        ["", "NA", "1", "2.5", "-3", "inf", "1e400", "yes", "no", "0x1", "1_0", " 4 ", '"', "\n"]
    ),
    st.text(max_size=4).filter(lambda text: "\0" not in text and text.isprintable()),
)


@settings(max_examples=60, deadline=None)
@given(
    header=st.lists(st.sampled_from(["a", "b", "id", "label", "client", ""]), min_size=1, max_size=4),
    cells=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=12),
    missing=st.sampled_from(["refuse", "drop", "impute"]),
)
def test_any_table_is_either_read_whole_or_refused_in_sentences(tmp_path_factory, header, cells, missing):
    path = write(tmp_path_factory.mktemp("any") / "t.csv", header, cells)
    made, refusal = None, ""
    try:
        made = federation(path, path.parent, missing=missing)
    except InvalidInput as error:
        refusal = str(error)
    assert "\n" not in refusal
    if made is not None:
        assert np.isfinite(made.train.x).all()
        assert len(made.train) + len(made.test) <= len(cells)
