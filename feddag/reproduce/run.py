# SPDX-License-Identifier: Apache-2.0
"""Compute a table of the paper; the same command in the same folder goes on where it was stopped."""

import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from feddag.compare.cells import outcome_of, refuse_failures, run_cells, table_folder
from feddag.core.errors import FederationError, Interrupted
from feddag.core.files import write_durably
from feddag.reporting.tables.comparison import Outcome
from feddag.reporting.terminal.board import CompareBoard
from feddag.reproduce.plan import Plan
from feddag.reproduce.report import Found, write_report
from feddag.reproduce.sweep import sweep


def reproduce(plan: Plan, folder: Path, *, jobs: int = 0, board: CompareBoard | None = None) -> Found:
    """Run what is not finished, write the tables, and return what was found."""
    board = board or CompareBoard(Console(), "accuracy", quiet=True)
    with table_folder(folder):
        if plan.table.kind == "thresholds":
            failures, found = _sweep_all(plan, folder)
            write_report(plan, found, folder)
        else:
            try:
                failures = _run_all(plan, folder, jobs, board)
            finally:  # a table that was stopped shows what it has
                found = collect(plan, folder)
                write_report(plan, found, folder)
    runs = sum(len(cells) for cells in plan.cells.values())
    refuse_failures(failures, runs, folder)
    return found


def _run_all(plan: Plan, folder: Path, jobs: int, board: CompareBoard) -> dict[str, str]:
    """Seed by seed, so that a table that is stopped early has complete seeds."""
    named = {
        cell.name: (row, column, cell)
        for i in range(len(plan.seeds))
        for (row, column), cells in plan.cells.items()
        for cell in cells[i : i + 1]
    }
    try:
        return run_cells(named, folder, jobs, board)
    except Interrupted:
        raise Interrupted(f"stopped; the same command goes on in {folder}") from None


def collect(plan: Plan, folder: Path) -> Found:
    """All finished cells of a plan."""
    outcomes: dict[tuple[str, str], dict[int, Outcome]] = {}
    scores: dict[tuple[str, str], dict[int, float]] = {}
    part, when = plan.table.score.split(".")
    for place, cells in plan.cells.items():
        for cell in cells:
            if not cell.finished(folder):
                continue
            seed = cell.experiment.seed
            outcomes.setdefault(place, {})[seed] = replace(
                outcome_of(cell, folder), method=place[0], setting=place[1]
            )
            result = json.loads((folder / "cells" / cell.name / "result.json").read_text())
            value = ((result.get(part) or {}).get(when) or {}).get("accuracy")
            if value is not None:
                scores.setdefault(place, {})[seed] = 100 * value
    return Found(scores, outcomes)


def _sweep_all(plan: Plan, folder: Path) -> tuple[dict[str, str], Found]:
    """Thresholds: every dataset and seed once; columns come in pairs of clusters and loss."""
    scores: dict[tuple[str, str], dict[int, float]] = {}
    failures: dict[str, str] = {}
    thresholds = [float(name) for name in plan.table.published]
    (row,) = plan.rows
    for column in plan.columns:
        for cell in plan.cells.get((row.name, column.name), ()):
            place = folder / "cells" / cell.name
            try:
                if not (place / "sweep.json").is_file():
                    found = sweep(cell.experiment, thresholds, place)
                    write_durably(place / "sweep.json", json.dumps(found).encode())
            except FederationError as error:
                failures[cell.name] = str(error)
                continue
            which = 0 if column.name.endswith(" clusters") else 1
            for threshold, values in json.loads((place / "sweep.json").read_text()).items():
                scores.setdefault((threshold, column.name), {})[cell.experiment.seed] = values[which]
    return failures, Found(scores, {})
