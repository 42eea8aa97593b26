# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from typing import Annotated, Any

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting, e.g. --set training.lr=0.1"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and the folder.")]


def watcher(rounds: int, quiet: bool) -> Any:
    """Shows what happens during a run."""
    from rich.console import Console

    from feddag.reporting.terminal.progress import Watcher

    return Watcher(Console(), rounds, quiet)
