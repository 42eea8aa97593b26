# SPDX-License-Identifier: Apache-2.0
"""The top of a report: the answer in a few sentences and numbers, and a table of the runs."""

from collections.abc import Sequence

import numpy as np

from feddag.core.text import plural
from feddag.reporting.pages.render import human_bytes, human_seconds
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.section import Block, Column, Table


def title(runs: Sequence[RunData]) -> str:
    """The heading of the page."""
    if len(runs) > 1:
        return f"{plural(len(runs), 'run')} side by side"
    return f"{runs[0].method} on {runs[0].dataset}"


def answer(runs: Sequence[RunData]) -> str:
    """What came out, in one or two sentences."""
    if len(runs) > 1:
        scored = [(_accuracy(run), run) for run in runs]
        best = max(((a, run) for a, run in scored if a is not None), key=lambda pair: pair[0], default=None)
        if best is None:
            return "None of the runs has been scored yet."
        return f"{best[1].label} has the highest accuracy: {best[0]:.1%}, mean over clients."
    (run,) = runs
    words = (
        "" if run.result else f"The run is not finished: round {max(run.log.round, 0)} of {run.num_rounds}. "
    )
    accuracy, low = _accuracy(run), _low(run)
    clients = run.log.about.get("clients")
    if accuracy is None:
        return words + "No client has been scored yet."
    assert run.last is not None
    words += f"The models reach {accuracy:.1%} on the test samples of their clients, on average"
    words += f" over {plural(len(run.last.clients), 'client')}" if clients else ""
    words += f"; nine of ten clients have at least {low:.1%}." if low is not None else "."
    if run.clusters:
        words += f" The clients are in {plural(len(run.clusters), 'cluster')}."
    return words


def tiles(runs: Sequence[RunData]) -> list[tuple[str, str]]:
    """The numbers that people look for first; several runs have a table instead."""
    if len(runs) > 1:
        return []
    (run,) = runs
    accuracy, low, last = _accuracy(run), _low(run), run.last
    found = [
        ("mean accuracy", f"{accuracy:.1%}" if accuracy is not None else None),
        ("nine of ten clients have at least", f"{low:.1%}" if low is not None else None),
        ("lowest client", f"{min(last.clients.values()):.1%}" if last and last.clients else None),
        ("clusters", f"{len(run.clusters):,}" if run.clusters else None),
        ("rounds", f"{max(run.log.round, 0)} of {run.num_rounds}"),
        ("sent, both directions", human_bytes(run.log.bytes_down + run.log.bytes_up)),
        ("time of the rounds", human_seconds(run.log.seconds)),
        ("failed answers", f"{run.log.num_failures:,}"),
    ]
    return [(name, value) for name, value in found if value is not None]


def table(runs: Sequence[RunData]) -> Block | None:
    """One row per run, the best first."""
    if len(runs) < 2:
        return None
    columns = [
        Column("run"),
        Column("method"),
        Column("data"),
        Column("round", "number"),
        Column("accuracy", "percent"),
        Column("balanced accuracy", "percent"),
        Column("10th percentile", "percent"),
        Column("clusters", "number"),
        Column("sent", "bytes"),
        Column("time", "seconds"),
        Column("failed answers", "number"),
    ]
    rows = []
    for run in sorted(runs, key=lambda run: -(_accuracy(run) or 0)):
        balanced = run.last.test.get("balanced_accuracy") if run.last else None
        done = f"{max(run.log.round, 0)}" if run.result else f"{max(run.log.round, 0)} of {run.num_rounds}"
        rows.append(
            [run.label, run.method, run.dataset, done, _accuracy(run), balanced, _low(run),
             len(run.clusters) or None, run.log.bytes_down + run.log.bytes_up, run.log.seconds,
             run.log.num_failures]
        )  # fmt: skip
    return Block(
        tables=[Table(columns, rows, note="Means over clients, the model as served, the last round.")]
    )


def _accuracy(run: RunData) -> float | None:
    return run.last.test.get("accuracy") if run.last else None


def _low(run: RunData) -> float | None:
    scores = list(run.last.clients.values()) if run.last else []
    return float(np.percentile(scores, 10)) if len(scores) > 1 else None
