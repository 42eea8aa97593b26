# SPDX-License-Identifier: Apache-2.0
"""The commands `feddag privacy plan` and `feddag privacy audit`."""

from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import Overrides, terminal

app = typer.Typer(help="What leaves the clients, at which price, and an attack on it.", no_args_is_help=True)
MARKS = {"within": "ok  ", "unclear": "near", "above": "FAIL"}


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


@app.command()
def audit(
    what: Annotated[
        str, typer.Argument(metavar="RUN|RECIPE|FILE", help="A run folder, or what `run` takes.")
    ],
    set_: Overrides = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where audit.json and audit.png go; default RUN/audit or privacy-audit."),
    ] = None,
) -> None:
    """Attack what the clients send, with all samples at hand; exit code 1 if an attack does too well."""
    from feddag.experiment.recipes import resolve
    from feddag.reporting.terminal.console import say
    from feddag.runs.audit import audit as attack
    from feddag.runs.audit import write_audit
    from feddag.runs.run import load_run
    from feddag.runs.simulate import build

    run = (Path(what) / "experiment.json").is_file()
    experiment = load_run(what).experiment.with_overrides(set_ or []) if run else resolve(what, set_ or [])
    found = attack(build(experiment))
    console = terminal(soft_wrap=True)
    for finding in found.findings:
        say(console, f"{MARKS[finding.verdict]}  {finding.sentence}")
    picture = write_audit(found, folder or (Path(what) / "audit" if run else Path("privacy-audit")))
    say(console, f"picture in {picture}")
    raise typer.Exit(0 if found.passed else 1)
