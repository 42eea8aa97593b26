# SPDX-License-Identifier: Apache-2.0
"""clients.csv: a row per client, whatever it is called and however its evaluation went."""

import csv
import io

import pytest

from feddag.reporting.tables.clients import (
    clients_csv,
    cluster_facts,
    low_scores,
    read_clients,
    remarks_in,
    worst_clients,
)
from tests.reporting.toys import HOSTILE


def scores(accuracy: float) -> dict:
    return {"accuracy": accuracy, "balanced_accuracy": accuracy / 2, "loss": 1.5, "samples": 7}


def rows_of(report: dict, clusters=(), files=(), remarks=()) -> list[dict[str, str]]:
    text = clients_csv(report, dict(clusters), dict(files), dict(remarks))
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_has_cluster_model_samples_scores_before_and_after_and_a_note() -> None:
    report = {"test_clients": {"a": scores(0.5)}, "test_after_clients": {"a": scores(0.75)}, "unscored": []}
    (row,) = rows_of(report, {"a": 3}, {"a": "m.safetensors"}, {"a": ["newcomer", "weak"]})
    assert row == {
        "client": "a",
        "cluster": "3",
        "model": "m.safetensors",
        "test_samples": "7",
        "accuracy": "0.5",
        "balanced_accuracy": "0.25",
        "loss": "1.5",
        "accuracy_after": "0.75",
        "balanced_accuracy_after": "0.375",
        "silhouette": "",
        "second_cluster": "",
        "note": "newcomer; weak",
    }


def test_a_failed_evaluation_and_missing_test_samples_are_different_notes() -> None:
    report = {"test_clients": {"b": None}, "unscored": ["a"]}
    rows = rows_of(report, files={"a": "m", "b": "m"})
    assert [(r["client"], r["accuracy"], r["note"]) for r in rows] == [
        ("a", "", "not scored"),
        ("b", "", "no test samples"),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_client_name_is_one_harmless_cell(name: str) -> None:
    (row,) = rows_of({"test_clients": {name: scores(0.5)}}, files={name: "m"})
    assert not row["client"].startswith("=")
    assert "\n" not in row["client"]
    assert row["accuracy"] == "0.5"


def test_remarks_come_from_the_notes_of_placing_events() -> None:
    events = [
        {"event": "exchange", "notes": {"weak": ["nobody"]}},
        {"event": "newcomers", "notes": {"weak": ["a"], "placed": {"a": 1}}},
        {"event": "round", "notes": {"weak": ["a"], "unlike": ["b"]}},
    ]
    assert remarks_in(events) == {"a": ["weak"], "b": ["unlike"]}


def table(*clients: tuple[str, str, str, str]) -> list[dict[str, str]]:
    keys = ("client", "cluster", "accuracy", "note")
    return [dict(zip(keys, c, strict=True)) | {"balanced_accuracy": c[2]} for c in clients]


def test_clusters_are_in_order_with_size_and_mean_of_the_scored_clients() -> None:
    rows = table(("a", "10", "0.5", ""), ("b", "2", "", "not scored"), ("c", "10", "0.7", ""))
    facts = [(f.cluster, f.size, f.accuracy) for f in cluster_facts(rows)]
    assert facts == [("2", 1, None), ("10", 2, pytest.approx(0.6))]
    assert cluster_facts(table(("a", "", "0.5", ""))) == []


def test_the_worst_clients_come_first_and_unscored_ones_not_at_all() -> None:
    rows = table(
        ("b", "", "0.2", ""), ("a", "", "0.2", ""), ("c", "", "", "not scored"), ("d", "", "0.1", "")
    )
    assert [row["client"] for row in worst_clients(rows, 2)] == ["d", "a"]


def test_the_tenth_percentile_leaves_newcomers_out_and_is_empty_without_scores() -> None:
    rows = table(*((f"c{i}", "", str(i / 10), "") for i in range(11)), ("n", "", "0.0", "newcomer"))
    assert low_scores(rows)["accuracy"] == pytest.approx(0.1)
    assert low_scores(table(("a", "", "", "not scored"))) == {}


def test_a_folder_without_the_file_has_no_rows(tmp_path) -> None:
    assert read_clients(tmp_path) == []


def test_a_row_says_how_sure_the_cluster_is() -> None:
    text = clients_csv({}, {"a": 1, "b": 0}, {"a": "m", "b": "m"}, {"b": ["unlike"]}, {"a": (0.25, 0)})
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["silhouette"], first["second_cluster"]) == ("0.25", "0")
    assert (second["silhouette"], second["second_cluster"]) == ("", "")
    assert second["note"].startswith("unlike")
