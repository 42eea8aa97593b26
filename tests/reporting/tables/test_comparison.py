# SPDX-License-Identifier: Apache-2.0
"""Tables of a comparison: read from run folders, written as Markdown, LaTeX and CSV with any name."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from feddag.reporting.tables.comparison import (
    Point,
    at_budget,
    deviation,
    difference,
    read_outcome,
    summarise,
)
from feddag.reporting.tables.comparison_text import (
    cells,
    headings,
    latex,
    markdown,
    outcomes_csv,
    summary_csv,
)
from tests.reporting.toys import HOSTILE, outcome


def test_a_run_folder_gives_its_outcome(tmp_path: Path) -> None:
    scores = {"accuracy": 0.6, "balanced_accuracy": 0.5}
    result = {
        "final": {"round": 2, "before": scores},
        "newcomers": {"round": 2, "after": {"accuracy": 0.3, "balanced_accuracy": 0.2}},
        "bytes_down": 5,
        "bytes_up": 7,
        "seconds": 1.5,
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "metrics.csv").write_text(
        "round,accuracy,balanced_accuracy,bytes_down,bytes_up\n1,0.4,0.3,2,3\n2,,,4,5\n3,0.6,0.5,5,7\n"
    )
    read = read_outcome(tmp_path, "m", "s", 4)
    assert (read.method, read.setting, read.seed) == ("m", "s", 4)
    assert (read.scores, read.after) == (scores, {})
    assert read.newcomers == {"accuracy": 0.3, "balanced_accuracy": 0.2}
    assert [(p.round, p.bytes) for p in read.curve] == [
        (1, 5),
        (3, 12),
    ]  # rounds without a score are left out
    assert read.reached(0.5, "accuracy") == read.curve[1]
    assert read.reached(0.7, "accuracy") is None


def test_the_deviation_of_a_single_value_is_zero() -> None:
    assert deviation([3.0]) == 0.0
    assert deviation([1.0, 3.0]) == pytest.approx(2**0.5)


def test_cells_stand_under_their_headings() -> None:
    (line,) = summarise([outcome("m", 1, 0.5)], ["m"], [""], targets=(0.4,))
    table = dict(zip(headings("m", "accuracy", (0.4,)), cells(line, "accuracy"), strict=True))
    assert table == {
        "method": "m",
        "accuracy %": "50.00",
        "balanced accuracy %": "25.00",
        "10th percentile %": "–",
        "clusters": "–",
        "vs m": "–",
        "rank": "1",
        "proportional accuracy %": "–",
        "chosen round %": "–",
        "last five %": "–",
        "after one local round %": "–",
        "vs m, after": "–",
        "newcomers %": "–",
        "client-epochs": "–",
        "MB": "4.0",
        "s": "2.0",
        "rounds to 40%": "never",
        "MB to 40%": "never",
    }


def test_fine_tuned_and_newcomers_have_columns_where_they_were_scored() -> None:
    scores = {"accuracy": 0.8, "balanced_accuracy": 0.7}
    lines = summarise([outcome("m", 1, 0.5, after=scores, newcomers=scores)], ["m"], [""])
    text = markdown(lines, "m", "accuracy", (), "t")
    assert "| method | accuracy % | balanced accuracy % | rank | after one local round % | newc" in text
    assert "| m | 50.00 | 25.00 | 1 | 80.00 | 80.00 | 4.0 | 2.0 |" in text


def test_one_seed_is_not_called_seeds() -> None:
    one = summarise([outcome("m", 1, 0.5)], ["m"], [""])
    assert "## results (1 seed)" in markdown(one, "m", "accuracy", (), "t")
    runs = [outcome("m", 1, 0.5), outcome("m", 2, 0.5), outcome("k", 1, 0.5)]
    mixed = summarise(runs, ["m", "k"], [""])
    assert "## results (1 to 2 seeds)" in markdown(mixed, "m", "accuracy", (), "t")


def test_several_settings_have_a_table_each_and_a_mean_rank() -> None:
    runs = [outcome(m, 1, a, setting=s) for m, s, a in [("m", "x", 0.5), ("k", "x", 0.6), ("m", "y", 0.5)]]
    lines = summarise(runs, ["m", "k"], ["x", "y"])
    text = markdown(lines, "m", "accuracy", (), "t")
    assert "## x (1 seed)" in text
    assert "## y (1 seed)" in text
    assert "Mean rank over settings: k 1.00, m 1.50." in text
    assert latex(lines, "m", "accuracy", ()).count("\\begin{tabular}") == 2


def test_no_finished_run_gives_empty_tables() -> None:
    assert summarise([], ["m"], ["x"]) == []
    assert latex([], "m", "accuracy", ()) == ""
    assert markdown([], "m", "accuracy", (), "t").startswith("# t\n")
    assert len(summary_csv([], ()).splitlines()) == len(outcomes_csv([]).splitlines()) == 1


def test_clusters_and_the_tenth_percentile_are_averaged_over_seeds() -> None:
    low = [{"accuracy": 0.25, "balanced_accuracy": 0.125}, {"accuracy": 0.75, "balanced_accuracy": 0.5}]
    runs = [outcome("m", seed, 0.5, clusters=seed + 1, low=low[seed - 1]) for seed in (1, 2)]
    (line,) = summarise(runs, ["m"], [""])
    table = dict(zip(headings("m", "accuracy", ()), cells(line, "accuracy"), strict=True))
    assert (table["10th percentile %"], table["clusters"]) == ("50.00", "2.5")
    (row,) = csv.DictReader(io.StringIO(summary_csv([line], ())))
    assert (row["low"], row["clusters"]) == ("0.5", "2.5")
    first, _ = csv.DictReader(io.StringIO(outcomes_csv(runs)))
    assert (first["accuracy_10th_percentile"], first["clusters"]) == ("0.25", "2")


def test_a_run_in_which_nobody_was_scored_is_a_dash_and_comes_last() -> None:
    empty = replace(outcome("k", 1, 0.5), scores={})
    lines = summarise([outcome("m", 1, 0.5), empty], ["k", "m"], [""], targets=(0.4,))
    assert [(line.method, line.rank, line.mean["accuracy"]) for line in lines] == [
        ("k", 2.0, None),
        ("m", 1.0, 0.5),
    ]
    assert "| k | – |" in markdown(lines, "k", "accuracy", (0.4,), "t")
    assert latex(lines, "k", "accuracy", ()).count("\\textbf{50.00}") == 1
    assert len(summary_csv(lines, (0.4,)).splitlines()) == len(outcomes_csv([empty]).splitlines()) + 1 == 3


def test_of_several_seeds_only_the_scored_ones_count() -> None:
    runs = [outcome("m", 1, 0.5), replace(outcome("m", 2, 0.9), scores={})]
    (line,) = summarise(runs, ["m"], [""])
    assert (line.seeds, line.mean["accuracy"]) == (2, 0.5)


# -- strangers' names -------------------------------------------------------------------------------------

NAMES = [*HOSTILE, "a|b", "\\end{tabular}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_keeps_the_markdown_table_whole(name: str) -> None:
    lines = summarise([outcome(name, 1, 0.5, setting=name)], [name], [name])
    text = markdown(lines, name, "accuracy", (), name)
    assert "<script>" not in text
    table = [row for row in text.splitlines() if row.startswith("|")]
    assert len(table) == 3
    assert len({row.replace("\\|", "").count("|") for row in table}) == 1
    assert sum(row.startswith("#") for row in text.splitlines()) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_keeps_the_latex_table_whole(name: str) -> None:
    lines = summarise([outcome(name, 1, 0.5, setting=name)], [name], [name])
    comment, *rows = latex(lines, name, "accuracy", ()).splitlines()
    assert comment.startswith("% ")
    text = "\n".join(rows)
    assert text.count("\\end{tabular}") == text.count("\\begin{tabular}") == 1
    assert rows[-1] == "\\end{tabular}"
    head, line = (rows[i] for i in (2, 4))
    for row in (head, line):
        assert row.endswith(" \\\\")
        bare = row.removesuffix(" \\\\")
        for escaped in ("\\$", "\\%", "\\_", "\\&", "\\{", "\\}", "\\#"):
            bare = bare.replace(escaped, "")
        assert not set("$%_#^~") & set(bare)
    assert head.replace("\\&", "").count("&") == line.replace("\\&", "").count("&")


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_one_harmless_csv_cell(name: str) -> None:
    run = outcome(name, 1, 0.5, setting=name)
    for text in (outcomes_csv([run]), summary_csv(summarise([run], [name], [name]), ())):
        (row,) = csv.DictReader(io.StringIO(text))
        expected = name.replace("\n", "\\n")
        expected = f"'{expected}" if expected.startswith("=") else expected
        assert (row["method"], row["setting"]) == (expected, expected)


def test_a_negative_number_is_not_changed_for_spreadsheets() -> None:
    runs = [outcome("m", 1, 0.5), outcome("k", 1, 0.25)]
    rows = list(csv.DictReader(io.StringIO(summary_csv(summarise(runs, ["m", "k"], [""]), ()))))
    assert rows[1]["difference_mean"] == "-0.25"


def test_a_paired_difference_has_the_t_interval_and_a_verdict_outside_of_it_alone() -> None:
    found = difference([0.1, 0.2, 0.3])
    assert found is not None
    # t(0.975, 2) = 4.302653, deviation 0.1, √3
    assert found.low == pytest.approx(0.2 - 4.302653 * 0.1 / 3**0.5, rel=1e-5)
    assert found.verdict == "tie"
    wins, losses, once = difference([0.1, 0.11, 0.12]), difference([-0.1, -0.11, -0.12]), difference([0.5])
    assert wins is not None
    assert losses is not None
    assert once is not None
    assert (wins.verdict, losses.verdict, once.verdict) == ("win", "loss", "")
    assert difference([]) is None


def test_a_method_that_adapts_or_could_not_act_has_no_score_as_served() -> None:
    runs = [
        outcome("a", 1, 0.5, after={"accuracy": 0.7}),
        outcome("b", 1, 0.9, after={"accuracy": 0.9}, adapts=True),
        outcome("c", 1, 0.5, acts_from=21),
    ]
    lines = {line.method: line for line in summarise(runs, ["a", "b", "c"], [""])}
    rows = {
        m: dict(zip(headings("a", "accuracy", ()), cells(line, "accuracy"), strict=True))
        for m, line in lines.items()
    }
    assert (rows["a"]["rank"], rows["b"]["rank"], rows["c"]["rank"]) == ("1", "–", "–")
    assert rows["b"]["accuracy %"] == "–"
    assert rows["b"]["after one local round %"] == "90.00"
    assert rows["b"]["vs a, after"] == "+20.00"
    assert rows["c"]["accuracy %"] == "n/a (acts from round 21)"
    assert rows["c"]["vs a"] == "–"


def test_at_equal_compute_a_run_is_read_where_it_had_spent_the_first_methods_budget() -> None:
    def run(method: str, per_round: float) -> object:
        points = tuple(
            Point(r, {"accuracy": r / 10, "balanced_accuracy": r / 20}, 100 * r, per_round * r)
            for r in range(1, 6)
        )
        return replace(outcome(method, 1, 0.5), curve=points, epochs=5 * per_round)

    runs = [run("cheap", 10.0), run("dear", 24.0), run("cheapest", 5.0)]
    read = {o.method: o for o in at_budget(runs, "compute", "cheap")}  # type: ignore[arg-type]
    assert read["cheap"].scores["accuracy"] == 0.5
    assert (read["dear"].scores["accuracy"], read["dear"].epochs) == (0.2, 48.0)
    assert read["cheapest"].scores["accuracy"] == 0.5
    assert [o.scores for o in at_budget(runs, "bytes", "cheap")] == [o.scores for o in runs]  # type: ignore[arg-type,attr-defined]
    assert at_budget(runs, "rounds", "cheap") == runs  # type: ignore[arg-type]
