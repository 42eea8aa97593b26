# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison as text: Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from feddag.core.text import plural, printable
from feddag.reporting import text as escapes
from feddag.reporting.tables.comparison import SCORED, Difference, Line, Metric, Outcome
from feddag.reporting.text import csv_cell

PROTOCOL = (
    "Final round, the model as served, mean over clients, in percent; ± is the deviation over seeds. "
    "The chosen round is that of the best validation accuracy; last five is the mean of the last five "
    "evaluations. After one local round every client has trained its model once more; methods that adapt a "
    "model before use have a score in that column alone. Proportional accuracy weighs the classes as the "
    "client's own samples do. The 10th percentile is over clients: nine of ten clients have at least this "
    "accuracy. Differences are paired by seed (same data, same cohorts), in brackets the 95% interval of "
    "their mean; win and loss are outside of it, tie is not. n/a: the run ended before the method can act. "
    "Client-epochs count all training, warm-up included. Bytes are both "
    "directions together, without evaluation. Seconds are the time of one run; several runs may have shared "
    "the machine. Rounds and bytes to a target are counted up to the first evaluated round whose mean test "
    "accuracy reaches the target."
)


LOW_HEADING = "10th percentile %"


def cells(line: Line, metric: Metric) -> list[str]:
    """A line as text, in the order of `headings`."""
    scores = [_percent(line.mean[m], line.std[m] if line.seeds > 1 else None) for m in _ordered(metric)]
    if line.adapts:
        scores = ["–" for _ in scores]
    elif line.acts_from:
        scores = [f"n/a (acts from round {line.acts_from})", *("–" for _ in scores[1:])]
    result = [
        line.method,
        *scores,
        "–" if line.adapts else _percent(line.low),
        "–" if line.clusters is None else f"{line.clusters:.3g}",
        difference_text(line.difference),
        "–" if line.rank is None else f"{line.rank:g}",
        "–" if line.adapts else _percent(line.chosen),
        "–" if line.adapts else _percent(line.last),
        _percent(line.after),
        difference_text(line.after_difference),
        _percent(line.newcomers),
        "–" if line.epochs is None else f"{line.epochs:,.0f}",
        f"{line.bytes / 1e6:,.1f}",
        f"{line.seconds:,.1f}",
    ]
    for reached, rounds, count in line.targets:
        share = "" if reached == line.seeds else f" ({reached}/{line.seeds})"
        result += [f"{rounds:g}{share}", f"{count / 1e6:,.1f}{share}"] if reached else ["never", "never"]
    return result


def difference_text(found: Difference | None) -> str:
    """A paired difference in points: mean, 95% interval, and win, tie or loss."""
    if found is None:
        return "–"
    text = f"{100 * found.mean:+.2f}"
    if found.low is not None and found.high is not None:
        text += f" [{100 * found.low:+.2f}, {100 * found.high:+.2f}] {found.verdict}"
    return text


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
        "chosen round %",
        "last five %",
        "after one local round %",
        f"vs {first}, after",
        "newcomers %",
        "client-epochs",
        "MB",
        "s",
    ]
    for target in targets:
        result += [f"rounds to {100 * target:g}%", f"MB to {100 * target:g}%"]
    return result


def _ordered(metric: Metric) -> list[Metric]:
    return [metric, *(m for m in SCORED if m != metric)]


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
    """Method → its rank, averaged over the settings in which it has one."""
    ranks: dict[str, list[float]] = {}
    for line in lines:
        if line.rank is not None:
            ranks.setdefault(line.method, []).append(line.rank)
    return {method: float(np.mean(found)) for method, found in ranks.items()}


def verdicts(lines: Sequence[Line]) -> dict[str, list[int]]:
    """Method → in how many settings it wins, ties and loses against the first one."""
    counted: dict[str, list[int]] = {}
    for line in lines:
        if line.difference is not None and line.difference.verdict:
            counts = counted.setdefault(line.method, [0, 0, 0])
            counts[("win", "tie", "loss").index(line.difference.verdict)] += 1
    return counted


def markdown(
    lines: Sequence[Line],
    first: str,
    metric: Metric,
    targets: Sequence[float],
    title: str,
    notes: Sequence[str] = (),
) -> str:
    """The tables as Markdown, one table per setting."""
    keep = _columns(lines, metric, targets, first)
    parts = [f"# {escapes.markdown(title)}", "", PROTOCOL, ""]
    for note in notes:
        parts += [escapes.markdown(note), ""]
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
        if counted := verdicts(lines):
            words = ", ".join(f"{escapes.markdown(m)} {w}/{t}/{x}" for m, (w, t, x) in counted.items())
            parts += [f"Wins/ties/losses against {escapes.markdown(first)} over settings: {words}.", ""]
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
            if line.rank == min((x.rank for x in inside if x.rank is not None), default=None):
                text[1] = f"\\textbf{{{text[1]}}}"
            parts.append(" & ".join(text) + " \\\\")
        parts += ["\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(parts)


def outcomes_csv(outcomes: Sequence[Outcome]) -> str:
    """The finished runs as CSV, one row per run."""
    parts = ("", "_after_training", "_newcomers", "_10th_percentile", "_chosen", "_last_five")
    columns = ["method", "setting", "seed", *(f"{m}{part}" for part in parts for m in SCORED)]
    columns += ["adapts", "acts_from", "clusters", "client_epochs", "bytes_down", "bytes_up", "seconds"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for o in outcomes:
        reports = (o.scores, o.after, o.newcomers, o.low, o.chosen, o.last)
        scores = [report.get(m, "") for report in reports for m in SCORED]
        names = [csv_cell(o.method), csv_cell(o.setting)]
        cost = (o.clusters, o.epochs, o.bytes_down, o.bytes_up, o.seconds)
        writer.writerow([*names, o.seed, *scores, o.adapts, o.acts_from, *cost])
    return text.getvalue()


def summary_csv(lines: Sequence[Line], targets: Sequence[float]) -> str:
    """Means over seeds as CSV, one row per method and setting."""
    columns = ["method", "setting", "seeds", *(f"{m}_{s}" for m in SCORED for s in ("mean", "std"))]
    columns += ["low", "clusters", "difference_mean", "difference_low", "difference_high", "verdict", "rank"]
    columns += ["chosen", "last_five", "after", "client_epochs", "bytes", "seconds"]
    columns += [f"{what}_{target:g}" for target in targets for what in ("reached", "rounds_to", "bytes_to")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        scores = [part[m] for m in SCORED for part in (line.mean, line.std)] + [line.low, line.clusters]
        reached = [x for n, *rest in line.targets for x in (n, *(rest if n else ("", "")))]
        found = line.difference
        difference = (found.mean, found.low, found.high, found.verdict) if found else ("", "", "", "")
        cost = (line.rank, line.chosen, line.last, line.after, line.epochs, line.bytes, line.seconds)
        names = [csv_cell(line.method), csv_cell(line.setting)]
        writer.writerow([*names, line.seeds, *scores, *difference, *cost, *reached])
    return text.getvalue()
