# SPDX-License-Identifier: Apache-2.0
"""The command `feddag scenario`: what the events of an experiment mean for each client."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from feddag.cli.options import Overrides

if TYPE_CHECKING:
    from feddag.data.federation import Federation

app = typer.Typer(help="Clients that join, leave, come back, and change.", no_args_is_help=True)

MAX_ROWS, MAX_COLUMNS = 60, 100
FIRST, LATER, AWAY = "#", "23456789", "."


@app.callback()
def about() -> None:
    """Clients that join, leave, come back, and change."""


@app.command()
def show(
    what: Annotated[str, typer.Argument(metavar="RECIPE|FILE", help="A recipe or a .toml file.")] = "demo",
    set_: Overrides = None,
) -> None:
    """Draw who is there with which data in which round; refuse in one sentence what is impossible."""
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
    drifts = simulation.federation.drifts
    clients = presence.clients[:MAX_ROWS]
    console = safe_console(Console())
    width = max(map(len, clients))
    for client in clients:
        marks = _marks(simulation.federation, client, shown)
        drawn = (mark if client in there[r] else AWAY for r, mark in zip(shown, marks, strict=True))
        say(console, f"{client:{width}}  " + "".join(drawn))
    if len(presence.clients) > MAX_ROWS:
        say(console, f"… and {plural(len(presence.clients) - MAX_ROWS, 'more client')}")
    columns = "one column per round" if len(shown) == rounds else f"{len(shown)} of the rounds"
    say(console, f"{plural(len(presence.clients), 'client')}, {plural(rounds, 'round')} ({columns}); "
                 f"# is there, . is not; {plural(len(presence.joins), 'client joins', 'clients join')}, "
                 f"{plural(len(presence.absences), 'client leaves', 'clients leave')}")  # fmt: skip
    if drifts:
        kinds = Counter(drift.kind for drift in drifts)
        text = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        say(console, f"{plural(len(drifts), 'change')} of data ({text}); 2, 3, … are a client's later data")
    needed = [share.size() for share in simulation.federation.shares()]
    say(console, f"{len(simulation.federation.train)} training samples; the smallest share of a client "
                 f"has {min(needed)}, the largest {max(needed)}")  # fmt: skip


def _marks(federation: "Federation", client: str, rounds: list[int]) -> list[str]:
    """A mark per round: data that come back have their old mark."""
    numbers: dict[int, int] = {id(federation.clients[client]): 0}
    marks = []
    for round_ in rounds:
        number = numbers.setdefault(id(federation.at(round_).clients[client]), len(numbers))
        marks.append(LATER[(number - 1) % len(LATER)] if number else FIRST)
    return marks
