# SPDX-License-Identifier: Apache-2.0
"""What a run folder says, for people: the result of a finished run, or where an unfinished one stands."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feddag.core.errors import InvalidInput
from feddag.reporting.tables.log import read_events
from feddag.reporting.terminal.progress import percent, result_table


def show_run(folder: Path, console: Console) -> None:
    """Print settings, data source, learning curve and result of a run."""
    log = folder / "events.jsonl"
    if not log.is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no events.jsonl")
    events = list(read_events(log))
    about = next((e for e in events if e["event"] in ("started", "resumed")), None)
    if about is None:
        raise InvalidInput(f"the run in {folder} has not started yet")
    experiment, source = about["experiment"], about["source"]
    console.print(
        f"[bold]{experiment['algorithm']['name']}[/bold] on {source['dataset']} ({source['kind']}, "
        f"{source['train_samples']:,} + {source['test_samples']:,} samples"
        f"{'' if source['complete'] else ', not the full set'}), {about['clients']} clients",
        highlight=False,
    )
    console.print(
        f"partition: {about['notes'].get('partition', '')}; model {about['model']}", highlight=False
    )
    curve = Table(box=None, header_style="dim")
    for heading in ("round", "accuracy", "spread", "balanced", "loss"):
        curve.add_column(heading, justify="right")
    evaluations = [e for e in events if e["event"] == "evaluation"]
    for event in evaluations[:: max(1, len(evaluations) // 20)]:
        test = event["test"]
        curve.add_row(
            str(event["round"]),
            percent(test["accuracy"]),
            percent(test["accuracy_std"]),
            percent(test["balanced_accuracy"]),
            "–" if test["loss"] is None else f"{test['loss']:.4f}",
        )
    console.print(curve)
    result = folder / "result.json"
    if result.is_file():
        console.print(result_table(json.loads(result.read_text())))
    else:
        done = max((e["round"] for e in events if e["event"] == "round"), default=0)
        console.print(
            f"unfinished: round {done} of {experiment['num_rounds']}; go on with: feddag resume {folder}",
            highlight=False,
            soft_wrap=True,
        )
