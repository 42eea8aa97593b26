# SPDX-License-Identifier: Apache-2.0
"""feddag compare: the grid, its statistics against hand computation, resuming, and what users get wrong."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from feddag.cli.main import main
from feddag.compare.grid import ComparisonGrid, _mentions_planted, _merged, _with_number, settings_over
from feddag.compare.run import compare
from feddag.compare.tune import candidates, picked, tuning_cells
from feddag.core.errors import FederationError, InvalidInput
from feddag.core.files import lock_folder
from feddag.reporting.tables.comparison import Outcome, Point, summarise
from feddag.reporting.tables.comparison_text import latex, markdown, mean_ranks, outcomes_csv, summary_csv
from feddag.reporting.tables.log import read_events
from feddag.runs.simulate import run

BASE = {
    "name": "tiny",
    "data": {
        "name": "synthetic",
        "synthetic": {"groups": 2, "classes": 2, "dimensions": 4, "train": 240, "test": 80},
    },
    "num_clients": 4,
    "num_rounds": 3,
    "fraction_train": 0.5,
    "training": {"local_epochs": 1, "batch_size": 16, "lr": 0.1},
    "evaluation": {"every": 1},
    "engine": "inline",
}


def plan(*methods: str, seeds: tuple[int, ...] = (1, 2), **options) -> ComparisonGrid:
    return ComparisonGrid(base=BASE, methods=methods, seeds=seeds, **options)


# -- the grid -------------------------------------------------------------------------------------------


def test_the_grid_holds_every_method_setting_and_seed_once() -> None:
    grid = plan("fedavg", "fedprox", over=("training.lr=0.1,0.2", "num_rounds=2,3"))
    assert grid.settings == (
        "lr=0.1, num_rounds=2",
        "lr=0.1, num_rounds=3",
        "lr=0.2, num_rounds=2",
        "lr=0.2, num_rounds=3",
    )
    assert len(grid.cells) == len({cell.name for cell in grid.cells}) == 2 * 4 * 2
    first = grid.cells[0].experiment
    assert (first.training.lr, first.num_rounds, first.seed) == (0.1, 2, 1)


def test_cells_of_one_seed_and_setting_differ_in_the_method_alone() -> None:
    left, right = (c.experiment.settings() for c in plan("fedavg", "pacfl", seeds=(7,)).cells)
    assert left.pop("algorithm") == {"name": "fedavg", "preset": ""}
    assert right.pop("algorithm")["name"] == "pacfl"
    assert left == right


def test_a_setting_can_be_for_one_method_or_for_all_that_have_it() -> None:
    grid = plan(
        "fedavg",
        "pacfl",
        "cfl_gp",
        seeds=(1,),
        changes=("algorithm.num_clusters=3", "pacfl.vectors=2", "training.lr=0.5"),
    )
    built = {cell.method: cell.experiment.build_algorithm() for cell in grid.cells}
    assert (built["pacfl"].num_clusters, built["pacfl"].vectors) == (3, 2)
    assert built["cfl_gp"].num_clusters == 3
    assert built["fedavg"].local.lr == 0.5


def test_hyper_parameters_in_a_file_stay_with_their_method() -> None:
    base = {**BASE, "algorithm": {"name": "fedprox", "mu": 0.7}}
    cells = ComparisonGrid(base=base, methods=("fedavg", "fedprox"), seeds=(1,)).cells
    assert cells[1].experiment.build_algorithm().mu == 0.7


def test_planted_stands_for_the_number_of_planted_groups() -> None:
    (cell,) = plan("pacfl", seeds=(1,), changes=("pacfl.num_clusters=planted",)).cells
    assert cell.experiment.build_algorithm().num_clusters == 2


def test_planted_without_groups_is_told() -> None:
    bare = {**BASE, "data": {"name": "digits"}, "partition": {"kind": "lda"}}
    with pytest.raises(InvalidInput, match="no planted groups with partition 'lda'"):
        _ = ComparisonGrid(bare, ("pacfl",), (1,), changes=("pacfl.num_clusters=planted",)).cells


def test_rows_are_methods_with_a_preset_or_a_sign_of_the_paper() -> None:
    cells = plan("feddag", "feddag[paper]", "feddag*", "feddag†", "local[full]", seeds=(1,)).cells
    built = {cell.method: cell.experiment.build_algorithm() for cell in cells}
    assert built["feddag[paper]"].encoders.phases == "parallel"
    assert built["feddag"].mixture.most > built["feddag*"].mixture.most == 0
    assert (built["feddag*"].encoders.count, built["feddag†"].encoders.count) == (1, 2)
    assert not built["feddag†"].encoders.sharing
    assert built["local[full]"].who == "everyone"
    assert len({cell.name for cell in cells}) == 5
    changed = plan("feddag", "feddag*", seeds=(1,), changes=("feddag.signature.warmup_rounds=1",)).cells
    assert [c.experiment.build_algorithm().signature.warmup_rounds for c in changed] == [1, 1]


@pytest.mark.parametrize("word", ["feddag[best]", "fedavg*", "nothing*", "local[full", "feddag**"])
def test_a_row_that_does_not_exist_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match=r"has|neither"):
        plan(word)


def test_every_method_is_tuned_over_the_values_that_concern_it() -> None:
    grid = plan(
        "fedavg",
        "fedprox",
        tune=("training.lr=0.1,0.2", "fedprox.mu=0.01,1"),
        tuning_seeds=(901,),
    )
    assert candidates(grid, "fedavg") == [("training.lr=0.1",), ("training.lr=0.2",)]
    assert len(candidates(grid, "fedprox")) == 4
    trials = tuning_cells(grid)
    assert {cell.experiment.seed for runs in trials["fedprox", ""].values() for (cell,) in [runs]} == {901}
    scores = {"0.1": 0.3, "0.2": 0.6}
    best = picked(trials, lambda cell: scores[str(cell.experiment.training.lr)])
    assert best == {"fedavg": ("training.lr=0.2",), "fedprox": ("training.lr=0.2", "fedprox.mu=0.01")}
    reported = replace(grid, picked=best).cells
    assert {cell.experiment.training.lr for cell in reported} == {0.2}
    assert {cell.experiment.seed for cell in reported} == {1, 2}


def test_tuning_and_reported_seeds_are_never_the_same() -> None:
    with pytest.raises(InvalidInput, match="none of them may be among"):
        plan("fedavg", tune=("training.lr=0.1,0.2",), tuning_seeds=(2, 3))


def test_a_tuned_comparison_says_what_it_picked(tmp_path: Path) -> None:
    grid = plan("fedavg", seeds=(1,), tune=("training.lr=0.000001,0.1",), tuning_seeds=(901,))
    compare(grid, tmp_path / "c", jobs=1)
    text = (tmp_path / "c" / "comparison.md").read_text()
    assert "Tuned by validation on seeds 901" in text
    assert "fedavg: training.lr=0.1" in text
    (reported,) = csv.DictReader((tmp_path / "c" / "comparison.csv").open())
    assert (reported["seed"], float(reported["client_epochs"]) > 0) == ("1", True)


def test_options_in_groups_are_merged_and_planted_is_replaced_inside_them() -> None:
    base = {"cut": {"linkage": "single", "number": 1}, "rate": 1}
    merged = _merged(base, {"cut": {"number": "planted"}})
    assert merged == {"cut": {"linkage": "single", "number": "planted"}, "rate": 1}
    assert _mentions_planted(merged)
    assert _with_number(merged, 3) == {"cut": {"linkage": "single", "number": 3}, "rate": 1}
    assert not _mentions_planted(base)


def test_values_of_an_axis_may_be_numbers_words_and_lists() -> None:
    assert [c for _, c in settings_over(["partition.kind=lda,iid"])] == [
        ["partition.kind=lda"],
        ["partition.kind=iid"],
    ]
    assert [c for _, c in settings_over(["a.b=[1, 2],[3]"])] == [["a.b=[1, 2]"], ["a.b=[3]"]]
    assert settings_over([]) == [("", [])]


def test_the_engine_is_no_part_of_a_cells_identity() -> None:
    other = {**BASE, "engine": "process"}
    assert plan("fedavg").cells[0].name == ComparisonGrid(other, ("fedavg",), (1, 2)).cells[0].name


# -- statistics -----------------------------------------------------------------------------------------


def outcome(method: str, seed: int, accuracy: float, curve=(), setting: str = "", **fields) -> Outcome:
    scores = {"accuracy": accuracy, "balanced_accuracy": accuracy / 2}
    points = tuple(Point(r, {"accuracy": a, "balanced_accuracy": a / 2}, b) for r, a, b in curve)
    values = {"after": {}, "newcomers": {}, "bytes_down": 3_000_000, "bytes_up": 1_000_000, "seconds": 2.0}
    return Outcome(method, setting, seed, scores, curve=points, **{**values, **fields})


OUTCOMES = [
    outcome("a", 1, 0.50, [(1, 0.4, 10), (2, 0.6, 20), (3, 0.5, 30)]),
    outcome("a", 2, 0.60, [(1, 0.3, 10), (2, 0.5, 20), (3, 0.6, 30)]),
    outcome("b", 1, 0.70, [(1, 0.6, 40), (2, 0.7, 80)]),
    outcome("b", 2, 0.90, [(1, 0.5, 40), (2, 0.9, 80)]),
    outcome("c", 1, 0.10),
]


def test_means_deviations_paired_differences_and_ranks_by_hand() -> None:
    a, b, c = summarise(OUTCOMES, ["a", "b", "c"], [""])
    assert (a.mean["accuracy"], b.mean["accuracy"]) == (pytest.approx(0.55), pytest.approx(0.8))
    assert a.std["accuracy"] == pytest.approx(0.05 * 2**0.5)  # sample deviation of 0.5 and 0.6
    assert a.difference is None
    # differences 0.2 and 0.3, seed by seed
    half = 12.7062 * 0.05  # t(0.975, 1) · deviation / √2
    assert (b.difference.mean, b.difference.high) == (
        pytest.approx(0.25),
        pytest.approx(0.25 + half, rel=1e-4),
    )
    assert (c.difference.mean, c.difference.low) == (pytest.approx(-0.4), None)  # seed 1 alone is paired
    assert [line.rank for line in (a, b, c)] == [2, 1, 3]
    assert a.bytes == 4_000_000


def test_equal_means_share_a_rank() -> None:
    lines = summarise([outcome("a", 1, 0.5), outcome("b", 1, 0.5)], ["a", "b"], [""])
    assert [line.rank for line in lines] == [1.5, 1.5]
    assert mean_ranks(lines) == {"a": 1.5, "b": 1.5}


def test_rounds_and_bytes_to_a_target_are_those_of_the_first_round_that_reaches_it() -> None:
    a, b, c = summarise(OUTCOMES, ["a", "b", "c"], [""], targets=(0.6, 0.85))
    assert a.targets == ((2, 2.5, 25.0), (0, 0.0, 0.0))  # rounds 2 and 3
    assert b.targets == ((2, 1.5, 60.0), (1, 2.0, 80.0))
    assert c.targets == ((0, 0.0, 0.0),) * 2


def test_the_tables_say_the_same_in_every_format() -> None:
    lines = summarise(OUTCOMES, ["a", "b", "c"], [""], targets=(0.85,))
    text = markdown(lines, "a", "accuracy", (0.85,), "title")
    assert "| b | 80.00 ± 14.14 | 40.00 ± 7.07 | +25.00 \\[-38.53, +88.53\\] tie | 1 | 4.0 | 2.0 |" in text
    assert "| c | 10.00 | 5.00 | -40.00 | 3 | 4.0 | 2.0 | never | never |" in text
    assert "one local round %" not in text.split("\n", 4)[4]  # nobody was: no empty column
    tex = latex(lines, "a", "accuracy", (0.85,))
    assert "b & \\textbf{80.00 $\\pm$ 14.14} &" in tex
    assert "accuracy \\%" in tex
    rows = list(csv.DictReader(summary_csv(lines, (0.85,)).splitlines()))
    assert [(r["method"], r["reached_0.85"], r["rounds_to_0.85"]) for r in rows] == [
        ("a", "0", ""),
        ("b", "1", "2.0"),
        ("c", "0", ""),
    ]
    assert len(outcomes_csv(OUTCOMES).splitlines()) == 6


# -- running --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[ComparisonGrid, Path]:
    folder = tmp_path_factory.mktemp("compare") / "grid"
    grid = plan("fedavg", "pacfl", over=("training.lr=0.1",), targets=(0.3,))
    lines = compare(grid, folder, jobs=2)
    assert [(line.setting, line.method, line.seeds) for line in lines] == [
        ("lr=0.1", "fedavg", 2),
        ("lr=0.1", "pacfl", 2),
    ]
    return grid, folder


def test_a_comparison_leaves_tables_a_picture_and_one_run_folder_a_cell(done) -> None:
    grid, folder = done
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    tables = {"comparison.csv", "comparison.md", "comparison.tex", "summary.csv"}
    assert names == {"cells", "compare.json", "curves.png", "index.html"} | tables
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (folder / "cells").iterdir()} == {cell.name for cell in grid.cells}
    with (folder / "comparison.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


def test_a_cell_is_the_same_run_as_feddag_run_makes(done, tmp_path: Path) -> None:
    grid, folder = done
    cell = grid.cells[1]
    alone = run(cell.experiment, folder=tmp_path / "alone")
    results = [json.loads((f / "result.json").read_text()) for f in (alone, folder / "cells" / cell.name)]
    assert results[0]["state_digest"] == results[1]["state_digest"]
    assert results[0]["final"] == results[1]["final"]


def test_cells_share_cohorts(done) -> None:
    grid, folder = done
    cohorts = []
    for cell in grid.cells[:2]:
        events = (folder / "cells" / cell.name / "events.jsonl").read_text().splitlines()
        cohorts.append([json.loads(e)["cohort"] for e in events if json.loads(e)["event"] == "round"])
    assert cohorts[0] == cohorts[1]


def test_finished_cells_are_not_run_again_and_methods_can_be_added(done) -> None:
    grid, folder = done
    before = {p: p.stat().st_mtime_ns for p in folder.glob("cells/*/result.json")}
    wider = ComparisonGrid(grid.base, (*grid.methods, "local"), (1,), over=grid.over)
    lines = compare(wider, folder, jobs=1)
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert [line.method for line in lines] == ["fedavg", "pacfl", "local"]
    assert len(list(folder.glob("cells/*/result.json"))) == len(before) + 1


def test_a_run_that_fails_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    grid = plan("fedavg", seeds=(1,), over=("engine.deadline=600,1e-9",))  # nobody trains in a nanosecond
    expected = r"1 of 2 runs failed, the first is fedavg-deadline=1e-09-seed1-\w+: round 1, task 'train'"
    with pytest.raises(FederationError, match=expected):
        compare(grid, tmp_path / "grid", jobs=2)
    table = (tmp_path / "grid" / "comparison.md").read_text()
    assert "deadline=600" in table
    assert "deadline=1e-09" not in table


# Every Python process below the comparison imports this. A run kills its comparison when it tells of round 2,
# and goes no further until it is stopped itself. SIGINT, by which a run stops itself, is not ignored.
KILLER = """
import builtins, os, signal, sys, time
if "feddag.compare.cell" in sys.orig_argv:
    comparison, tell = os.getppid(), builtins.print
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def print(text, **options):
        if text == '{"round": 2}':
            os.kill(comparison, signal.SIGKILL)
            while True:
                time.sleep(0.01)
        tell(text, **options)
    builtins.print = print
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no signal 9")
def test_a_killed_comparison_goes_on_from_the_checkpoints_of_its_runs(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "e.json").write_text(json.dumps(BASE))
    (tmp_path / "killer").mkdir()
    (tmp_path / "killer" / "sitecustomize.py").write_text(KILLER)
    path = os.pathsep.join([str(tmp_path / "killer"), *(p or os.getcwd() for p in sys.path)])
    command = [sys.executable, "-m", "feddag", "compare"]
    first = subprocess.run(
        [*command, "fedavg", "e.json", "--seeds", "2", "--folder", "g", "--jobs", "1", "--quiet"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=600,
    )  # fmt: skip
    assert first.returncode == -signal.SIGKILL
    stopped = ComparisonGrid.load(tmp_path / "g" / "compare.json")
    cut, unborn = (tmp_path / "g" / "cells" / cell.name for cell in stopped.cells)
    # The run stops because its comparison is gone; a second comparison then finds its folder free.
    _wait_until_free(cut)
    assert list(cut.glob("checkpoints/round-*.json"))
    assert not (cut / "result.json").exists()
    assert not unborn.exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["feddag", "compare", "--folder", "g", "--quiet"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "resumed" in [event["event"] for event in read_events(cut / "events.jsonl")]
    for cell in stopped.cells:
        whole = run(cell.experiment, folder=tmp_path / f"whole-{cell.name}")
        folders = (whole, tmp_path / "g" / "cells" / cell.name)
        digests = [json.loads((f / "result.json").read_text())["state_digest"] for f in folders]
        assert digests[0] == digests[1]


@pytest.fixture
def cell(tmp_path: Path):
    """Start a cell on the given settings in an empty folder, with Ctrl-C ignored as in a background job."""
    started = []

    def start(settings: dict) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "feddag.compare.cell", "run"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_cell_that_still_builds_its_network_stops_when_its_input_ends(cell, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    process = cell({**BASE, "model": "slow:net"})
    _wait_for((tmp_path / "begun").exists)
    process.stdin.close()
    assert process.wait(60) == 130


def test_a_cell_whose_comparison_ends_at_once_stops(cell, tmp_path: Path) -> None:
    process = cell({**BASE, "num_rounds": 100_000})
    process.stdin.close()
    assert process.wait(60) == 130


def test_a_cell_in_its_rounds_stops_at_a_checkpoint_when_its_input_ends(cell, tmp_path: Path) -> None:
    process = cell({**BASE, "num_rounds": 100_000})
    assert json.loads(process.stdout.readline())["round"] == 1
    process.stdin.close()
    process.stdout.read()
    assert process.wait(60) == 130
    assert list(tmp_path.glob("run/checkpoints/round-*.json"))


def test_a_file_in_the_current_folder_cannot_replace_a_library_in_a_cell(tmp_path: Path, monkeypatch) -> None:
    for name in ("numpy", "torch", "json"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()\nraise ImportError\n")
    monkeypatch.chdir(tmp_path)
    compare(plan("fedavg", seeds=(1,)), Path("grid"), jobs=1)
    assert not Path("ran").exists()


def _wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def _wait_until_free(folder: Path) -> None:
    """Until no process works on a run; ten minutes are for a hang."""
    for _ in range(60_000):
        try:
            with lock_folder(folder):
                return
        except InvalidInput:
            time.sleep(0.01)
    pytest.fail("the run goes on without its comparison")


# -- what users get wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seeds": "many"}, 'seeds = "many": expected a list'),
        ({"base": []}, "base = []: expected a table of settings"),
        ({"base": {"num_rounds": 0}}, "num_rounds = 0: expected greater than or equal to 1"),
        ({"methods": ["fedavgg"]}, "'fedavgg' is neither a method"),
        ({"seeds": [-1]}, "--seeds: expected a number of seeds"),
        ({"surprise": 1}, "surprise: unknown key; allowed here: base, budget, changes"),
        ({"targets": [7]}, "--targets: expected accuracies"),
    ],
)
def test_a_damaged_plan_is_refused(changes: dict, sentence: str, tmp_path: Path) -> None:
    plan("fedavg").save(tmp_path / "compare.json")
    assert ComparisonGrid.load(tmp_path / "compare.json") == plan("fedavg")
    fields = json.loads((tmp_path / "compare.json").read_text())
    (tmp_path / "compare.json").write_text(json.dumps({**fields, **changes}))
    with pytest.raises(InvalidInput, match="is not the plan of a comparison") as told:
        ComparisonGrid.load(tmp_path / "compare.json")
    assert sentence in str(told.value)


def test_a_folder_that_cannot_be_written_is_refused_in_one_sentence(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"file/grid cannot be made: .*file is a file"):
        compare(plan("fedavg"), tmp_path / "file" / "grid")
    (tmp_path / "grid" / ".lock").mkdir(parents=True)
    with pytest.raises(FederationError, match=r"lock could not be written: Is a directory"):
        compare(plan("fedavg"), tmp_path / "grid")
    with pytest.raises(InvalidInput, match="cannot be made: File name too long"):
        compare(plan("fedavg"), tmp_path / ("x" * 300))
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(InvalidInput, match="new cannot be written: no permission for"):
        compare(plan("fedavg"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fedavgg"], "'fedavgg' is neither a method ("),
        ([], "name at least one method to compare"),
        (["digits"], "name at least one method to compare"),
        (["fedavg", "fedavg"], "a method is named twice: fedavg, fedavg"),
        (["fedavg", "digits", "demo"], "one recipe, file or folder is expected, got digits, demo"),
        (["fedavg", "--seeds", "0"], "--seeds 0: expected a number of seeds from 1 to 100"),
        (["fedavg", "--seeds", ""], "--seeds : expected a number of seeds from 1 to 100"),
        (["fedavg", "--seeds", "1e9"], "--seeds 1e9: expected a number of seeds from 1 to 100"),
        (["fedavg", "--seeds", "530"], "with commas: 1,2,5 are three seeds, 530, is one"),
        (["fedavg", "--seeds", "1e300"], "--seeds 1e300: expected a number of seeds"),
        (["fedavg", "--seeds", "nan"], "--seeds nan: expected whole numbers"),
        (["fedavg", "--seeds", "1,inf"], "--seeds 1,inf: expected whole numbers"),
        (["fedavg", "--seeds", "1,1e300"], "--seeds: expected a number of seeds from 1 to 1,000"),
        (["fedavg", "--seeds", "1.5"], "--seeds 1.5: expected whole numbers"),
        (["fedavg", "--seeds", "-3"], "--seeds -3: expected a number of seeds"),
        (["fedavg", "--targets", "nan"], "--targets: expected accuracies between 0 and 1"),
        (["fedavg", "--over", "seed.x=" + ",".join("1" * 9_999)], "the comparison has 29,997 runs"),
        (["fedavg", "--over", "num_rounds=1979-05-27"], 'num_rounds = "1979-05-27": expected a whole number'),
        (["fedavg", "--over", "num_rounds=" + "9" * 5_000], 'num_rounds = "999'),
        (["fedavg", "--over", "num_rounds=" + "[" * 9_999], 'num_rounds = "[[['),
        (["pacfl", "--set", "pacfl.num_clusters=planted", "--set", "data=1979-05-27"], "data"),
        (["fedavg", "--seeds", "x"], "--seeds x: expected numbers"),
        (["fedavg", "--targets", "60"], "--targets: expected accuracies between 0 and 1"),
        (["fedavg", "--over", "partition.alpha"], "--over partition.alpha: expected key=value,value"),
        (["fedavg", "--set", "ifca.num_clusters=2"], "'ifca' is not among the compared methods"),
        (["fedavg", "--set", "algorithm.num_clusters=2"], "none of the compared methods has 'num_clusters'"),
        (["fedavg", "--set", "algorithm.name=ifca"], "methods are named as arguments of compare"),
        (["pacfl", "--set", "pacfl.num_clusters=0"], "num_clusters"),
        (["pacfl", "--set", "pacfl.nonsense=1"], "'nonsense' is unknown: 'pacfl' has"),
        (["fedavg", "--set", "seed=3"], "use --seeds"),
        (["fedavg", "--metric", "loss"], "--metric loss: choose one of accuracy, balanced_accuracy"),
        (["fedavg", "--set", "training.lr=-1"], "training.lr"),
        (["fedavg", "--set", "model=nonsense"], "model 'nonsense' is unknown"),
        (["--folder", "nowhere"], "is not the plan of a comparison"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_two(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["feddag", "compare", *words])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert sentence in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())  # nothing was started
