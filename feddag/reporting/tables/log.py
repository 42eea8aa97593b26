# SPDX-License-Identifier: Apache-2.0
"""Reading the event log of a run (one JSON object per line). Every function here only reads the log."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
# What may differ between equal runs.
TIMES = frozenset({"seconds", "time", "written", "client_seconds", "phases", "waited"})
UNREPEATABLE = frozenset({"started", "resumed", "warning"})  # events about one process, not about the run
COLUMNS = (
    "round", "accuracy", "accuracy_std", "balanced_accuracy", "balanced_accuracy_std", "loss",
    "proportional_accuracy", "validation_accuracy", "validation_balanced_accuracy", "bytes_down", "bytes_up",
    "client_epochs", "seconds",
)  # fmt: skip


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a log; reading ends before a last line that was cut off."""
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            return


def log_digest(path: Path) -> str:
    """SHA-256 of everything that is equal between equal runs: every event without its times."""
    sha = hashlib.sha256()
    for event in read_events(path):
        if event["event"] not in UNREPEATABLE:
            sha.update(json.dumps(_without_times(event), sort_keys=True).encode())
    return sha.hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in TIMES}
    return value


def metrics_csv(path: Path) -> str:
    """The metrics of a log as CSV: one row per evaluated round."""
    from feddag.reporting.tables.lifecycle import COLUMNS as CHANGES
    from feddag.reporting.tables.lifecycle import Story

    story, last, rows = Story(), -1, []
    down = up = 0
    epochs = seconds = 0.0
    for event in read_events(path):
        story.add(event)
        if event["event"] == "exchange" and event["task"] != "evaluate":  # evaluation does not count
            down, up = down + event["bytes_down"], up + event["bytes_up"]
            epochs += event.get("epochs", 0.0)
        elif event["event"] in ("start", "round"):
            seconds += event["seconds"]
        elif event["event"] == "evaluation":
            validation = {f"validation_{k}": v for k, v in event["validation"].items()}
            cost = {"bytes_down": down, "bytes_up": up, "client_epochs": round(epochs, 3)}
            cost["seconds"] = round(seconds, 3)
            changes = story.row(event["round"], last)
            rows.append({"round": event["round"], **event["test"], **validation, **cost, **changes})
            last = event["round"]
    text = io.StringIO()
    columns = (*COLUMNS, *CHANGES) if story.standing else COLUMNS
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def exchange_rows(path: Path) -> list[dict[str, Any]]:
    """One row per question to clients; seconds are the sum over clients."""
    return [
        {
            "round": event["round"],
            "task": event["task"],
            "clients": event["clients"],
            "failures": len(event["failures"]),
            "bytes_down": event["bytes_down"],
            "bytes_up": event["bytes_up"],
            "seconds": round(sum(event["client_seconds"].values()), 4),
        }
        for event in read_events(path)
        if event["event"] == "exchange"
    ]
