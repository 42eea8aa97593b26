# SPDX-License-Identifier: Apache-2.0
"""The command line. Heavy imports wait for their command, so that help and mistakes are fast."""

import contextlib
import gc
import os
import re
import sys
from typing import Annotated

import typer

from feddag.cli.check import check_algorithm
from feddag.cli.cluster import cluster
from feddag.cli.compare import compare
from feddag.cli.dashboard import dashboard
from feddag.cli.data import app as data_app
from feddag.cli.deploy import app as deploy_app
from feddag.cli.models import export, predict
from feddag.cli.newcomer import newcomer
from feddag.cli.options import terminal
from feddag.cli.privacy import app as privacy_app
from feddag.cli.report import report
from feddag.cli.reproduce import reproduce
from feddag.cli.run import resume, run, show
from feddag.cli.scenario import app as scenario_app

NEW_OBJECTS = 50_000  # before the next search for garbage

app = typer.Typer(
    name="feddag",
    help="Clustered federated learning: FedDAG and the methods it is compared with.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = (
    run,
    resume,
    cluster,
    compare,
    reproduce,
    show,
    report,
    dashboard,
    predict,
    export,
    newcomer,
)
for command in COMMANDS:
    app.command()(command)
app.command("check-algorithm")(check_algorithm)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")
app.add_typer(scenario_app, name="scenario")
app.add_typer(privacy_app, name="privacy")


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


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="A table (algorithms, settings, …) or a method; all if left out.")
    ] = "all",
) -> None:
    """List algorithms, datasets, partitions, models, recipes, scenarios, settings, or a method's settings."""
    from feddag.experiment.listing import table_of, tables
    from feddag.reporting.terminal.console import TextTable

    console = terminal()
    for name, rows in (tables() if kind == "all" else {kind: table_of(kind)}).items():
        table = TextTable(name, show_header=False, box=None, padding=(0, 2))
        for _ in rows[0] if rows else ():
            table.heading("")
        for row in rows:
            table.line(*row)
        console.print(table)
        console.print()


def main() -> None:
    """Entry point: one sentence and exit code 2 for errors, 130 for Ctrl-C; nobody sees a traceback."""
    from feddag.core.errors import FederationError, Interrupted

    gc.set_threshold(NEW_OBJECTS)  # importing PyTorch makes half a million objects, none of them garbage
    # The installed command does not look for modules in the current folder, `python -m feddag` does: for a
    # user's own network both should. It comes last, so that no file there can stand for a library.
    sys.path[:] = [p for p in sys.path if p not in ("", os.getcwd())] + [""]
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except Interrupted as stop:
        _complain(str(stop), 130)
    except (KeyboardInterrupt, typer.Abort):
        _complain("stopped", 130)
    except FederationError as error:
        _complain(f"feddag: {error}", 2)
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except OSError as error:
        # The command handles files of its own: what is left is standard output (a closed pipe, a full disk).
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more when it ends
        _complain(f"feddag: {error.filename or 'the output'} cannot be written: {error.strerror or error}", 2)
    except Exception as error:
        # Click's usage errors carry their own text and exit code 2.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            # Typer and Click both add "Did you mean …?"; help for somebody who typed nothing has no text.
            sentences = dict.fromkeys(re.split(r"(?<=[.?]) ", error.format_message()))
            if text := " ".join(sentences):
                _complain(f"feddag: {text}", error.exit_code)
            sys.exit(error.exit_code)
        raise
    sys.exit(code or 0)


def _complain(text: str, code: int) -> None:
    """Print one line to standard error, in whatever it can encode, and end with this exit code."""
    from feddag.core.text import printable

    text = printable(text)  # a client's error or a folder's name may contain line breaks
    encoding = sys.stderr.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)
    sys.exit(code)
