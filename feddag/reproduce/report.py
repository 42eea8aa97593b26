# SPDX-License-Identifier: Apache-2.0
"""A reproduced table for people: ours beside the paper's, as Markdown, CSV, LaTeX and a figure."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feddag.core.files import write_durably
from feddag.core.host import describe_machine
from feddag.core.text import plural
from feddag.experiment.settings import Experiment
from feddag.reporting import text as escapes
from feddag.reporting.figures.curves import draw_curves
from feddag.reporting.tables.comparison import Outcome, deviation
from feddag.reporting.tables.comparison_text import difference_text
from feddag.reproduce.figure import draw_agreement
from feddag.reproduce.orderings import Ordering, counts, orderings
from feddag.reproduce.plan import Plan, settings_of

WHICH = {
    "final.before": "as served in the final round",
    "newcomers.after": "of the clients that join after the last round, after one local round",
}
Places = Mapping[tuple[str, str], Mapping[int, float]]


@dataclass(frozen=True)
class Found:
    """What was computed: (row, column) → seed → score in percent, and the runs behind it."""

    scores: Places
    outcomes: Mapping[tuple[str, str], Mapping[int, Outcome]]

    def after(self) -> dict[tuple[str, str], dict[int, float]]:
        """Accuracy after one local round, in percent."""
        return {
            place: {seed: 100 * o.after["accuracy"] for seed, o in runs.items() if o.after}
            for place, runs in self.outcomes.items()
        }


def row_names(plan: Plan) -> list[str]:
    """The rows that are shown; of a sweep these are thresholds."""
    if plan.table.kind == "thresholds":
        return list(plan.table.published)
    return [row.name for row in plan.rows]


def write_report(plan: Plan, found: Found, folder: Path) -> None:
    """Write table.md, table.csv, table.tex, agreement.png and curves.png."""
    columns = [c.name for c in plan.columns]
    compared = []
    if plan.table.kind == "accuracy":
        compared = orderings(plan.table, row_names(plan), columns, found.scores)
    files = {
        "table.md": markdown(plan, found, compared),
        "table.csv": table_csv(plan, found),
        "table.tex": latex(plan, found),
    }
    for name, content in files.items():
        write_durably(folder / name, content.encode())
    points = [
        (row, column, published, float(np.mean([*ours.values()])))
        for (row, column), ours in found.scores.items()
        if ours and (published := plan.table.value(row, column)) is not None
    ]
    if points and plan.table.kind == "accuracy":
        draw_agreement(points, plan.table.id, folder / "agreement.png")
    runs = [run for by_seed in found.outcomes.values() for run in by_seed.values()]
    if runs:
        draw_curves(runs, row_names(plan), columns, folder / "curves.png", "accuracy")


def cell_text(ours: Mapping[int, float], published: float | None, digits: int = 2) -> str:
    """ "ours ± deviation (published)"; a dash where something is not known."""
    mine = "–"
    if ours:
        values = [*ours.values()]
        mine = f"{np.mean(values):.{digits}f}" + (
            f" ± {deviation(values):.{digits}f}" if len(values) > 1 else ""
        )
    return f"{mine} ({'–' if published is None else f'{published:g}'})"


def _served(plan: Plan, found: Found, row: str, column: str) -> str:
    """A cell of the main table; a method that could not act yet says so."""
    runs = found.outcomes.get((row, column), {})
    published = plan.table.value(row, column)
    if acts := next((o.acts_from for o in runs.values() if o.acts_from), None):
        return f"n/a, acts from round {acts} ({'–' if published is None else f'{published:g}'})"
    mark = "‡" if any(o.adapts for o in runs.values()) else ""
    digits = 3 if column.endswith(" loss") else 2
    return cell_text(found.scores.get((row, column), {}), published, digits) + mark


def _grid(plan: Plan, cell: Callable[[str, str], str]) -> list[str]:
    """A Markdown table over all rows and columns."""
    columns = [c.name for c in plan.columns]
    lines = [
        "| | " + " | ".join(map(escapes.markdown, columns)) + " |",
        "|---" + "|---:" * len(columns) + "|",
    ]
    for row in row_names(plan):
        cells = [escapes.markdown(cell(row, column)) for column in columns]
        lines.append(f"| {escapes.markdown(row)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def markdown(plan: Plan, found: Found, compared: list[Ordering]) -> str:
    """The table with its setting, sources, orderings and the paper's inconsistencies."""
    table, scale = plan.table, plan.scale
    changed = f" Changed by --set: {', '.join(plan.changes)}." if plan.changes else ""
    runs = [cell for cells in plan.cells.values() for cell in cells]
    done = sum(len(by_seed) for by_seed in found.outcomes.values())
    lines = [f"# {table.id}: {escapes.markdown(table.title)}", ""]
    lines += [f"Scale `{scale.name}`: {escapes.markdown(scale.title + '.' + changed)} {_setting(plan)}", ""]
    lines += [f"Seeds: {', '.join(map(str, plan.seeds))}. {_machine()}", ""]
    if found.outcomes and done < len(runs):
        lines += [f"**Not finished: {done} of {plural(len(runs), 'run')}.** The same command goes on.", ""]
    lines += ["Every cell: ours, mean ± deviation over seeds (the paper's value in brackets).", ""]
    if table.kind == "accuracy":
        lines += [f"## Accuracy {WHICH[table.score]}, in percent", ""]
    lines += _grid(plan, lambda row, column: _served(plan, found, row, column))
    if any(o.adapts for runs in found.outcomes.values() for o in runs.values()):
        lines += [
            "‡ adapts the model on the client's own data before use, for as long as one local round.",
            "",
        ]
    if table.score == "final.before" and found.outcomes:
        after = found.after()
        lines += ["## After one local round", ""]
        lines += _grid(plan, lambda r, c: cell_text(after.get((r, c), {}), table.value(r, c)))
        lines += ["## Cost: client-epochs, MB in both directions", ""]
        lines += _grid(plan, lambda r, c: _cost(found.outcomes.get((r, c), {})))
    if plan.missing:
        lines += ["## Missing data", ""]
        lines += [
            f"- {escapes.markdown(name)}: {escapes.markdown(why)}" for name, why in plan.missing.items()
        ]
        lines += [""]
    if compared:
        lines += _orderings(compared)
    if table.notes:
        lines += ["## Notes", "", *(f"- {escapes.markdown(note)}." for note in table.notes), ""]
    lines += ["## Data", ""]
    lines += [f"- {escapes.markdown(name)}: {escapes.markdown(what)}" for name, what in plan.sources.items()]
    return "\n".join([*lines, ""])


def _machine() -> str:
    """Processor and versions, in words."""
    found = describe_machine()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    cpu = escapes.markdown(f"{found['cpu']}, {plural(found['cores'], 'core')}")
    return f"Machine: {cpu}; Python {found['python']}, {escapes.markdown(versions)}."


def _setting(plan: Plan) -> str:
    """Rounds, clients, epochs as they were computed."""
    settings = settings_of(plan.table, plan.scale, plan.columns[0], plan.changes)
    try:
        e = Experiment.from_settings(settings)
    except Exception:  # of a column that cannot be built; its reason is told elsewhere
        return ""
    clients = plural(e.num_clients, "client") if e.num_clients else "all clients"
    return (
        f"Computed: {clients}, {e.fraction_train:.0%} per round, {plural(e.num_rounds, 'round')} (warm-up "
        f"included), {plural(e.training.local_epochs, 'local epoch')}, batch {e.training.batch_size}, "
        f"learning rate {e.training.lr:g}."
    )


def _cost(runs: Mapping[int, Outcome]) -> str:
    if not runs:
        return "–"
    epochs = [o.epochs for o in runs.values() if o.epochs is not None]
    traffic = np.mean([o.bytes_down + o.bytes_up for o in runs.values()]) / 1e6
    return f"{np.mean(epochs):,.0f}, {traffic:,.0f}" if epochs else f"–, {traffic:,.0f}"


def _orderings(compared: list[Ordering]) -> list[str]:
    """How many pairs of rows stand as in the paper, and those of FedDAG one by one."""
    total = counts(compared)
    lines = ["## Orderings of the paper", ""]
    lines += [
        f"Of {plural(len(compared), 'pair')} of rows that were computed, the paper's order **holds** in "
        f"{total['holds']}, **fails** in {total['fails']}, and **cannot be told** in "
        f"{total['cannot be told']} (a paired 95% interval over seeds includes 0).",
        "",
    ]
    ours = [o for o in compared if "FedDAG" in (o.better, o.worse)] or compared
    lines += [
        "| column | the paper's order | the paper, points | ours, points | |",
        "|---|---|---:|---:|---|",
    ]
    for o in ours:
        points = "–"
        if o.ours is not None:
            points = difference_text(o.ours.scaled(0.01)).rsplit(" ", 1)[0]
        pair = f"{escapes.markdown(o.better)} &gt; {escapes.markdown(o.worse)}"
        shown = escapes.markdown(points)
        lines.append(
            f"| {escapes.markdown(o.column)} | {pair} | {o.published:+.2f} | {shown} | {o.verdict} |"
        )
    return [*lines, ""]


def table_csv(plan: Plan, found: Found) -> str:
    """One row per cell and seed, with everything that was measured."""
    names = ("accuracy_after", "accuracy_chosen", "accuracy_last_five", "proportional_accuracy", "clusters")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["table", "row", "column", "seed", "score", "published", *names, "client_epochs", "bytes"]
    )
    for row in row_names(plan):
        for column in (c.name for c in plan.columns):
            published = plan.table.value(row, column)
            shown = "" if published is None else published
            ours = found.scores.get((row, column), {})
            if not ours:
                writer.writerow([plan.table.id, row, column, "", "", shown])
            for seed, score in sorted(ours.items()):
                o = found.outcomes.get((row, column), {}).get(seed)
                more: list[object] = []
                if o is not None:
                    reports = (o.after, o.chosen, o.last)
                    more = [report.get("accuracy", "") for report in reports]
                    more += [o.scores.get("proportional_accuracy", ""), o.clusters, o.epochs]
                    more += [o.bytes_down + o.bytes_up]
                writer.writerow([plan.table.id, row, column, seed, round(score, 4), shown, *more])
    return out.getvalue()


def latex(plan: Plan, found: Found) -> str:
    """The main table as LaTeX (booktabs)."""
    columns = [c.name for c in plan.columns]
    lines = [f"% {plan.table.id}, scale {plan.scale.name}: ours (published)"]
    lines += [f"\\begin{{tabular}}{{l{'r' * len(columns)}}}", "\\toprule"]
    lines += [" & ".join(["", *map(escapes.latex, columns)]) + " \\\\", "\\midrule"]
    for row in row_names(plan):
        cells = [escapes.latex(_served(plan, found, row, column)) for column in columns]
        lines.append(" & ".join([escapes.latex(row), *cells]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])
