# SPDX-License-Identifier: Apache-2.0
"""The command `feddag report`."""

from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import terminal


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, finished or not; several side by side."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The page; default RUN/report.html, for several runs report.html."
        ),
    ] = None,
) -> None:
    """Write one page about one run, or several runs side by side; it opens without network."""
    from feddag.reporting.terminal.console import say
    from feddag.runs.report import write_report_of

    path = output or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
    write_report_of(folders, path)
    say(terminal(), f"report in {path}")
