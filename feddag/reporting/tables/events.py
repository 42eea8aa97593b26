# SPDX-License-Identifier: Apache-2.0
"""The event log of a run: one JSON object a line. Tables and figures are pure functions of it."""

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feddag.core.errors import cannot_write

Event = dict[str, Any]
TIMES = frozenset({"seconds", "time", "written", "client_seconds"})  # what may differ between equal runs
UNREPEATABLE = frozenset({"started", "resumed", "warning"})  # events about one process, not about the run


class EventLog:
    """Appends events; what is on the disk after `sync` survives a kill."""

    def __init__(self, path: Path, keep_bytes: int | None = None) -> None:
        self._path = path
        self._file = path.open("ab")
        if keep_bytes is not None:
            self._file.truncate(keep_bytes)
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, **fields: Any) -> Event:
        """Append one event."""
        event: Event = {"event": kind, **fields}
        with self._guarded():
            self._file.write(json.dumps(event, allow_nan=False).encode() + b"\n")
        return event

    def sync(self) -> int:
        """Force everything to the disk; the log's length in bytes."""
        with self._guarded():
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Flush and close; a full disk was reported before and is not reported again."""
        with contextlib.suppress(OSError):
            self._file.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log; a last line that was cut off is left out."""
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            return


def log_digest(path: Path) -> str:
    """SHA-256 of all that must be equal between equal runs: every event without its times."""
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
    """The metrics of a log as CSV: a row an evaluated round."""
    columns = [
        "round", "accuracy", "accuracy_std", "balanced_accuracy", "balanced_accuracy_std", "loss",
        "validation_accuracy", "validation_balanced_accuracy", "bytes_down", "bytes_up", "seconds",
    ]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    down = up = 0
    seconds = 0.0
    for event in read_events(path):
        if event["event"] == "exchange" and event["task"] != "evaluate":  # scoring is not traffic
            down, up = down + event["bytes_down"], up + event["bytes_up"]
        elif event["event"] in ("start", "round"):
            seconds += event["seconds"]
        elif event["event"] == "evaluation":
            validation = {f"validation_{k}": v for k, v in event["validation"].items()}
            traffic = {"bytes_down": down, "bytes_up": up, "seconds": round(seconds, 3)}
            writer.writerow({"round": event["round"], **event["test"], **validation, **traffic})
    return text.getvalue()
