# SPDX-License-Identifier: Apache-2.0
"""The command `feddag check-algorithm`."""

from typing import TYPE_CHECKING, Annotated

import typer

from feddag.cli.options import terminal

if TYPE_CHECKING:
    from feddag.contracts.checks import Verdict


def check_algorithm(
    name: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="Your algorithm, or one of the table.")],
) -> None:
    """Run the contracts that every algorithm must keep on your own; the exit code is 2 if one is broken."""
    from feddag.algorithms import ALGORITHMS
    from feddag.contracts.checks import check_algorithm as run_checks
    from feddag.core.errors import InvalidInput
    from feddag.core.text import plural
    from feddag.reporting.terminal.console import say

    if name not in ALGORITHMS:
        raise InvalidInput(f"algorithm '{name}' is unknown: expected module:Class, or one of the table")
    console = terminal()

    def show(verdict: "Verdict") -> None:
        say(console, f"{'BROKEN' if verdict.problem else 'holds '} {verdict.check}")
        if verdict.problem:
            say(console, f"       {verdict.problem}")

    found = run_checks(name, show)
    broken = [verdict for verdict in found if verdict.problem]
    if broken:
        say(console, f"{len(broken)} of {plural(len(found), 'contract')} broken")
        raise SystemExit(2)
    say(console, f"all {len(found)} contracts hold")
