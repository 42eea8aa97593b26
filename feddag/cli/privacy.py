# SPDX-License-Identifier: Apache-2.0
"""The commands `feddag privacy plan` and `feddag privacy audit`."""

from typing import Annotated

import typer

from feddag.cli.options import Overrides, terminal

app = typer.Typer(help="What leaves the clients, at which price, and an attack on it.", no_args_is_help=True)


@app.callback()
def about() -> None:
    """What leaves the clients, at which price, and an attack on it."""


@app.command()
def plan(
    what: Annotated[str, typer.Argument(metavar="RECIPE|FILE", help="A recipe or a .toml file.")] = "demo",
    set_: Overrides = None,
) -> None:
    """Print what would leave each client, protected how, and the ε at the end; nothing is run."""
    from feddag.experiment.recipes import resolve
    from feddag.reporting.terminal.console import say
    from feddag.runs.simulate import build

    console = terminal(soft_wrap=True)
    found = build(resolve(what, set_ or [])).privacy_plan()
    if found is None:
        say(console, "privacy.level = 'off': everything leaves as it is; use --set privacy=private")
        return
    for line in found.lines():
        say(console, line)
    for text in found.warnings:
        say(console, f"warning: {text}", style="yellow")
    for text in found.plain()["not_covered"]:
        say(console, f"not covered: {text}")
