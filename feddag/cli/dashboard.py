# SPDX-License-Identifier: Apache-2.0
"""The command `feddag dashboard`."""

from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import terminal


def dashboard(
    root: Annotated[
        Path, typer.Argument(help="The folder with runs; it is searched for run folders.")
    ] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8423,
    host: Annotated[
        str, typer.Option(help="Where to listen; others than this machine need a flag.")
    ] = "127.0.0.1",
    allow_others: Annotated[
        bool, typer.Option("--allow-others", help="Let other machines in, if they know the token.")
    ] = False,
) -> None:
    """Follow running and finished runs on a local page; it only reads."""
    from feddag.reporting.dashboard.serve import serve
    from feddag.reporting.terminal.console import say

    console = terminal()
    serve(root, host, port, allow_others, lambda text: say(console, text))
