# SPDX-License-Identifier: Apache-2.0
"""The command `feddag scenario`: what the events of an experiment mean for each client."""

from typing import Annotated

import typer

from feddag.cli.options import Overrides

app = typer.Typer(help="Clients that join, leave and come back.", no_args_is_help=True)

MAX_ROWS, MAX_COLUMNS = 60, 100


@app.callback()
def about() -> None:
    """Clients that join, leave and come back."""


@app.command()
def show(
    what: Annotated[str, typer.Argument(metavar="RECIPE|FILE", help="A recipe or a .toml file.")] = "demo",
    set_: Overrides = None,
) -> None:
    """Draw who is there in which round; refuse in one sentence what is impossible."""
    from rich.console import Console

    from feddag.core.text import plural
    from feddag.experiment.recipes import resolve
    from feddag.reporting.terminal.console import safe_console, say
    from feddag.runs.simulate import build

    simulation = build(resolve(what, set_ or []))
    presence, rounds = simulation.presence, simulation.experiment.num_rounds
    shown = sorted({1 + i * rounds // MAX_COLUMNS for i in range(MAX_COLUMNS)} if rounds > MAX_COLUMNS else
                   range(1, rounds + 1))  # fmt: skip
    there = {round_: set(presence.present(round_)) for round_ in shown}
    clients = presence.clients[:MAX_ROWS]
    console = safe_console(Console())
    width = max(map(len, clients))
    for client in clients:
        say(console, f"{client:{width}}  " + "".join("#" if client in there[r] else "." for r in shown))
    if len(presence.clients) > MAX_ROWS:
        say(console, f"… and {plural(len(presence.clients) - MAX_ROWS, 'more client')}")
    columns = "one column per round" if len(shown) == rounds else f"{len(shown)} of the rounds"
    say(console, f"{plural(len(presence.clients), 'client')}, {plural(rounds, 'round')} ({columns}); "
                 f"# is there, . is not; {plural(len(presence.joins), 'client joins', 'clients join')}, "
                 f"{plural(len(presence.absences), 'client leaves', 'clients leave')}")  # fmt: skip
