# SPDX-License-Identifier: Apache-2.0
"""The runs behind a table of the paper: a cell of `feddag compare` for every row, column and seed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from feddag.compare.grid import Cell, ComparisonGrid
from feddag.core.errors import FederationError
from feddag.experiment.overrides import Settings, override
from feddag.experiment.settings import Experiment
from feddag.reproduce.tables import Column, Row, Scale, Table
from feddag.runs.simulate import build


@dataclass(frozen=True)
class Plan:
    """What is computed of a table, and what cannot be."""

    table: Table
    scale: Scale
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    changes: tuple[str, ...] = ()  # --set: the last word
    cells: dict[tuple[str, str], list[Cell]] = field(default_factory=dict)  # (row, column) → a cell per seed
    missing: dict[str, str] = field(default_factory=dict)  # column → why its data are not there
    sources: dict[str, str] = field(default_factory=dict)  # column → what the data are


def make_plan(
    table: Table,
    scale: Scale,
    rows: Sequence[Row],
    columns: Sequence[Column],
    seeds: Sequence[int],
    changes: Sequence[str] = (),
) -> Plan:
    """Find data and settings of every cell; columns without their data stay empty, nothing replaces them."""
    plan = Plan(table, scale, tuple(rows), tuple(columns), tuple(seeds), tuple(changes))
    for column in columns:
        base = settings_of(table, scale, column, changes)
        try:
            source = build(Experiment.from_settings(base)).federation.source
            plan.sources[column.name] = ", ".join(
                f"{k} {v}" for k, v in vars(source).items() if v not in ("", None)
            )
            for row in rows:
                grid = ComparisonGrid(base, methods=(row.row,), seeds=tuple(seeds), changes=row.changes)
                plan.cells[row.name, column.name] = list(grid.cells)
        except FederationError as error:
            plan.missing[column.name] = str(error)
    return plan


def settings_of(table: Table, scale: Scale, column: Column, changes: Sequence[str] = ()) -> Settings:
    """Settings on top of each other: scale, table, column, what the scale keeps, and the user's own."""
    kept = [c for c in scale.changes if c.partition("=")[0] in scale.keep]
    name = f"name={table.id.lower()}-{scale.name}"
    return override({}, [name, *scale.changes, *table.changes, *column.changes, *kept, *changes])
