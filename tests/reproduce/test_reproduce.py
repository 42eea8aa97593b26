# SPDX-License-Identifier: Apache-2.0
"""feddag reproduce: the paper's values, the settings of every cell, orderings, and a real table."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from feddag.cli.main import main
from feddag.compare.rows import read_row
from feddag.core.errors import Interrupted, InvalidInput
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.comparison import Difference
from feddag.reproduce.orderings import counts, orderings
from feddag.reproduce.plan import make_plan, settings_of
from feddag.reproduce.report import Found, cell_text, latex, markdown, table_csv
from feddag.reproduce.run import reproduce
from feddag.reproduce.tables import Column, chosen, scales, table_of, tables
from tests.reporting.toys import check_png, outcome

TINY = (
    "data.name=synthetic",
    'data.synthetic={"groups"=2, "classes"=3, "dimensions"=4, "train"=300, "test"=90}'.replace('"', ""),
    "num_clients=6",
    "num_rounds=2",
    "training.local_epochs=1",
    "engine.name=inline",
)


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    assert list(tables()) == [*(f"T{i}" for i in range(1, 20)), "F2", "F3"]


def test_some_published_values_are_those_of_the_paper() -> None:
    assert table_of("T4").value("FedDAG", "20% FMNIST") == 93.82
    assert table_of("t4").value("PACFL", "30% SVHN") == 90.48
    assert table_of("T10").value("IFCA", "20% CIFAR-100") == 72.86
    assert table_of("T2").value("FedBR", "SVHN") == 80.12
    assert table_of("T5").value("FedAvg", "α' 1 CIFAR-10") == 41.78
    assert table_of("T13").value("FedDAG", "FMNIST") == 96.84
    assert table_of("T19").value("0.35", "SVHN clusters") == 11
    assert table_of("F3").value("FedDAG", "SVHN") is None


@pytest.mark.parametrize("table", tables().values(), ids=lambda t: t.id)
def test_every_cell_has_a_value_and_valid_settings_at_every_scale(table) -> None:
    assert all(len(values) == len(table.columns) for values in table.published.values())
    for scale in scales().values():
        for column in table.columns:
            experiment = Experiment.from_settings(settings_of(table, scale, column))
            assert experiment.num_rounds <= 200
    for row in table.rows:
        assert read_row(row.row).method
        for change in row.changes:
            assert change.partition(".")[0] == read_row(row.row).method


def test_the_paper_scale_is_the_papers_setting_and_a_table_may_have_its_own_rounds() -> None:
    paper, small = scales()["paper"], scales()["small"]
    t4, t13 = table_of("T4"), table_of("T13")
    exact = Experiment.from_settings(settings_of(t4, paper, t4.columns[1]))
    assert (exact.num_clients, exact.num_rounds, exact.fraction_train) == (100, 200, 0.2)
    assert (exact.training.local_epochs, exact.training.lr, exact.training.batch_size) == (10, 0.01, 64)
    assert (exact.data.name, exact.partition.label_share, exact.partition.alpha) == (
        "fashion-mnist",
        0.2,
        0.25,
    )
    assert Experiment.from_settings(settings_of(t13, paper, t13.columns[0])).num_rounds == 80
    assert Experiment.from_settings(settings_of(t13, small, t13.columns[0])).num_rounds == 20


def test_rows_and_columns_are_chosen_by_whole_words() -> None:
    names = ["FedAvg", "PerFedAvg", "FedDAG*", "FedDAG"]
    assert chosen("fedavg,FedDAG", names, "--rows") == ["FedAvg", "FedDAG"]
    assert chosen("", names, "--rows") == names
    assert chosen("FMNIST", ["20% FMNIST", "30% FMNIST", "20% SVHN"], "--cols") == [
        "20% FMNIST",
        "30% FMNIST",
    ]
    with pytest.raises(InvalidInput, match="choose from"):
        chosen("FedX", names, "--rows")
    with pytest.raises(InvalidInput, match="is no table of the paper"):
        table_of("T99")


def test_an_ordering_holds_or_fails_outside_the_interval_alone() -> None:
    table, column = table_of("T4"), "20% FMNIST"  # FedDAG 93.82 > PACFL 91.90 > FedAvg 53.11
    scores = {
        ("FedDAG", column): {1: 90.0, 2: 91.0, 3: 92.0},
        ("PACFL", column): {1: 92.0, 2: 93.0, 3: 94.1},
        ("FedAvg", column): {1: 30.0, 2: 95.0, 3: 20.0},
    }
    found = {
        (o.better, o.worse): o for o in orderings(table, ["FedAvg", "PACFL", "FedDAG"], [column], scores)
    }
    assert found["FedDAG", "PACFL"].verdict == "fails"
    assert found["PACFL", "FedAvg"].verdict == "cannot be told"
    assert found["FedDAG", "PACFL"].published == pytest.approx(1.92)
    assert counts([*found.values()]) == {"holds": 0, "fails": 1, "cannot be told": 2}
    one = {place: {1: by_seed[1]} for place, by_seed in scores.items()}
    assert {o.verdict for o in orderings(table, ["PACFL", "FedDAG"], [column], one)} == {"cannot be told"}
    assert orderings(table, ["PACFL", "IFCA"], [column], scores) == [], "IFCA was not computed"


def test_cells_show_ours_and_the_papers_value() -> None:
    assert cell_text({1: 50.0, 2: 52.0}, 91.9) == "51.00 ± 1.41 (91.9)"
    assert cell_text({}, 91.9) == "– (91.9)"
    assert cell_text({1: 50.0}, None) == "50.00 (–)"
    assert Difference(0.5, 0.1, 0.9).scaled(100) == Difference(50.0, 10.0, 90.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory):
    """FedAvg and FedDAG* of T3's kind on synthetic data."""
    folder = tmp_path_factory.mktemp("reproduce")
    table = table_of("T4")
    table = replace(table, columns=(Column("20% FMNIST", TINY),), changes=())
    table = replace(
        table, published={row: (table_of("T4").value(row, "20% FMNIST"),) for row in table.published}
    )
    rows = [row for row in table.rows if row.name in ("FedAvg", "CFL")]
    plan = make_plan(table, scales()["smoke"], rows, table.columns, (1, 2), TINY)
    assert not plan.missing
    return plan, reproduce(plan, folder, jobs=2), folder


def test_a_table_leaves_markdown_csv_latex_and_a_figure(done) -> None:
    _, _, folder = done
    text = (folder / "table.md").read_text()
    assert "(53.11)" in text
    assert "Scale `smoke`" in text
    assert "Computed: 6 clients" in text
    assert "synthetic" in text
    assert "Orderings of the paper" in text
    rows = list(csv.DictReader((folder / "table.csv").open()))
    assert [(r["row"], r["seed"], r["published"]) for r in rows[:2]] == [
        ("FedAvg", "1", "53.11"),
        ("FedAvg", "2", "53.11"),
    ]
    assert "FedAvg &" in (folder / "table.tex").read_text()
    check_png(folder / "agreement.png")
    check_png(folder / "curves.png")


def test_finished_cells_are_not_computed_again(done) -> None:
    plan, found, folder = done
    times = {p: p.stat().st_mtime_ns for p in folder.glob("cells/*/result.json")}
    again = reproduce(plan, folder, jobs=1)
    assert again.scores == found.scores
    assert {p: p.stat().st_mtime_ns for p in folder.glob("cells/*/result.json")} == times


def test_a_table_that_is_stopped_shows_what_it_has(done, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _found, folder = done
    (folder / "table.md").unlink()

    def stop(*_: object, **__: object) -> dict[str, str]:
        raise Interrupted("stopped")

    monkeypatch.setattr("feddag.compare.cells.run_side_by_side", stop)
    with pytest.raises(Interrupted, match="the same command goes on"):
        reproduce(plan, folder)
    assert "(53.11)" in (folder / "table.md").read_text()


def test_a_method_that_could_not_act_or_adapts_is_marked(done) -> None:
    plan, _, _ = done
    runs = {
        ("FedAvg", "20% FMNIST"): {1: outcome("FedAvg", 1, 0.5, adapts=True)},
        ("CFL", "20% FMNIST"): {1: outcome("CFL", 1, 0.5, acts_from=21)},
    }
    found = Found({place: {1: 50.0} for place in runs}, runs)
    text = markdown(plan, found, [])
    assert "50.00 (53.11)‡" in text
    assert "n/a, acts from round 21 (81.9)" in text
    assert "n/a" in latex(plan, found)
    assert table_csv(plan, Found({}, {})).count("\n") == 3


def test_missing_data_are_told_and_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDDAG_DATA", str(tmp_path))
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "cache"))
    table = table_of("T12")
    plan = make_plan(table, scales()["smoke"], table.rows, table.columns, (1,))
    assert plan.cells == {}
    assert "Landmarks" in plan.missing
    assert "## Missing data" in markdown(plan, Found({}, {}), [])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["T99"], "is no table of the paper"),
        (["T4", "--scale", "huge"], "choose one of paper, small, smoke"),
        (["T4", "--rows", "FedX"], "choose from FedAvg"),
        (["T4", "--seeds", "0.5"], "expected whole numbers"),
    ],
)
def test_what_users_get_wrong_is_one_sentence(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["feddag", "reproduce", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_list_names_every_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["feddag", "reproduce", "--list"])
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().out
    assert all(name in text for name in tables())


def test_a_sweep_tells_clusters_and_loss_at_every_threshold(tmp_path: Path) -> None:
    table = table_of("T19")
    columns = (Column("CIFAR-10 clusters", TINY), Column("CIFAR-10 loss", TINY))
    published = {
        row: values[:2] for row, values in table.published.items() if row in ("1.00", "0.50", "0.05")
    }
    table = replace(table, columns=columns, changes=(), published=published)
    plan = make_plan(table, scales()["smoke"], table.rows, columns, (1,), TINY)
    found = reproduce(plan, tmp_path, jobs=1)
    clusters = {row: found.scores[row, "CIFAR-10 clusters"][1] for row in published}
    assert clusters["1.00"] <= clusters["0.50"] <= clusters["0.05"] <= 6
    assert all(0 <= found.scores[row, "CIFAR-10 loss"][1] <= 1 for row in published)
    text = (tmp_path / "table.md").read_text()
    assert f"{clusters['0.50']:.2f} (11)" in text
    assert "(0.149)" in text
