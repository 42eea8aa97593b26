# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison as text: Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from feddag.core.text import plural, printable
from feddag.reporting import text as escapes
from feddag.reporting.tables.clients import METRICS
from feddag.reporting.tables.comparison import Line, Metric, Outcome
from feddag.reporting.text import csv_cell

PROTOCOL = (
    "Final round, the served model without fine-tuning, mean over clients, in percent; ± is the standard "
    "deviation over seeds. The 10th percentile is over clients: nine of ten clients have at least this "
    "accuracy. Differences are paired by seed: same data, same cohorts. Bytes are both "
    "directions together, without evaluation. Seconds are the time of one run; several runs may have shared "
    "the machine. Rounds and bytes to a target are counted up to the first evaluated round whose mean test "
    "accuracy reaches the target."
)


LOW_HEADING = "10th percentile %"


def cells(line: Line, metric: Metric) -> list[str]:
    """A line as text, in the order of `headings`."""
    difference = "–" if line.difference is None else f"{100 * line.difference[0]:+.2f}"
    if line.difference is not None and line.seeds > 1:
        difference += f" ± {100 * line.difference[1]:.2f}"
    result = [
        line.method,
        *(_percent(line.mean[m], line.std[m] if line.seeds > 1 else None) for m in _ordered(metric)),
        _percent(line.low),
        "–" if line.clusters is None else f"{line.clusters:.3g}",
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
    result = [
        "method",
        *names,
        LOW_HEADING,
        "clusters",
        f"vs {first}",
        "rank",
        "fine-tuned %",
        "newcomers %",
        "MB",
        "s",
    ]
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
    """Method and score, and the other columns that are not empty in every line."""
    texts = [cells(line, metric) for line in lines]
    wide = range(len(headings(first, metric, targets)))
    return [c for c in wide if c < 2 or any(text[c] != "–" for text in texts)] if texts else [*wide]


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
    columns += [*(f"newcomers_{m}" for m in METRICS), *(f"{m}_10th_percentile" for m in METRICS)]
    columns += ["clusters", "bytes_down", "bytes_up", "seconds"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for o in outcomes:
        scores = [report.get(m, "") for report in (o.scores, o.after, o.newcomers, o.low) for m in METRICS]
        names = [csv_cell(o.method), csv_cell(o.setting)]
        writer.writerow([*names, o.seed, *scores, o.clusters, o.bytes_down, o.bytes_up, o.seconds])
    return text.getvalue()


def summary_csv(lines: Sequence[Line], targets: Sequence[float]) -> str:
    """Means over seeds as CSV, one row per method and setting."""
    columns = ["method", "setting", "seeds", *(f"{m}_{s}" for m in METRICS for s in ("mean", "std"))]
    columns += ["low", "clusters", "difference_mean", "difference_std", "rank", "bytes", "seconds"]
    columns += [f"{what}_{target:g}" for target in targets for what in ("reached", "rounds_to", "bytes_to")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        scores = [part[m] for m in METRICS for part in (line.mean, line.std)] + [line.low, line.clusters]
        reached = [x for n, *rest in line.targets for x in (n, *(rest if n else ("", "")))]
        difference = line.difference or ("", "")
        cost = (line.rank, line.bytes, line.seconds)
        names = [csv_cell(line.method), csv_cell(line.setting)]
        writer.writerow([*names, line.seeds, *scores, *difference, *cost, *reached])
    return text.getvalue()
