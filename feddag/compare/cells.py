# SPDX-License-Identifier: Apache-2.0
"""The cells of a table in one folder: lock it, run what is not finished, read what is."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from feddag.compare.grid import Cell
from feddag.compare.pool import run_side_by_side
from feddag.core.errors import FederationError, InvalidInput
from feddag.core.files import lock_folder
from feddag.reporting.tables.comparison import Outcome, read_outcome
from feddag.reporting.terminal.board import CompareBoard


@contextmanager
def table_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a table and keep everybody else out of it."""
    with ExitStack() as stack:
        try:
            (folder / "cells").mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock_folder(folder))
        except OSError as error:
            raise InvalidInput(f"the folder {folder} cannot be written: {error.strerror}") from None
        yield


def run_cells(
    named: Mapping[str, tuple[str, str, Cell]], folder: Path, jobs: int, board: CompareBoard
) -> dict[str, str]:
    """Run the cells (name → row, column, cell) that are not finished; returns failed ones with the reason."""
    board.expect({name: (row, column, cell.experiment) for name, (row, column, cell) in named.items()})
    waiting = {}
    for name, (_, _, cell) in named.items():
        if cell.finished(folder):
            board.finished(name, outcome_of(cell, folder))
        else:
            waiting[name] = cell
    return run_side_by_side(
        {name: cell.experiment for name, cell in waiting.items()},
        folder,
        jobs,
        board,
        read=lambda name: outcome_of(waiting[name], folder),
    )


def outcome_of(cell: Cell, folder: Path) -> Outcome:
    """The result of a finished cell."""
    return read_outcome(folder / "cells" / cell.name, cell.method, cell.setting, cell.experiment.seed)


def refuse_failures(failures: Mapping[str, str], runs: int, folder: Path) -> None:
    """End with a sentence that names the first run that failed, if one did."""
    if failures:
        name, reason = next(iter(failures.items()))
        raise FederationError(
            f"{len(failures)} of {runs} runs failed, the first is {name}: {reason}; "
            f"the tables in {folder} hold the others"
        )
