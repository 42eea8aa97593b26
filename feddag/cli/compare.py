# SPDX-License-Identifier: Apache-2.0
"""The command `feddag compare`."""

import time
from pathlib import Path
from typing import Annotated

import typer


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD... [RECIPE|FILE]", help="Methods, the first is what others are held against."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 3, or 1,2,5.")] = "3",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="A setting; ifca.num_clusters=5 is for one method."
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="Compare in several settings, e.g. partition.alpha=0.25,1"),
    ] = None,
    targets: Annotated[str, typer.Option(help="Accuracies to reach, e.g. 0.6,0.7")] = "",
    metric: Annotated[str, typer.Option(help="accuracy or balanced_accuracy.")] = "accuracy",
    folder: Annotated[
        Path | None, typer.Option(help="Comparison folder; alone: go on with the comparison there.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one per core.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result's folder alone.")] = False,
) -> None:
    """Compare methods on the same data, cohorts and seeds; resumable; tables as Markdown, CSV, LaTeX, PNG."""
    from rich.console import Console

    from feddag.compare.grid import Plan
    from feddag.compare.grid import compare as run_comparison
    from feddag.reporting.terminal.board import CompareBoard, comparison_tables

    if not names and folder is not None:
        plan = Plan.load(folder / "compare.json")
    else:
        methods, base = _base(names or [])
        plan = Plan(
            base=base,
            methods=tuple(methods),
            seeds=_seeds(seeds, int(base.get("seed", 1))),
            changes=tuple(set_ or ()),
            over=tuple(over or ()),
            targets=tuple(_numbers(targets, "--targets")),
            metric=metric,
        )
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = folder or Path("runs") / "compare" / f"{stamp}-{plan.base.get('name', 'run')}"
    console = Console()
    with CompareBoard(console, plan.metric, quiet) as board:
        lines = run_comparison(plan, folder, jobs=jobs, board=board)
    if not quiet:
        for table in comparison_tables(lines, plan.methods[0], plan.metric, plan.targets):
            console.print(table)
    console.print(f"results in {folder}", highlight=False, soft_wrap=True)


def _base(names: list[str]) -> tuple[list[str], dict]:
    """Methods among the words, and the settings of the one recipe or file (else the demo's)."""
    from feddag.algorithms import ALGORITHMS
    from feddag.core.errors import InvalidInput
    from feddag.experiment.overrides import read_settings
    from feddag.experiment.recipes import RECIPES
    from feddag.experiment.settings import Experiment

    methods = [name for name in names if name in ALGORITHMS]
    others = [name for name in names if name not in ALGORITHMS]
    for name in others:
        if name not in RECIPES and not Path(name).is_file():
            raise InvalidInput(
                f"'{name}' is neither a method ({', '.join(ALGORITHMS)}), nor a recipe "
                f"({', '.join(RECIPES)}), nor a file"
            )
    if len(others) > 1:
        raise InvalidInput(f"one recipe or file is expected, got {', '.join(others)}")
    if others and others[0] not in RECIPES:
        settings = read_settings(Path(others[0]))
        Experiment.from_settings(settings, others[0])  # a fault of the file is told with its name
        return methods, settings
    return methods, RECIPES[others[0] if others else "demo"]().settings()


def _seeds(text: str, first: int) -> tuple[int, ...]:
    numbers = _numbers(text, "--seeds")
    if any(number != int(number) for number in numbers):
        from feddag.core.errors import InvalidInput

        raise InvalidInput(f"--seeds {text}: expected whole numbers")
    if "," in text:
        return tuple(int(number) for number in numbers)
    return tuple(range(first, first + int(numbers[0]))) if numbers else ()


def _numbers(text: str, option: str) -> list[float]:
    from feddag.core.errors import InvalidInput

    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidInput(f"{option} {text}: expected numbers with commas between them") from None
