# SPDX-License-Identifier: Apache-2.0
"""A comparison in numbers, computed from its finished runs. Accuracies are means over clients."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from feddag.reporting.tables.clients import METRICS, low_scores, read_clients

Metric = str  # "accuracy" or "balanced_accuracy"


@dataclass(frozen=True)
class Point:
    """One evaluated round of a run."""

    round: int
    scores: dict[Metric, float]
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    method: str
    setting: str
    seed: int
    scores: dict[Metric, float]  # empty if no client could be scored
    after: dict[Metric, float]  # after local training; empty if not scored
    newcomers: dict[Metric, float]
    bytes_down: int
    bytes_up: int
    seconds: float
    curve: tuple[Point, ...] = ()
    clusters: int | None = None  # None for methods without clusters
    low: dict[Metric, float] = field(default_factory=dict)  # 10th percentile over clients

    def reached(self, target: float, metric: Metric) -> Point | None:
        """The first evaluated round at or above a target."""
        return next((p for p in self.curve if p.scores[metric] >= target), None)


@dataclass(frozen=True)
class Line:
    """One method in one setting, over seeds."""

    method: str
    setting: str
    seeds: int
    mean: dict[Metric, float | None]  # None if no run was scored
    std: dict[Metric, float]
    low: float | None  # 10th percentile over clients
    clusters: float | None  # number of clusters; None for methods without clusters
    after: float | None
    newcomers: float | None
    difference: tuple[float, float] | None  # from the first method: mean and deviation of paired differences
    rank: float
    bytes: float
    seconds: float
    # for each target: how many seeds reached it, and their mean rounds and bytes
    targets: tuple[tuple[int, float, float], ...] = field(default=())


def read_outcome(folder: Path, method: str, setting: str, seed: int) -> Outcome:
    """The result that a finished run folder holds."""
    result = json.loads((folder / "result.json").read_text())
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["accuracy"]]
    final, newcomers = result["final"], result["newcomers"] or {}

    def scores(report: dict, when: str) -> dict[Metric, float]:
        found = report.get(when, {})
        return {m: float(found[m]) for m in METRICS if found.get(m) is not None}

    return Outcome(
        method=method,
        setting=setting,
        seed=seed,
        scores=scores(final, "before"),
        after=scores(final, "after"),
        newcomers=scores(newcomers, "after"),
        bytes_down=result["bytes_down"],
        bytes_up=result["bytes_up"],
        seconds=result["seconds"],
        clusters=result.get("clusters"),
        low=low_scores(read_clients(folder)),
        curve=tuple(
            Point(
                int(row["round"]),
                {m: float(row[m]) for m in METRICS},
                int(row["bytes_down"]) + int(row["bytes_up"]),
            )
            for row in rows
        ),
    )


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarise(
    outcomes: Sequence[Outcome],
    methods: Sequence[str],
    settings: Sequence[str],
    metric: Metric = "accuracy",
    targets: Sequence[float] = (),
) -> list[Line]:
    """One line per setting and method with at least one finished run."""
    from scipy.stats import rankdata  # takes long to import

    lines: list[Line] = []
    for setting in settings:
        found = {m: [o for o in outcomes if o.method == m and o.setting == setting] for m in methods}
        present = [m for m in methods if found[m]]
        means = [_mean_of([o.scores for o in found[m] if o.scores], metric) for m in present]
        # A method whose clients could not be scored comes last.
        ranks = rankdata([math.inf if mean is None else -mean for mean in means])
        first = {o.seed: o.scores[metric] for o in found[methods[0]] if o.scores}
        for method, rank in zip(present, ranks, strict=True):
            compared = first if method != methods[0] else {}
            lines.append(_line(found[method], compared, float(rank), metric, targets))
    return lines


def _line(
    runs: Sequence[Outcome], first: dict[int, float], rank: float, metric: Metric, targets: Sequence[float]
) -> Line:
    """The runs of one method in one setting; `first` holds the scores of the first method by seed."""
    scored = [o for o in runs if o.scores]
    paired = [o.scores[metric] - first[o.seed] for o in scored if o.seed in first]
    clusters = [o.clusters for o in runs if o.clusters is not None]
    return Line(
        method=runs[0].method,
        setting=runs[0].setting,
        seeds=len(runs),
        mean={m: _mean_of([o.scores for o in scored], m) for m in METRICS},
        std={m: deviation([o.scores[m] for o in scored]) for m in METRICS},
        low=_mean_of([o.low for o in scored], metric),
        clusters=float(np.mean(clusters)) if clusters else None,
        after=_mean_of([o.after for o in scored], metric),
        newcomers=_mean_of([o.newcomers for o in scored], metric),
        difference=(float(np.mean(paired)), deviation(paired)) if paired else None,
        rank=rank,
        bytes=float(np.mean([o.bytes_down + o.bytes_up for o in runs])),
        seconds=float(np.mean([o.seconds for o in runs])),
        targets=tuple(_to_target(runs, target, metric) for target in targets),
    )


def _mean_of(reports: Sequence[dict[Metric, float]], metric: Metric) -> float | None:
    """The mean over runs; None if there is none or one of them was not scored."""
    return float(np.mean([r[metric] for r in reports])) if reports and all(reports) else None


def _to_target(runs: Sequence[Outcome], target: float, metric: Metric) -> tuple[int, float, float]:
    points = [p for p in (o.reached(target, metric) for o in runs) if p is not None]
    if not points:
        return 0, 0.0, 0.0
    return len(points), float(np.mean([p.round for p in points])), float(np.mean([p.bytes for p in points]))
