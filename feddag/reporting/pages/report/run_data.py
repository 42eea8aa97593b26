# SPDX-License-Identifier: Apache-2.0
"""What a run folder holds, finished or not, as the sections of a report take it."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.reporting.pages.section import Block, load_block
from feddag.reporting.tables.clients import COLUMNS, read_clients
from feddag.reporting.tables.run_log import Evaluation, RunLog, read_run_log
from feddag.reporting.text import csv_cell

HOLDINGS = "data.json"  # who holds what; only a simulation knows, and writes it when it starts
CLUSTERING_BLOCK = Path("clustering", "report.json")


@dataclass(frozen=True)
class Holdings:
    """Who holds what: classes, training samples of each class, and the groups that were planted."""

    class_names: Sequence[str]
    counts: Mapping[str, Sequence[int]]  # client → training samples of each class
    groups: Mapping[str, int] = field(default_factory=dict)  # client → planted group
    group_names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunData:
    """One run. Most of it may be missing: a run can be young, or be no simulation."""

    folder: Path
    label: str  # a short name, different for each run of a page
    log: RunLog
    settings: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    rows: Sequence[Mapping[str, str]] = ()  # of clients.csv
    holdings: Holdings | None = None
    clustering: Block | None = None
    labels: Mapping[str, int] = field(default_factory=dict)  # client → cluster

    @property
    def method(self) -> str:
        """The name of the algorithm."""
        return str(_part(self.settings, "algorithm").get("name", "unknown method"))

    @property
    def dataset(self) -> str:
        """The name of the data."""
        source = _part(self.log.about, "source")
        return str(source.get("dataset") or _part(self.settings, "data").get("name", "unknown data"))

    @property
    def num_rounds(self) -> int:
        """How many rounds the run is meant to have."""
        return int(self.settings.get("num_rounds", 0))

    @property
    def last(self) -> Evaluation | None:
        """The newest scores of the served models."""
        special = self.log.special.get("final")
        return special or (self.log.evaluations[-1] if self.log.evaluations else None)

    @cached_property
    def clusters(self) -> dict[int, list[str]]:
        """Cluster → its clients."""
        members: dict[int, list[str]] = {}
        for client, z in sorted(self.labels.items()):
            members.setdefault(z, []).append(client)
        return dict(sorted(members.items()))

    @cached_property
    def accuracies(self) -> tuple[list[str], np.ndarray]:
        """All clients that were ever scored, and their accuracy at every evaluation (clients, times)."""
        names = sorted({client for e in self.log.evaluations for client in e.clients})
        place = {client: i for i, client in enumerate(names)}
        scores_NE = np.full((len(names), len(self.log.evaluations)), np.nan)
        for column, evaluation in enumerate(self.log.evaluations):
            for client, score in evaluation.clients.items():
                scores_NE[place[client], column] = score
        return names, scores_NE


def read_run(folder: Path, label: str = "", log: RunLog | None = None) -> RunData:
    """Everything a folder holds; InvalidInput if it is no run folder. `log`: where it was read already."""
    if not (folder / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    log = log or read_run_log(folder / "events.jsonl")
    known = {csv_cell(client): client for e in log.evaluations[-1:] for client in e.clients}
    rows = [{**row, "client": known.get(row["client"], row["client"])} for row in _client_rows(folder)]
    labels = {row["client"]: int(row["cluster"]) for row in rows if row["cluster"].isdigit()}
    return RunData(
        folder=folder,
        label=label or folder.name,
        log=log,
        settings=_json(folder / "experiment.json"),
        result=_json(folder / "result.json") or None,
        rows=rows,
        holdings=read_holdings(folder / HOLDINGS),
        clustering=load_block(folder / CLUSTERING_BLOCK),
        labels=labels if rows else log.clusters,
    )


def _client_rows(folder: Path) -> list[dict[str, str]]:
    """The rows of clients.csv; none if they are damaged."""
    try:
        rows = read_clients(folder)
        return rows if all(isinstance(row.get(name), str) for row in rows for name in COLUMNS) else []
    except (OSError, ValueError, csv.Error):
        return []


def read_holdings(path: Path) -> Holdings | None:
    """Who holds what; None where nobody wrote it down."""
    found = _json(path)
    try:
        if len({len(row) for row in found["counts"].values()}) > 1:
            return None
        return Holdings(
            class_names=[str(name) for name in found["class_names"]],
            counts={str(client): [int(n) for n in row] for client, row in found["counts"].items()},
            groups={str(client): int(g) for client, g in found["groups"].items()},
            group_names={int(g): str(name) for g, name in found["group_names"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {"name": found}


def labelled(folders: Sequence[Path]) -> list[str]:
    """Short names of run folders, each one different: the end of the path, as long as needed."""
    parts = [folder.absolute().parts for folder in folders]
    names = ["/".join(path[-1:]) for path in parts]
    for length in range(2, 1 + max(map(len, parts), default=0)):
        if len(set(names)) == len(names):
            break
        names = ["/".join(path[-length:]) for path in parts]
    return names
