# SPDX-License-Identifier: Apache-2.0
"""The command line: `feddag run | resume | compare | list | show`. Heavy imports wait for their command."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from feddag.cli.compare import compare
from feddag.cli.data import app as data_app

app = typer.Typer(
    name="feddag",
    help="Clustered federated learning: FedDAG and the methods it is compared with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting, e.g. --set training.lr=0.1"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and the result's folder alone.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from feddag import __version__

        typer.echo(f"feddag {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Clustered federated learning: FedDAG and the methods it is compared with."""


@app.command()
def run(
    what: Annotated[
        str, typer.Argument(metavar="[RECIPE|FILE]", help="A recipe's name or a .toml file.")
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
    from feddag.runs.simulate import build
    from feddag.runs.simulate import run as run_experiment

    experiment = load_experiment(what, set_ or [])
    if dry_run:
        build(experiment)
        typer.echo(json.dumps(experiment.settings(), indent=1))
        return
    with _watcher(experiment.num_rounds, quiet) as watch:
        run_experiment(experiment, root=root, folder=folder, watch=watch)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped or killed, to the same result as if it never had been."""
    from feddag.experiment.settings import Experiment
    from feddag.runs.simulate import resume as resume_run

    rounds = 0
    if (folder / "experiment.json").is_file():
        rounds = Experiment.from_file(folder / "experiment.json").num_rounds
    with _watcher(rounds, quiet) as watch:
        resume_run(folder, watch=watch)


app.command()(compare)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="One of the tables below; all if left out.")] = "all",
) -> None:
    """List algorithms, datasets, partitions, models, recipes, engines, settings, with a line of help each."""
    from rich.console import Console
    from rich.table import Table

    from feddag.core.errors import InvalidInput
    from feddag.experiment.listing import tables

    everything = tables()
    if kind != "all" and kind not in everything:
        raise InvalidInput(f"there is no table '{kind}': choose all, {', '.join(everything)}")
    console = Console()
    for name, rows in everything.items():
        if kind in ("all", name):
            table = Table(title=name, title_justify="left", show_header=False, box=None, padding=(0, 2))
            table.add_column(no_wrap=True, style="bold")
            for row in rows:
                table.add_row(*row)
            console.print(table, "")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    json_: Annotated[bool, typer.Option("--json", help="Print result.json as it is.")] = False,
) -> None:
    """Show what a run gave, or where it stands."""
    from rich.console import Console

    from feddag.reporting.terminal.show import show_run

    if json_ and (folder / "result.json").is_file():
        typer.echo((folder / "result.json").read_text())
        return
    show_run(folder, Console())


@app.command()
def cluster(
    what: Annotated[
        str, typer.Argument(metavar="[RECIPE|FILE|FOLDER]", help="A recipe, a .toml file, or a run's folder.")
    ] = "demo",
    set_: Overrides = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the page goes; default clustering/<name>.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the clustering as JSON alone.")] = False,
) -> None:
    """Find out which clients are alike, and why, before any federated training; writes a page to look at."""
    from feddag.runs.simulate import cluster as find_clusters

    if (Path(what) / "experiment.json").is_file():
        summary = find_clusters(Path(what), folder)
    else:
        experiment = load_experiment(what, set_ or [])
        if experiment.algorithm.name != "feddag" and not any("algorithm" in s for s in set_ or []):
            experiment = experiment.with_overrides(["algorithm=feddag"])
        with _watcher(1, quiet=json_) as watch:
            summary = find_clusters(experiment, folder, watch=watch)
    if json_:
        typer.echo(json.dumps(summary, indent=1))
        return
    typer.echo(f"{summary['num_clusters']} clusters of {', '.join(map(str, summary['sizes']))} clients")
    if "ari" in summary:
        typer.echo(
            f"{summary['planted_groups']} groups were planted; adjusted Rand index {summary['ari']:.3f}"
        )
    typer.echo(f"why: {summary['page']}")


def load_experiment(what: str, overrides: list[str]) -> Any:
    """An experiment from a recipe's name or a file, with overrides applied."""
    from feddag.core.errors import InvalidInput
    from feddag.experiment.recipes import RECIPES
    from feddag.experiment.settings import Experiment

    if what in RECIPES:
        return RECIPES[what]().with_overrides(overrides)
    if Path(what).is_file():
        return Experiment.from_file(Path(what), overrides)
    raise InvalidInput(f"'{what}' is neither a recipe ({', '.join(RECIPES)}) nor a file")


def _watcher(rounds: int, quiet: bool) -> Any:
    from rich.console import Console

    from feddag.reporting.terminal.progress import Watcher

    return Watcher(Console(), rounds, quiet)


def main() -> None:
    """Entry point: one sentence and exit code 2 for errors, 130 for Ctrl-C; nobody sees a traceback."""
    from feddag.core.errors import FederationError, Interrupted

    # The installed command does not look for modules where one stands, `python -m feddag` does: for a user's
    # own network both should. Last, so that no file there can stand for a library.
    if "" not in sys.path:
        sys.path.append("")
    try:
        app(standalone_mode=False)
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        sys.exit(130)
    except (KeyboardInterrupt, typer.Abort):
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except FederationError as error:
        print(f"feddag: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except Exception as error:
        # Click's usage errors carry their own text and exit code 2.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            # Typer and Click both add "Did you mean …?"; help for somebody who typed nothing has no text.
            sentences = dict.fromkeys(re.split(r"(?<=[.?]) ", error.format_message()))
            if text := " ".join(sentences):
                print(f"feddag: {text}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise
