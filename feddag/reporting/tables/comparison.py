# SPDX-License-Identifier: Apache-2.0
"""A comparison in numbers, computed from its finished runs. Accuracies are means over clients."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feddag.reporting.tables.clients import METRICS, low_scores, read_clients

Metric = str  # one of SCORED
SCORED = (*METRICS, "proportional_accuracy")
# What the methods have in equal amounts, and how a table says so.
BUDGETS = {
    "rounds": "Equal rounds: every method had the same number of rounds, warm-up included.",
    "compute": "Equal compute: every method is read at its last evaluation before it had spent more "
    "client-epochs than {first} in its whole run; who spends less is read at its end.",
    "bytes": "Equal traffic: every method is read at its last evaluation before it had sent more bytes "
    "than {first} in its whole run; who sends less is read at its end.",
}


@dataclass(frozen=True)
class Point:
    """One evaluated round of a run."""

    round: int
    scores: dict[Metric, float]
    bytes: int
    epochs: float = 0.0  # client-epochs so far


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    method: str
    setting: str
    seed: int
    scores: dict[Metric, float]  # empty if no client could be scored
    after: dict[Metric, float]  # after one local round; empty if not scored
    newcomers: dict[Metric, float]
    bytes_down: int
    bytes_up: int
    seconds: float
    curve: tuple[Point, ...] = ()
    clusters: int | None = None  # None for methods without clusters
    low: dict[Metric, float] = field(default_factory=dict)  # 10th percentile over clients
    chosen: dict[Metric, float] = field(default_factory=dict)  # of the round that validation chose
    last: dict[Metric, float] = field(default_factory=dict)  # mean of the last five evaluations
    epochs: float | None = None  # client-epochs of all training
    adapts: bool = False  # the method trains a model before use: no score as served
    acts_from: int | None = None  # set if the run ended before the method could act at all

    def reached(self, target: float, metric: Metric) -> Point | None:
        """The first evaluated round at or above a target."""
        return next((p for p in self.curve if p.scores[metric] >= target), None)

    @property
    def served(self) -> dict[Metric, float]:
        """Scores that may be ranked with other methods' scores as served."""
        return {} if self.adapts or self.acts_from else self.scores


@dataclass(frozen=True)
class Difference:
    """Paired by seed: the mean, and its 95% interval (None with one seed)."""

    mean: float
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> "Difference":
        """The same in another unit."""
        ends = (None if end is None else end * factor for end in (self.low, self.high))
        return Difference(self.mean * factor, *ends)

    @property
    def verdict(self) -> str:
        """Nothing is called better inside the interval."""
        if self.low is None or self.high is None:
            return ""
        return "win" if self.low > 0 else "loss" if self.high < 0 else "tie"


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
    difference: Difference | None  # from the first method, as served
    rank: float | None  # None: not comparable as served
    bytes: float
    seconds: float
    # for each target: how many seeds reached it, and their mean rounds and bytes
    targets: tuple[tuple[int, float, float], ...] = field(default=())
    chosen: float | None = None
    last: float | None = None
    after_difference: Difference | None = None
    epochs: float | None = None
    adapts: bool = False
    acts_from: int | None = None


def read_outcome(folder: Path, method: str, setting: str, seed: int) -> Outcome:
    """The result that a finished run folder holds."""
    result = json.loads((folder / "result.json").read_text())
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["accuracy"]]
    final, newcomers = result["final"], result["newcomers"] or {}

    def scores(report: dict, when: str) -> dict[Metric, float]:
        found = report.get(when, {})
        return {m: float(found[m]) for m in SCORED if found.get(m) is not None}

    acts_from = result.get("acts_from")
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
        chosen=scores(result.get("chosen") or {}, "before"),
        last=scores(result, "last_five"),
        epochs=result.get("client_epochs"),
        adapts=result.get("adapts", False),
        acts_from=acts_from if acts_from and acts_from > result["rounds"] else None,
        clusters=result.get("clusters"),
        low=low_scores(read_clients(folder)),
        curve=tuple(
            Point(
                int(row["round"]),
                {m: float(row[m]) for m in SCORED if row.get(m)},
                int(row["bytes_down"]) + int(row["bytes_up"]),
                float(row.get("client_epochs") or 0),
            )
            for row in rows
        ),
    )


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def difference(values: Sequence[float]) -> Difference | None:
    """The mean of paired differences with its 95% interval (Student's t)."""
    if not values:
        return None
    centre = float(np.mean(values))
    if len(values) == 1:
        return Difference(centre)
    from scipy.stats import t  # takes long to import

    half = float(t.ppf(0.975, len(values) - 1)) * deviation(values) / math.sqrt(len(values))
    return Difference(centre, centre - half, centre + half)


def at_budget(outcomes: Sequence[Outcome], budget: str, first: str) -> list[Outcome]:
    """Every run as it stood when it had spent what the first method's run of the same seed spent in all."""
    if budget == "rounds":
        return [*outcomes]

    def spent(point: Point) -> float:
        return point.epochs if budget == "compute" else float(point.bytes)

    limits = {(o.setting, o.seed): spent(o.curve[-1]) for o in outcomes if o.method == first and o.curve}
    result = []
    for o in outcomes:
        limit = limits.get((o.setting, o.seed))
        within = [p for p in o.curve if limit is not None and spent(p) <= limit * (1 + 1e-9)]
        if limit is None or not o.curve:
            continue
        if within == [*o.curve]:
            result.append(o)
            continue
        point = within[-1] if within else Point(0, {}, 0)
        result.append(
            replace(
                o,
                scores=point.scores,
                curve=tuple(within),
                epochs=point.epochs,
                bytes_down=0,
                bytes_up=point.bytes,
                # What is measured at the end alone is not known for an earlier round.
                after={},
                newcomers={},
                low={},
                chosen={},
                last={},
            )
        )
    return result


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
        # A method that adapts before use, or could not act yet, is not ranked with the others as served.
        ranked = [m for m in present if not any(o.adapts or o.acts_from for o in found[m])]
        means = [_mean_of([o.scores for o in found[m] if o.scores], metric) for m in ranked]
        # A method whose clients could not be scored comes last.
        ranks = dict(
            zip(ranked, rankdata([math.inf if mean is None else -mean for mean in means]), strict=True)
        )
        for method in present:
            first = found[methods[0]] if method != methods[0] else []
            rank = float(ranks[method]) if method in ranks else None
            lines.append(_line(found[method], first, rank, metric, targets))
    return lines


def _paired(runs: Sequence[Outcome], first: Sequence[Outcome], metric: Metric, what: str) -> list[float]:
    """Differences from the first method, seed by seed."""
    theirs = {o.seed: getattr(o, what) for o in first}
    both = [(getattr(o, what), theirs.get(o.seed, {})) for o in runs]
    return [mine[metric] - other[metric] for mine, other in both if metric in mine and metric in other]


def _line(
    runs: Sequence[Outcome],
    first: Sequence[Outcome],
    rank: float | None,
    metric: Metric,
    targets: Sequence[float],
) -> Line:
    """The runs of one method in one setting; `first` holds those of the first method."""
    scored = [o for o in runs if o.scores]
    epochs = [o.epochs for o in runs if o.epochs is not None]
    clusters = [o.clusters for o in runs if o.clusters is not None]
    return Line(
        method=runs[0].method,
        setting=runs[0].setting,
        seeds=len(runs),
        mean={m: _mean_of([o.scores for o in scored], m) for m in SCORED},
        std={m: deviation([o.scores[m] for o in scored if m in o.scores]) for m in SCORED},
        low=_mean_of([o.low for o in scored], metric),
        clusters=float(np.mean(clusters)) if clusters else None,
        after=_mean_of([o.after for o in scored], metric),
        newcomers=_mean_of([o.newcomers for o in scored], metric),
        difference=difference(_paired(runs, first, metric, "served")),
        rank=rank,
        bytes=float(np.mean([o.bytes_down + o.bytes_up for o in runs])),
        seconds=float(np.mean([o.seconds for o in runs])),
        targets=tuple(_to_target(runs, target, metric) for target in targets),
        chosen=_mean_of([o.chosen for o in scored], metric),
        last=_mean_of([o.last for o in scored], metric),
        after_difference=difference(_paired(runs, first, metric, "after")),
        epochs=float(np.mean(epochs)) if epochs else None,
        adapts=any(o.adapts for o in runs),
        acts_from=next((o.acts_from for o in runs if o.acts_from), None),
    )


def _mean_of(reports: Sequence[dict[Metric, float]], metric: Metric) -> float | None:
    """The mean over runs; None if there is none or one of them was not scored."""
    known = [r[metric] for r in reports if metric in r]
    return float(np.mean(known)) if known and len(known) == len(reports) else None


def _to_target(runs: Sequence[Outcome], target: float, metric: Metric) -> tuple[int, float, float]:
    points = [p for p in (o.reached(target, metric) for o in runs) if p is not None]
    if not points:
        return 0, 0.0, 0.0
    return len(points), float(np.mean([p.round for p in points])), float(np.mean([p.bytes for p in points]))
