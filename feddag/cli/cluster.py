# SPDX-License-Identifier: Apache-2.0
"""The command `feddag cluster`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from feddag.cli.options import Overrides, terminal, watcher

NAMES_SHOWN = 12  # clients per cluster that are printed; the page has all


def cluster(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[RECIPE|FILE|FOLDER]",
            help="A recipe, a .toml file, a folder with your own data, or a run's folder.",
        ),
    ] = "demo",
    set_: Overrides = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the page goes; default clustering/<time>-<name>.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the clustering as JSON alone.")] = False,
) -> None:
    """Find out which clients are alike, and why, before any federated training; writes a page to look at."""
    from feddag.core.text import listed, plural
    from feddag.experiment.recipes import resolve
    from feddag.reporting.terminal.console import say
    from feddag.runs.simulate import cluster as find_clusters

    if (Path(what) / "experiment.json").is_file():
        summary = find_clusters(Path(what), folder)
    else:
        experiment = resolve(what, set_ or [])
        if experiment.algorithm.name != "feddag" and not any("algorithm" in s for s in set_ or []):
            experiment = experiment.with_overrides(["algorithm=feddag"])
        with watcher(1, quiet=json_) as watch:
            summary = find_clusters(experiment, folder, watch=watch)
    if json_:
        typer.echo(json.dumps(summary, indent=1))
        return
    console = terminal()
    members: dict[int, list[str]] = {}
    for client, z in sorted(summary["labels"].items()):
        members.setdefault(z, []).append(client)
    say(console, f"{plural(len(members), 'cluster')} of {plural(len(summary['labels']), 'client')}")
    for z, names in sorted(members.items()):
        say(console, f"  cluster {z} ({len(names)}): {listed(names, NAMES_SHOWN)}")
    for split in summary.get("splits", []):
        sizes = [str(size) for size in split["sizes"]]
        say(console, f"  {split['view']} splits {sum(split['sizes'])} clients: {' + '.join(sizes)}")
    if summary.get("unlike"):
        say(console, f"  unlike anyone: {listed(summary['unlike'], NAMES_SHOWN)}")
    if summary.get("borderline"):
        say(console, f"  borderline: {listed(summary['borderline'], NAMES_SHOWN)}")
    if "ari" in summary:
        planted = plural(summary["planted_groups"], "group")
        say(console, f"planted: {planted}; adjusted Rand index {summary['ari']:.3f}")
    say(console, f"why: {summary['page']}")
