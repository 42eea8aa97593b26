# SPDX-License-Identifier: Apache-2.0
"""The runs below a folder, and what is new in them. Everything is found by looking; nothing is written."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feddag.reporting.pages.report.run_data import RunData, read_run
from feddag.reporting.tables.run_log import LogFollower

MOST_RUNS = 2000
DEPTH = 7  # folders below the root that are searched
SEARCH_EVERY = 3.0  # seconds between two searches for new run folders
LIVE = 120.0  # a log that was silent for so many seconds belongs to a run that was stopped
KEPT = 12  # finished runs whose logs stay in memory


@dataclass
class Watched:
    """One run folder: how far it was read, and what the list shows of it."""

    id: str
    folder: Path
    label: str
    follower: LogFollower
    row: dict[str, Any] = field(default_factory=dict)
    version: int = 0  # of the watch when the row changed last
    stamp: tuple = ()  # of the files, to see whether anything changed


class Watch:
    """All runs below a root. `news(since)` returns the rows that changed since a version."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root, self.clock = root, clock
        self.runs: dict[str, Watched] = {}
        self.version = 0
        self._searched = -SEARCH_EVERY
        self._whole: dict[str, RunData] = {}  # finished runs that were opened, the newest last

    def news(self, since: int = 0) -> dict[str, Any]:
        """The rows that changed after a version, the ids of all runs, and the version now."""
        self._search()
        for run in self.runs.values():
            self._look(run)
        rows = [run.row for run in self.runs.values() if run.version > since]
        return {"version": self.version, "rows": rows, "ids": list(self.runs)}

    def data(self, id_: str) -> RunData | None:
        """Everything about a run as the sections of a report take it; None if there is no such run."""
        run = self.runs.get(id_)
        if run is None:
            return None
        if id_ in self._whole and run.row["status"] == "finished":
            return self._whole[id_]
        if run.row["status"] != "finished":
            return read_run(run.folder, run.label, run.follower.log)
        found = self._whole[id_] = read_run(run.folder, run.label)
        while len(self._whole) > KEPT:
            del self._whole[next(iter(self._whole))]
        return found

    def _search(self) -> None:
        now = self.clock()
        if now - self._searched < SEARCH_EVERY:
            return
        self._searched = now
        found = {}
        for folder in run_folders(self.root):
            name = folder.relative_to(self.root).as_posix()
            found[hashlib.sha256(name.encode()).hexdigest()[:16]] = (folder, name)
        for gone in [id_ for id_ in self.runs if id_ not in found]:
            del self.runs[gone]
            self.version += 1
        for id_, (folder, name) in found.items():
            if id_ not in self.runs:
                label = name if name != "." else folder.absolute().name
                self.runs[id_] = Watched(id_, folder, label, LogFollower(folder / "events.jsonl"))

    def _look(self, run: Watched) -> None:
        """Read what has come since the last look; finished runs are not looked at again."""
        if run.row.get("status") == "finished":
            return
        log, result = _stat(run.folder / "events.jsonl"), _stat(run.folder / "result.json")
        silent = self.clock() - log[0] > LIVE
        stamp = (*log, *result, silent)
        if stamp == run.stamp:
            return
        run.stamp = stamp
        finished = result != (0.0, 0)
        if finished and run.follower.offset == 0:
            row = _finished_row(run.folder)  # a short way: the log of a finished run can be long
        else:
            run.follower.catch_up()
            row = _live_row(run)
        row |= {"id": run.id, "label": run.label, "updated": max(log[0], result[0])}
        row["status"] = "finished" if finished else "stopped" if silent else "running"
        if row != run.row:
            self.version += 1
            run.row, run.version = row, self.version


def run_folders(root: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Folders with an experiment.json, in the order of their names; what is inside a run is not searched."""
    stack, found = [(root, depth)], 0
    while stack and found < MOST_RUNS:
        folder, left = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)
            if any(entry.name == "experiment.json" and entry.is_file() for entry in entries):
                found += 1
                yield folder
            elif left:
                stack += [
                    (Path(e.path), left - 1)
                    for e in entries
                    if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
                ]
        except OSError:  # it may have gone, or be somebody else's
            continue


def _stat(path: Path) -> tuple[float, int]:
    try:
        found = path.stat()
        return found.st_mtime, found.st_size
    except OSError:
        return 0.0, 0


def _settings(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    found = found if isinstance(found, dict) else {}
    algorithm, data = found.get("algorithm"), found.get("data")
    return {
        "method": str(algorithm.get("name", "") if isinstance(algorithm, dict) else algorithm),
        "data": str(data.get("name", "") if isinstance(data, dict) else data),
        "seed": found.get("seed"),
        "rounds": found.get("num_rounds"),
    }


def _finished_row(folder: Path) -> dict[str, Any]:
    row = _settings(folder)
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        row |= {
            "round": result["rounds"],
            "accuracy": result["final"]["before"].get("accuracy"),
            "clusters": result.get("clusters"),
            "bytes": result.get("bytes_down", 0) + result.get("bytes_up", 0),
            "seconds": result.get("seconds"),
            "failures": result.get("failures", 0) + result.get("evaluation_failures", 0),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        row |= {"round": None, "accuracy": None}
    return row


def _live_row(run: Watched) -> dict[str, Any]:
    log = run.follower.log
    last = log.evaluations[-1].test.get("accuracy") if log.evaluations else None
    row = _settings(run.folder) | {"round": max(log.round, 0), "accuracy": last}
    row |= {"bytes": log.bytes_down + log.bytes_up, "seconds": round(log.seconds, 2)}
    return row | {"failures": log.num_failures, "clusters": len(set(log.clusters.values())) or None}
