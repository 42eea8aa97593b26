# SPDX-License-Identifier: Apache-2.0
"""Run a comparison and report it. Finished cells are not run again, killed ones resume."""

import json
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from feddag.compare.cells import outcome_of, refuse_failures, run_cells, table_folder
from feddag.compare.grid import Cell, ComparisonGrid
from feddag.compare.tune import picked, tuning_cells, validation_score, words
from feddag.core.errors import InvalidInput
from feddag.core.files import write_durably
from feddag.core.text import plural
from feddag.reporting.figures.curves import draw_curves
from feddag.reporting.pages.comparison import comparison_html
from feddag.reporting.tables.comparison import BUDGETS, Line, at_budget, summarise
from feddag.reporting.tables.comparison_text import latex, markdown, outcomes_csv, summary_csv
from feddag.reporting.terminal.board import CompareBoard
from feddag.runs.simulate import build


def compare(
    grid: ComparisonGrid, folder: Path, *, jobs: int = 0, board: CompareBoard | None = None
) -> list[Line]:
    """Run what is not finished and write the tables; returns the summary, a line per setting and method."""
    board = board or CompareBoard(Console(), grid.metric, quiet=True)
    trials = tuning_cells(grid)
    tuning = tuple(cell for options in trials.values() for runs in options.values() for cell in runs)
    _refuse_unwritable(folder)
    _check_data_and_networks((*grid.cells, *tuning))
    with table_folder(folder):
        grid.save(folder / "compare.json")
        failures = run_cells(_named(tuning), folder, jobs, board) if tuning else {}
        if tuning:
            grid = replace(grid, picked=picked(trials, lambda cell: _validation(cell, folder, grid.metric)))
        cells = grid.cells
        failures |= run_cells(_named(cells), folder, jobs, board)
        lines = report(grid, folder)
    refuse_failures(failures, len(cells) + len(tuning), folder)
    return lines


def _named(cells: tuple[Cell, ...]) -> dict[str, tuple[str, str, Cell]]:
    return {cell.name: (cell.method, cell.setting, cell) for cell in cells}  # equal cells run once


def _validation(cell: Cell, folder: Path, metric: str) -> float | None:
    return validation_score(folder / "cells" / cell.name, metric) if cell.finished(folder) else None


def _refuse_unwritable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, before any data are loaded and without a trace."""
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise InvalidInput(f"the folder {folder} cannot be made: {error.strerror}") from None
    if not there.is_dir():
        raise InvalidInput(f"the folder {folder} cannot be made: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidInput(f"the folder {folder} cannot be written: no permission for {there}")


def _check_data_and_networks(cells: tuple[Cell, ...]) -> None:
    """Find what is wrong with data and networks before anything runs; equal ones are checked once."""
    checked: set[str] = set()
    for cell in cells:
        settings = cell.experiment.settings()
        keys = ("data", "partition", "num_clients", "model", "fraction_train")
        identity = json.dumps([settings[key] for key in keys])
        if identity not in checked:
            checked.add(identity)
            build(cell.experiment)


def report(grid: ComparisonGrid, folder: Path) -> list[Line]:
    """Write index.html, comparison.md, .tex, .csv, summary.csv and curves.png from the finished cells."""
    outcomes = [outcome_of(cell, folder) for cell in grid.cells if cell.finished(folder)]
    outcomes = at_budget(outcomes, grid.budget, grid.methods[0])
    lines = summarise(outcomes, grid.methods, grid.settings, grid.metric, grid.targets)
    base, first = grid.cells[0].experiment, grid.methods[0]
    clients = plural(base.num_clients, "client") if base.num_clients else "all clients"
    title = f"{base.data.name}, {clients}, {plural(base.num_rounds, 'round')}"
    notes = [BUDGETS[grid.budget].format(first=first)]
    if grid.tune:
        seeds = ", ".join(map(str, grid.tuning_seeds))
        notes.append(f"Tuned by validation on seeds {seeds}, which no table shows. {words(grid.picked)}.")
    files = {
        "comparison.md": markdown(lines, first, grid.metric, grid.targets, title, notes),
        "comparison.tex": latex(lines, first, grid.metric, grid.targets),
        "comparison.csv": outcomes_csv(outcomes),
        "summary.csv": summary_csv(lines, grid.targets),
    }
    for name, text in files.items():
        write_durably(folder / name, text.encode())
    if outcomes:
        page = comparison_html(lines, outcomes, grid.metric, grid.targets, title)
        write_durably(folder / "index.html", page.encode())
        draw_curves(outcomes, grid.methods, grid.settings, folder / "curves.png", grid.metric)
    return lines
