# SPDX-License-Identifier: Apache-2.0
"""What several commands share: options, the terminal, the progress of a run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting, e.g. --set training.lr=0.1"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and the folder.")]


def terminal(**options: Any) -> "Console":
    """Standard output; it shows every name as it is, in whatever encoding it has."""
    from rich.console import Console

    from feddag.reporting.terminal.console import safe_console

    return safe_console(Console(**options))


def watcher(rounds: int, quiet: bool) -> Any:
    """Shows what happens during a run."""
    from feddag.reporting.terminal.progress import Watcher

    return Watcher(terminal(), rounds, quiet)
