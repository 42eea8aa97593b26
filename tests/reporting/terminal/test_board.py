# SPDX-License-Identifier: Apache-2.0
"""What a person sees during a comparison."""

from types import SimpleNamespace

import pytest

from feddag.reporting.tables.comparison import summarise
from feddag.reporting.terminal.board import CompareBoard, comparison_tables
from tests.reporting.toys import ALL_HOSTILE, HOSTILE, outcome, recorded, recording_console


def board_of(console, names: dict[str, tuple[str, str, int]], quiet: bool = False) -> CompareBoard:
    board = CompareBoard(console, "accuracy", quiet)
    board.expect(
        {name: (m, s, SimpleNamespace(seed=seed, num_rounds=9)) for name, (m, s, seed) in names.items()}
    )
    return board


CELLS = {"x": ("fedavg", "", 1), "y": ("fedavg", "", 2), "z": ("ifca", "", 1)}


def printed(table) -> str:
    console = recording_console(width=200)
    console.print(table)
    return recorded(console)


def test_finished_and_failed_runs_are_lines_outside_a_terminal() -> None:
    console = recording_console()
    with board_of(console, CELLS) as board:
        board.finished("x", outcome("fedavg", 1, 0.5))
        board.failed("z", "no disk")
    assert (
        recorded(console)
        == "[1/3] fedavg seed 1: 50.00%, 4.0 MB, 2.0 s\n[2/3] ifca seed 1: failed: no disk\n"
    )


def test_quiet_shows_failures_alone() -> None:
    console = recording_console()
    with board_of(console, CELLS, quiet=True) as board:
        board.finished("x", outcome("fedavg", 1, 0.5))
        board.failed("z", "no disk")
    assert recorded(console) == "[2/3] ifca seed 1: failed: no disk\n"


def test_the_table_shows_means_rounds_and_failures() -> None:
    board = board_of(recording_console(), CELLS)
    board.finished("x", outcome("fedavg", 1, 0.5))
    board.progress("y", {"round": 3, "scores": {"accuracy": 0.25}})
    board.progress("y", {"round": 4})
    board.failed("z", "no disk")
    text = printed(board.table())
    assert "2 of 3 runs done" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "fedavg 1/2 50.00% seed 2: round 4/9 25.00%" in rows
    assert "ifca 0/1 – seed 1 failed" in rows


def test_a_single_run_is_not_called_runs() -> None:
    assert "0 of 1 run done" in printed(board_of(recording_console(), {"x": CELLS["x"]}).table())


def test_a_terminal_gets_a_live_table_instead_of_lines() -> None:
    console = recording_console(terminal=True)
    with board_of(console, CELLS) as board:
        board.finished("x", outcome("fedavg", 1, 0.5))
    text = recorded(console)
    assert "1 of 3 runs done" in text
    assert "[1/3]" not in text


@pytest.mark.parametrize("name", [*HOSTILE, ALL_HOSTILE])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_settings_and_reasons_break_nothing(name: str, encoding: str) -> None:
    console = recording_console(encoding, width=300)
    board = board_of(console, {"x": ("m", name, 1)})
    board.failed("x", name)
    console.print(board.table())
    lines = summarise([outcome("m", 1, 0.5, setting=name)], ["m"], [name], targets=(0.5,))
    for table in comparison_tables(lines, "m", "accuracy", (0.5,)):
        console.print(table)
    visible = name.replace("\n", "\\n")
    visible = visible.replace("é", "\\xe9") if encoding == "ascii" else visible
    text = recorded(console)
    assert f"[1/1] m {visible} seed 1: failed: {visible}\n" in text
    assert text.count(visible) >= 4  # twice in the line, once per table


def test_the_result_has_one_table_per_setting_with_the_columns_that_fit() -> None:
    runs = [outcome(m, 1, a, setting=s) for m, a in (("a", 0.5), ("b", 0.75)) for s in ("x", "y")]
    lines = summarise(runs, ["a", "b"], ["x", "y"], targets=(0.6,))
    tables = comparison_tables(lines, "a", "accuracy", (0.6,))
    assert [str(table.title) for table in tables] == ["x", "y"]
    heads = [str(column.header) for column in tables[0].columns]
    assert heads == [
        "method", "accuracy %", "10th percentile %", "clusters", "vs a", "rank",
        "after one local round %", "vs a, after", "client-epochs", "MB", "s", "rounds to 60%",
        "MB to 60%",
    ]  # fmt: skip
    assert "+25.00" in printed(tables[0])
