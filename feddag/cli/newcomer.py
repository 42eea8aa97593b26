# SPDX-License-Identifier: Apache-2.0
"""The command `feddag newcomer`: a new client for a finished run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import terminal

MATES_SHOWN = 8


def newcomer(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Labelled samples: class folders, an .npz, .csv or .parquet file."
        ),
    ],
    name: Annotated[str, typer.Option(help="The new client's name; default: that of the file.")] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print the answer as JSON alone.")] = False,
) -> None:
    """Place one new client into a finished run: its cluster, how near it is, and its model's file."""
    from feddag.core.text import listed, plural
    from feddag.reporting.terminal.console import say
    from feddag.runs.newcomer import place_newcomer
    from feddag.runs.run import load_run

    placed = place_newcomer(load_run(run), path, name)
    if json_:
        typer.echo(json.dumps(placed.as_dict(), indent=1))
        return
    console = terminal()
    say(console, f"{placed.client}: {plural(placed.samples, 'labelled sample')}")
    if placed.cluster is None:
        say(console, "this method has no clusters: everybody is served alike")
    else:
        say(console, f"cluster {placed.cluster}, with {listed(placed.mates, MATES_SHOWN)}")
    for z, distance in sorted(placed.distances.items(), key=lambda item: item[1]):
        mark = "  <- its cluster" if z == placed.cluster else ""
        say(console, f"  distance to cluster {z}: {distance:.3f}{mark}")
    if placed.weak:
        say(console, f"weak: it is farther from its cluster than the threshold {placed.threshold:.3f}; it is "
                     "served, but fits badly")  # fmt: skip
    if placed.accuracy is not None:
        say(console, f"{placed.accuracy:.1%} of its own samples are right before any training of its own")
    for file in placed.files:
        say(console, f"model: {file}")
    if placed.mates:
        say(console, f"predict with: feddag predict {run} SAMPLES --client {placed.mates[0]}")
