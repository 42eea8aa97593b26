# SPDX-License-Identifier: Apache-2.0
"""Run folders that no run made: any number of clients and rounds, any names, finished or not."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feddag.reporting.tables.clients import COLUMNS
from feddag.reporting.tables.log import metrics_csv
from feddag.reporting.text import csv_cell

PHASES = {"sign": "signature", "share_warm": "warm-up", "train_dual": "primary", "evaluate": "evaluation"}


class FolderMaker:
    """Writes the log of a run, round by round, as a driver would."""

    def __init__(
        self,
        folder: Path,
        clients: int | Sequence[str] = 6,
        rounds: int = 4,
        clusters: int = 2,
        classes: Sequence[str] = ("shirt", "boot", "bag"),
        method: str = "feddag",
        failures: bool = False,
        seed: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rounds, self.method = folder, rounds, method
        self.names = [f"c{i:04d}" for i in range(clients)] if isinstance(clients, int) else list(clients)
        self.labels = {client: i % clusters for i, client in enumerate(self.names)} if clusters else {}
        self.classes, self.failures = list(classes), failures
        self.rng = np.random.default_rng(seed)
        self.skill = self.rng.uniform(0.6, 1.0, len(self.names))
        settings = {"name": "toy", "algorithm": {"name": method}, "data": {"name": "toy-data"}}
        settings |= {
            "num_rounds": rounds,
            "seed": seed,
            "training": {"lr": 0.1},
            "num_clients": len(self.names),
        }
        self.settings: dict[str, Any] = settings
        (folder / "experiment.json").write_text(json.dumps(settings))
        held = {
            "class_names": self.classes,
            "counts": {c: self._counts(i) for i, c in enumerate(self.names)},
            "groups": self.labels,
            "group_names": {z: f"group {z}" for z in range(clusters)},
        }
        (folder / "data.json").write_text(json.dumps(held))

    def _counts(self, i: int) -> list[int]:
        counts = self.rng.integers(0, 3, len(self.classes))
        counts[(i % max(1, len(set(self.labels.values())))) % len(self.classes)] += 30
        return counts.tolist()

    def _write(self, **event: Any) -> None:
        with (self.folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def start(self) -> None:
        source = {"dataset": "toy-data", "kind": "generated", "complete": True, "train_samples": 1}
        about = {"folder": str(self.folder), "experiment": self.settings, "model": "mlp", "source": source}
        about |= {"notes": {}, "time": "2026-01-01T00:00:00+0000", "machine": {"cores": 2}}
        self._write(event="started", clients=len(self.names), **about)
        self._exchange(0, "sign", self.names)
        self._write(event="start", round=0, cohort=self.names, digest="", notes={}, waited=0.4, seconds=1.0)
        if self.labels:
            self._write(event="clusters", round=0, clusters=self.labels)

    def _exchange(self, round_: int, task: str, cohort: Sequence[str]) -> None:
        failed = {cohort[0]: "the client was too slow"} if self.failures and round_ % 2 else {}
        about = {"round": round_, "task": task, "clients": len(cohort)}
        n = len(cohort)
        cost: dict[str, Any] = {"bytes_down": 1000 * n, "bytes_up": 500 * n}
        cost["phases"] = {PHASES[task]: [1000 * n, 500 * n, 0.01 * n]}
        seconds = dict.fromkeys(cohort, 0.01)
        self._write(event="exchange", **about, failures=failed, **cost, client_seconds=seconds)

    def round(self, round_: int) -> None:
        cohort = self.names[:: 2 if len(self.names) > 3 else 1]
        self._exchange(round_, "train_dual", cohort)
        self._write(event="round", round=round_, cohort=cohort, digest="", notes={}, waited=0.3, seconds=0.5)
        self._exchange(round_, "evaluate", self.names)
        self._write(**self._scores("evaluation", round_))

    def _scores(self, event: str, round_: int) -> dict[str, Any]:
        accuracies = np.round(self.skill * (1 - np.exp(-(1 + round_) / (1 + self.rounds / 4))), 4)
        clients = {
            client: {"accuracy": a, "balanced_accuracy": a / 2, "loss": 1 - a, "samples": 20}
            for client, a in zip(self.names, accuracies.tolist(), strict=True)
        }
        mean, std = float(accuracies.mean()), float(accuracies.std())
        test = {"clients": len(clients), "accuracy": mean, "accuracy_std": std, "balanced_accuracy": mean / 2}
        test |= {"balanced_accuracy_std": std, "loss": 1 - mean}
        return {"event": event, "round": round_, "asked": len(clients), "test": test, "test_clients": clients,
                "validation": {}, "unscored": [], "uses": {}, "seconds": 0.1}  # fmt: skip

    def finish(self) -> None:
        scores = self._scores("final_evaluation", self.rounds)
        self._write(**scores)
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        for client, found in scores["test_clients"].items():
            row = {"client": csv_cell(client), "cluster": self.labels.get(client, ""), "test_samples": 20}
            writer.writerow(
                {**row, "accuracy": found["accuracy"], "balanced_accuracy": found["balanced_accuracy"]}
            )
        (self.folder / "clients.csv").write_text(text.getvalue(), encoding="utf-8")
        (self.folder / "metrics.csv").write_text(metrics_csv(self.folder / "events.jsonl"))
        result = {
            "algorithm": self.method,
            "rounds": self.rounds,
            "final": {"round": self.rounds, "before": scores["test"]},
        }
        (self.folder / "result.json").write_text(json.dumps(result))


def run_folder(folder: Path, until: int | None = None, **options: Any) -> Path:
    """A whole run; `until` is the last finished round of a run that was stopped."""
    made = FolderMaker(folder, **options)
    made.start()
    for round_ in range(1, (made.rounds if until is None else until) + 1):
        made.round(round_)
    if until is None:
        made.finish()
    return folder
