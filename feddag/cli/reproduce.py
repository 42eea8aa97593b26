# SPDX-License-Identifier: Apache-2.0
"""The command `feddag reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import terminal


def reproduce(
    table: Annotated[str, typer.Argument(metavar="[TABLE]", help="For example T4; --list shows all.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Show all tables and figures of the paper.")] = False,
    rows: Annotated[str, typer.Option(help="Rows, such as FedAvg,IFCA,FedDAG; default: all.")] = "",
    cols: Annotated[str, typer.Option(help="Columns, such as FMNIST; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 3, or 400,401.")] = "",
    scale: Annotated[str, typer.Option(help="smoke, small, or paper (the exact setting).")] = "small",
    set_: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting for all cells.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Default: runs/reproduce/TABLE-SCALE.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one per core.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result's folder alone.")] = False,
) -> None:
    """Compute a table of the paper and print ours beside the published values; resumable."""
    from feddag.cli.compare import _seeds as read_seeds
    from feddag.core.errors import InvalidInput
    from feddag.experiment.sentences import shown_text
    from feddag.reporting.terminal.console import say
    from feddag.reproduce.tables import chosen, scales, table_of

    console = terminal()
    if list_ or not table:
        console.print(_list_tables())
        return
    wanted, known = table_of(table), scales()
    if scale not in known:
        raise InvalidInput(f"--scale {shown_text(scale)}: choose one of {', '.join(known)}")
    size = known[scale]
    numbers = read_seeds(seeds or str(size.seeds), 400)
    names = chosen(rows, [r.name for r in wanted.rows], "--rows") if wanted.kind == "accuracy" else None
    columns = chosen(cols, [c.name for c in wanted.columns], "--cols")

    from feddag.reporting.terminal.board import CompareBoard
    from feddag.reproduce.plan import make_plan
    from feddag.reproduce.run import reproduce as run_plan

    plan = make_plan(
        wanted,
        size,
        [r for r in wanted.rows if names is None or r.name in names],
        [c for c in wanted.columns if c.name in columns],
        numbers,
        tuple(set_ or ()),
    )
    if not quiet:
        for column, why in plan.missing.items():
            say(console, f"missing data for {column}: {why}")
    if not plan.cells:
        raise InvalidInput(f"nothing of {wanted.id} can be computed: {next(iter(plan.missing.values()))}")
    folder = folder or Path("runs") / "reproduce" / f"{wanted.id}-{size.name}"
    with CompareBoard(console, "accuracy", quiet) as board:
        run_plan(plan, folder, jobs=jobs, board=board)
    if not quiet:
        console.print((folder / "table.md").read_text(), markup=False, highlight=False, soft_wrap=True)
    say(console, f"results in {folder}")


def _list_tables():  # type: ignore[no-untyped-def]
    from feddag.reporting.terminal.console import TextTable
    from feddag.reproduce.tables import scales, tables

    shown = TextTable("Tables and figures of the paper")
    for heading in ("table", "what", "rows", "columns"):
        shown.heading(heading)
    for table in tables().values():
        names = ", ".join(c.name for c in table.columns)
        shown.line(table.id, table.title, str(len(table.published)), names)
    shown.note("; ".join(f"--scale {s.name}: {s.title}" for s in scales().values()))
    return shown
