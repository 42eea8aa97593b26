# SPDX-License-Identifier: Apache-2.0
"""The commands `feddag run`, `resume` and `show`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import Overrides, Quiet, terminal, watcher


def run(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[RECIPE|FILE|FOLDER]", help="A recipe, a .toml file, or a folder with your own data."
        ),
    ] = "demo",
    set_: Overrides = None,
    root: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    folder: Annotated[Path | None, typer.Option(help="Exact run folder; must not exist yet.")] = None,
    quiet: Quiet = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print all settings, stop.")
    ] = False,
) -> None:
    """Run an experiment; without arguments a small demo that needs no download."""
    from feddag.experiment.recipes import resolve
    from feddag.runs.simulate import build
    from feddag.runs.simulate import run as run_experiment

    experiment = resolve(what, set_ or [])
    if dry_run:
        build(experiment)
        typer.echo(json.dumps(experiment.settings(), indent=1))
        return
    with watcher(experiment.num_rounds, quiet) as watch:
        run_experiment(experiment, root=root, folder=folder, watch=watch)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped or killed, to the same result as if it never had been."""
    from feddag.runs.run import load_run
    from feddag.runs.simulate import resume as resume_run

    with watcher(load_run(folder).experiment.num_rounds, quiet) as watch:
        resume_run(folder, watch=watch)


def show(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    json_: Annotated[bool, typer.Option("--json", help="Print result.json as it is.")] = False,
) -> None:
    """Show what a run gave, or where it stands."""
    from feddag.reporting.terminal.show import show_run
    from feddag.runs.run import load_run

    if json_:
        typer.echo(json.dumps(load_run(folder).result, indent=1))
        return
    show_run(folder, terminal())
