# SPDX-License-Identifier: Apache-2.0
"""One row per client of a finished run (clients.csv), and what the rows say together."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddag.reporting.text import csv_cell

METRICS = ("accuracy", "balanced_accuracy")
COLUMNS = (
    "client", "cluster", "model", "test_samples", *METRICS, "loss", *(f"{m}_after" for m in METRICS),
    "silhouette", "second_cluster", "note",
)  # fmt: skip
LOW = 10  # percentile that stands for the clients that are served worst
REMARKS = ("weak", "unlike")  # lists of clients that a method may note


def clients_csv(
    report: Mapping[str, Any],
    clusters: Mapping[str, int],
    files: Mapping[str, str],
    remarks: Mapping[str, Sequence[str]],
    confidence: Mapping[str, tuple[float, int]] | None = None,
) -> str:
    """The rows of all clients in `files` as CSV.

    `report` is an evaluation, `clusters` the number of each client's cluster, `files` the file of its model,
    `remarks` what else there is to say about it, and `confidence` how sure its cluster is. The columns are:

    - `client`, `cluster` (empty for methods without clusters), `model` (a file in models/),
    - `test_samples`, and on them `accuracy`, `balanced_accuracy` and `loss` of the model as served,
    - `accuracy_after` and `balanced_accuracy_after` local training; empty if that was not asked for,
    - `silhouette` (1: surely in its cluster, below 0: another one is nearer) and `second_cluster`, the second
      nearest; empty where distances are not known or there is one cluster,
    - `note`: "weak" if the client is farther from its cluster than the threshold, "unlike" if it fits no
      cluster, "newcomer" if it joined after the last round, "not scored" if its evaluation failed, "no test
      samples" if it holds none. Several notes have semicolons between them.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for client in sorted(files):
        served = report.get("test_clients", {}).get(client) or {}
        after = report.get("test_after_clients", {}).get(client) or {}
        notes = list(remarks.get(client, ()))
        if not served:
            notes.append("not scored" if client in report.get("unscored", ()) else "no test samples")
        row: dict[str, Any] = {
            "client": csv_cell(client),
            "cluster": clusters.get(client, ""),
            "model": files[client],
        }
        row |= {"test_samples": served.get("samples", 0) if served else "", "loss": served.get("loss", "")}
        row |= {metric: served.get(metric, "") for metric in METRICS}
        row |= {f"{metric}_after": after.get(metric, "") for metric in METRICS}
        if confidence and client in confidence:
            silhouette, second = confidence[client]
            row |= {"silhouette": round(silhouette, 4), "second_cluster": second}
        writer.writerow(row | {"note": "; ".join(notes)})
    return text.getvalue()


def remarks_in(events: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What the method noted about single clients when it placed them: client → "weak" or "unlike"."""
    found: dict[str, list[str]] = {}
    for event in events:
        notes = event.get("notes", {}) if event["event"] in ("start", "round", "newcomers") else {}
        for word in REMARKS:
            for client in notes.get(word, ()):
                if word not in found.setdefault(client, []):
                    found[client].append(word)
    return found


def read_clients(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's clients.csv; none if the run has no such file."""
    path = folder / "clients.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class ClusterFacts:
    """One cluster of a finished run."""

    cluster: str
    size: int
    accuracy: float | None  # mean over its scored clients


def cluster_facts(rows: Sequence[Mapping[str, str]]) -> list[ClusterFacts]:
    """Size and mean accuracy of every cluster, in order; nothing for methods without clusters."""
    members: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        if row["cluster"]:
            members.setdefault(row["cluster"], []).append(row)
    facts = []
    for cluster, inside in sorted(members.items(), key=lambda item: int(item[0])):
        scores = _scores(inside, "accuracy")
        facts.append(ClusterFacts(cluster, len(inside), float(np.mean(scores)) if scores else None))
    return facts


def worst_clients(rows: Sequence[Mapping[str, str]], most: int) -> list[Mapping[str, str]]:
    """The scored clients with the lowest accuracy, the worst first; ties by name."""
    scored = [row for row in rows if row["accuracy"]]
    return sorted(scored, key=lambda row: (float(row["accuracy"]), row["client"]))[:most]


def low_scores(rows: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """The 10th percentile over clients of each metric; empty if no client was scored."""
    regular = [row for row in rows if "newcomer" not in row["note"]]
    scores = {metric: _scores(regular, metric) for metric in METRICS}
    return {metric: float(np.percentile(values, LOW)) for metric, values in scores.items() if values}


def _scores(rows: Sequence[Mapping[str, str]], metric: str) -> list[float]:
    return [float(row[metric]) for row in rows if row[metric]]
