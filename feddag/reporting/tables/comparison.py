# SPDX-License-Identifier: Apache-2.0
"""Tables of a comparison, computed from its finished runs. Accuracies are means over clients."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from feddag.core.text import plural, printable
from feddag.reporting import text as escapes
from feddag.reporting.text import csv_cell

Metric = str  # "accuracy" or "balanced_accuracy"
METRICS = ("accuracy", "balanced_accuracy")

PROTOCOL = (
    "Final round, the served model without fine-tuning, mean over clients, in percent; ± is the standard "
    "deviation over seeds. Differences are paired by seed: same data, same cohorts. Bytes are both "
    "directions together, without evaluation. Seconds are the time of one run; several runs may have shared "
    "the machine. Rounds and bytes to a target are counted up to the first evaluated round whose mean test "
    "accuracy reaches the target."
)


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
    scores: dict[Metric, float]
    after: dict[Metric, float]  # after local training; empty if not scored
    newcomers: dict[Metric, float]
    bytes_down: int
    bytes_up: int
    seconds: float
    curve: tuple[Point, ...] = ()

    def reached(self, target: float, metric: Metric) -> Point | None:
        """The first evaluated round at or above a target."""
        return next((p for p in self.curve if p.scores[metric] >= target), None)


@dataclass(frozen=True)
class Line:
    """One method in one setting, over seeds."""

    method: str
    setting: str
    seeds: int
    mean: dict[Metric, float]
    std: dict[Metric, float]
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
        return {m: float(report[when][m]) for m in METRICS} if when in report else {}

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
        means = [np.mean([o.scores[metric] for o in found[m]]) for m in present]
        ranks = dict(zip(present, rankdata([-x for x in means]), strict=True))
        first = {o.seed: o.scores[metric] for o in found[methods[0]]}
        for method in present:
            runs = found[method]
            paired = [o.scores[metric] - first[o.seed] for o in runs if o.seed in first]
            lines.append(
                Line(
                    method=method,
                    setting=setting,
                    seeds=len(runs),
                    mean={m: float(np.mean([o.scores[m] for o in runs])) for m in METRICS},
                    std={m: deviation([o.scores[m] for o in runs]) for m in METRICS},
                    after=_mean_of([o.after for o in runs], metric),
                    newcomers=_mean_of([o.newcomers for o in runs], metric),
                    difference=(float(np.mean(paired)), deviation(paired))
                    if paired and method != methods[0]
                    else None,
                    rank=float(ranks[method]),
                    bytes=float(np.mean([o.bytes_down + o.bytes_up for o in runs])),
                    seconds=float(np.mean([o.seconds for o in runs])),
                    targets=tuple(_to_target(runs, target, metric) for target in targets),
                )
            )
    return lines


def _mean_of(reports: Sequence[dict[Metric, float]], metric: Metric) -> float | None:
    return float(np.mean([r[metric] for r in reports])) if all(reports) else None


def _to_target(runs: Sequence[Outcome], target: float, metric: Metric) -> tuple[int, float, float]:
    points = [p for p in (o.reached(target, metric) for o in runs) if p is not None]
    if not points:
        return 0, 0.0, 0.0
    return len(points), float(np.mean([p.round for p in points])), float(np.mean([p.bytes for p in points]))


def cells(line: Line, metric: Metric) -> list[str]:
    """A line as text, in the order of `headings`."""
    difference = "–" if line.difference is None else f"{100 * line.difference[0]:+.2f}"
    if line.difference is not None and line.seeds > 1:
        difference += f" ± {100 * line.difference[1]:.2f}"
    result = [
        line.method,
        *(_percent(line.mean[m], line.std[m] if line.seeds > 1 else None) for m in _ordered(metric)),
        difference,
        f"{line.rank:g}",
        _percent(line.after),
        _percent(line.newcomers),
        f"{line.bytes / 1e6:,.1f}",
        f"{line.seconds:,.1f}",
    ]
    for reached, rounds, count in line.targets:
        share = "" if reached == line.seeds else f" ({reached}/{line.seeds})"
        result += [f"{rounds:g}{share}", f"{count / 1e6:,.1f}{share}"] if reached else ["never", "never"]
    return result


def headings(first: str, metric: Metric, targets: Sequence[float]) -> list[str]:
    """Column headings; `first` is the method the differences refer to."""
    names = [m.replace("_", " ") + " %" for m in _ordered(metric)]
    result = ["method", *names, f"vs {first}", "rank", "fine-tuned %", "newcomers %", "MB", "s"]
    for target in targets:
        result += [f"rounds to {100 * target:g}%", f"MB to {100 * target:g}%"]
    return result


def _ordered(metric: Metric) -> list[Metric]:
    return [metric, *(m for m in METRICS if m != metric)]


def _percent(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def _columns(lines: Sequence[Line], metric: Metric, targets: Sequence[float], first: str) -> list[int]:
    """The columns that are not empty in every line."""
    texts = [cells(line, metric) for line in lines]
    wide = range(len(headings(first, metric, targets)))
    return [c for c in wide if any(text[c] != "–" for text in texts)] if texts else [*wide]


def mean_ranks(lines: Sequence[Line]) -> dict[str, float]:
    """Method → its rank, averaged over settings."""
    methods = dict.fromkeys(line.method for line in lines)
    return {m: float(np.mean([line.rank for line in lines if line.method == m])) for m in methods}


def markdown(lines: Sequence[Line], first: str, metric: Metric, targets: Sequence[float], title: str) -> str:
    """The tables as Markdown, one table per setting."""
    keep = _columns(lines, metric, targets, first)
    parts = [f"# {escapes.markdown(title)}", "", PROTOCOL, ""]
    head = [escapes.markdown(headings(first, metric, targets)[c]) for c in keep]
    for setting in dict.fromkeys(line.setting for line in lines):
        inside = [line for line in lines if line.setting == setting]
        parts += [f"## {escapes.markdown(setting) or 'results'} ({_seeds(inside)})", ""]
        parts += ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
        for line in inside:
            text = cells(line, metric)
            parts.append("| " + " | ".join(escapes.markdown(text[c]) for c in keep) + " |")
        parts.append("")
    if len({line.setting for line in lines}) > 1:
        ranks = sorted(mean_ranks(lines).items(), key=lambda item: item[1])
        words = ", ".join(f"{escapes.markdown(m)} {r:.2f}" for m, r in ranks)
        parts += [f"Mean rank over settings: {words}.", ""]
    return "\n".join(parts)


def _seeds(lines: Sequence[Line]) -> str:
    """How many seeds the lines have: "3 seeds", or "2 to 3 seeds" where runs are missing."""
    least, most = min(line.seeds for line in lines), max(line.seeds for line in lines)
    return plural(most, "seed") if least == most else f"{least} to {plural(most, 'seed')}"


def latex(lines: Sequence[Line], first: str, metric: Metric, targets: Sequence[float]) -> str:
    """The tables as LaTeX (booktabs), one table per setting, the best mean in bold."""
    keep = _columns(lines, metric, targets, first)
    head = [escapes.latex(headings(first, metric, targets)[c]) for c in keep]
    begin = f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    parts: list[str] = []
    for setting in dict.fromkeys(line.setting for line in lines):
        inside = [line for line in lines if line.setting == setting]
        parts += [f"% {printable(setting) or 'results'}", begin, "\\toprule"]
        parts += [" & ".join(head) + " \\\\", "\\midrule"]
        for line in inside:
            text = [escapes.latex(cells(line, metric)[c]) for c in keep]
            if line.rank == min(other.rank for other in inside):
                text[1] = f"\\textbf{{{text[1]}}}"
            parts.append(" & ".join(text) + " \\\\")
        parts += ["\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(parts)


def outcomes_csv(outcomes: Sequence[Outcome]) -> str:
    """The finished runs as CSV, one row per run."""
    columns = ["method", "setting", "seed", *METRICS, *(f"{m}_after_training" for m in METRICS)]
    columns += [*(f"newcomers_{m}" for m in METRICS), "bytes_down", "bytes_up", "seconds"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for o in outcomes:
        scores = [report.get(m, "") for report in (o.scores, o.after, o.newcomers) for m in METRICS]
        names = [csv_cell(o.method), csv_cell(o.setting)]
        writer.writerow([*names, o.seed, *scores, o.bytes_down, o.bytes_up, o.seconds])
    return text.getvalue()


def summary_csv(lines: Sequence[Line], targets: Sequence[float]) -> str:
    """Means over seeds as CSV, one row per method and setting."""
    columns = ["method", "setting", "seeds", *(f"{m}_{s}" for m in METRICS for s in ("mean", "std"))]
    columns += ["difference_mean", "difference_std", "rank", "bytes", "seconds"]
    columns += [f"{what}_{target:g}" for target in targets for what in ("reached", "rounds_to", "bytes_to")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        scores = [part[m] for m in METRICS for part in (line.mean, line.std)]
        reached = [x for n, *rest in line.targets for x in (n, *(rest if n else ("", "")))]
        difference = line.difference or ("", "")
        cost = (line.rank, line.bytes, line.seconds)
        names = [csv_cell(line.method), csv_cell(line.setting)]
        writer.writerow([*names, line.seeds, *scores, *difference, *cost, *reached])
    return text.getvalue()
