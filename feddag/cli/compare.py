# SPDX-License-Identifier: Apache-2.0
"""The command `feddag compare`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddag.cli.options import terminal

if TYPE_CHECKING:
    from feddag.compare.grid import ComparisonGrid

MANY_SEEDS = 100  # a larger number is a seed whose comma was forgotten


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD... [RECIPE|FILE|FOLDER]",
            help="Methods, such as fedavg, feddag[paper], feddag*; the others are compared with the first.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 3, or 1,2,5.")] = "3",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="A setting; ifca.num_clusters=5 holds for one method."
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="Compare in several settings, e.g. partition.alpha=0.25,1"),
    ] = None,
    targets: Annotated[str, typer.Option(help="Accuracies to reach, e.g. 0.6,0.7")] = "",
    metric: Annotated[
        str, typer.Option(help="accuracy, balanced_accuracy or proportional_accuracy.")
    ] = "accuracy",
    budget: Annotated[str, typer.Option(help="What is equal: rounds, compute or bytes.")] = "rounds",
    tune: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2", help="Values from which validation chooses, for every method."),
    ] = None,
    tuning_seeds: Annotated[str, typer.Option(help="Seeds for --tune, which are not reported.")] = "901,902",
    folder: Annotated[
        Path | None, typer.Option(help="Comparison folder; alone: go on with the comparison there.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0: one per core.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result's folder alone.")] = False,
) -> None:
    """Compare methods on the same data, cohorts and seeds; resumable; tables as Markdown, CSV, LaTeX, PNG."""
    from feddag.compare.grid import ComparisonGrid

    if not names and folder is not None:
        grid = ComparisonGrid.load(folder / "compare.json")
    else:
        methods, base = _base(names or [])
        grid = ComparisonGrid(
            base=base,
            methods=tuple(methods),
            seeds=_seeds(seeds, int(base.get("seed", 1))),
            changes=tuple(set_ or ()),
            over=tuple(over or ()),
            targets=tuple(_numbers(targets, "--targets")),
            metric=metric,
            budget=budget,
            tune=tuple(tune or ()),
            tuning_seeds=_seeds(tuning_seeds, 901) if tune else (),
        )
    _run(grid, folder, jobs, quiet)


def _run(grid: "ComparisonGrid", folder: Path | None, jobs: int, quiet: bool) -> None:
    """Run a comparison, or go on with it; show its tables and where they are."""
    from feddag.compare.run import compare as run_comparison
    from feddag.reporting.terminal.board import CompareBoard, comparison_tables
    from feddag.reporting.terminal.console import say

    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = folder or Path("runs") / "compare" / f"{stamp}-{grid.base.get('name', 'run')}"
    console = terminal()
    with CompareBoard(console, grid.metric, quiet) as board:
        lines = run_comparison(grid, folder, jobs=jobs, board=board)
    if not quiet:
        for table in comparison_tables(lines, grid.methods[0], grid.metric, grid.targets):
            console.print(table)
        if (folder / "index.html").is_file():
            say(console, f"page: {folder / 'index.html'}")
    say(console, f"results in {folder}")


def _base(names: list[str]) -> tuple[list[str], dict]:
    """The methods among the words, and the settings that the one other word means (else the demo's)."""
    from feddag.algorithms import ALGORITHMS
    from feddag.compare.rows import is_row
    from feddag.core.errors import InvalidInput
    from feddag.experiment.recipes import plain_settings
    from feddag.experiment.sentences import shown_text
    from feddag.experiment.settings import Experiment

    methods = [name for name in names if is_row(name)]
    others = [name for name in names if not is_row(name)] or ["demo"]
    settings = [plain_settings(name, f"a method ({', '.join(ALGORITHMS)}), ") for name in others]
    if len(others) > 1:
        raise InvalidInput(f"one recipe, file or folder is expected, got {shown_text(', '.join(others))}")
    Experiment.from_settings(settings[0], others[0])  # the message names the file that is wrong
    return methods, settings[0]


def _seeds(text: str, first: int) -> tuple[int, ...]:
    """`3` means three seeds from the first on, `1,2,5` these seeds, and `530,` this one."""
    from feddag.core.errors import InvalidInput
    from feddag.experiment.sentences import shown_text

    numbers = _numbers(text, "--seeds")
    if any(not number.is_integer() for number in numbers):  # neither fractions nor NaN and infinity
        raise InvalidInput(f"--seeds {shown_text(text)}: expected whole numbers")
    if "," in text:
        return tuple(int(number) for number in numbers)
    if len(numbers) != 1 or not 1 <= numbers[0] <= MANY_SEEDS:
        raise InvalidInput(
            f"--seeds {shown_text(text)}: expected a number of seeds from 1 to {MANY_SEEDS}, "
            "or seeds with commas: 1,2,5 are three seeds, 530, is one"
        )
    return tuple(range(first, first + int(numbers[0])))


def _numbers(text: str, option: str) -> list[float]:
    from feddag.core.errors import InvalidInput
    from feddag.experiment.sentences import shown_text

    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InvalidInput(
            f"{option} {shown_text(text)}: expected numbers with commas between them"
        ) from None
