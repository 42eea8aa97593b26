# SPDX-License-Identifier: Apache-2.0
"""What a run folder tells people: the result of a finished run, or how far an unfinished run has come."""

import json
from pathlib import Path

from rich.console import Console

from feddag.core.errors import InvalidInput
from feddag.core.text import plural
from feddag.reporting.tables.clients import cluster_facts, read_clients, worst_clients
from feddag.reporting.tables.log import Event, read_events
from feddag.reporting.terminal.console import TextTable, safe_console, say
from feddag.reporting.terminal.progress import percent, result_table

ROUNDS_SHOWN = 20
CLUSTERS_SHOWN = 50
WORST_SHOWN = 5


def show_run(folder: Path, console: Console) -> None:
    """Print settings, data source, learning curve and result of a run."""
    log = folder / "events.jsonl"
    if not log.is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no events.jsonl")
    events = list(read_events(log))
    about = next((e for e in events if e["event"] in ("started", "resumed")), None)
    if about is None:
        raise InvalidInput(f"the run in {folder} has not started yet")
    safe_console(console)
    experiment, source = about["experiment"], about["source"]
    say(
        console,
        f"{experiment['algorithm']['name']} on {source['dataset']} ({source['kind']}, "
        f"{source['train_samples']:,} + {source['test_samples']:,} samples"
        f"{'' if source['complete'] else ', not the full set'}), {plural(about['clients'], 'client')}",
        style="bold",
    )
    partition = about["notes"].get("partition", "")
    say(console, f"partition: {partition or 'not named'}; model {about['model']}")
    evaluations = [e for e in events if e["event"] == "evaluation"]
    if evaluations:
        console.print(_curve(evaluations))
    result = folder / "result.json"
    if result.is_file():
        console.print(result_table(json.loads(result.read_text())))
        _show_clients(read_clients(folder), console)
    else:
        done = max((e["round"] for e in events if e["event"] == "round"), default=0)
        say(
            console,
            f"unfinished: round {done} of {experiment['num_rounds']}; go on with: feddag resume {folder}",
        )


def _show_clients(rows: list[dict[str, str]], console: Console) -> None:
    """Size and accuracy of the clusters, and the clients that are served worst."""
    facts = cluster_facts(rows)
    if facts:
        table = TextTable("clusters", box=None, header_style="dim")
        for heading in ("cluster", "clients", "mean accuracy"):
            table.heading(heading, "right")
        for cluster in facts[:CLUSTERS_SHOWN]:
            table.line(cluster.cluster, f"{cluster.size:,}", percent(cluster.accuracy))
        if len(facts) > CLUSTERS_SHOWN:
            table.note(f"the first {CLUSTERS_SHOWN} of {plural(len(facts), 'cluster')}")
        console.print(table)
    worst = worst_clients(rows, WORST_SHOWN)
    if worst:
        headings = ("client", *(["cluster"] if facts else []), "test samples", "accuracy", "note")
        table = TextTable("lowest accuracy; all in clients.csv", box=None, header_style="dim")
        for heading in headings:
            table.heading(heading, "left" if heading in ("client", "note") else "right")
        for row in worst:
            cells = {**row, "test samples": row["test_samples"], "accuracy": percent(float(row["accuracy"]))}
            table.line(*(cells[heading] for heading in headings))
        console.print(table)


def _curve(evaluations: list[Event]) -> TextTable:
    """About twenty of the evaluated rounds, always with the last one."""
    table = TextTable(box=None, header_style="dim")
    for heading in ("round", "accuracy", "spread", "balanced", "loss"):
        table.heading(heading, "right")
    step = -(-len(evaluations) // ROUNDS_SHOWN)
    for event in evaluations[::-1][::step][::-1]:
        test = event["test"]
        table.line(
            str(event["round"]),
            percent(test["accuracy"]),
            percent(test["accuracy_std"]),
            percent(test["balanced_accuracy"]),
            "–" if test["loss"] is None else format(test["loss"], ".4f" if test["loss"] < 1e4 else ".3g"),
        )
    return table
