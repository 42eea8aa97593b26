# SPDX-License-Identifier: Apache-2.0
"""Sections: what the phases of the runs cost, and what went wrong."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from feddag.core.text import plural
from feddag.reporting.colours import PALETTE
from feddag.reporting.pages.render import human_bytes, human_seconds
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis
from feddag.reporting.pages.section import Block, Column, Plot, Table

PHASES = (
    "warm-up",
    "signature",
    "clustering",
    "primary",
    "secondary",
    "training",
    "averaging",
    "evaluation",
)  # in this order
FAILURES_SHOWN = 40


def phases(runs: Sequence[RunData]) -> Block | None:
    """Bytes and seconds of each phase, one bar per run."""
    started = [run for run in runs if run.log.costs]
    if not started:
        return None
    found = {phase for run in started for phase in run.log.costs}
    order = [p for p in PHASES if p in found] + sorted(found - set(PHASES))
    labels = [run.label for run in started]
    plots = []
    for key, title, unit, value in _COSTS:
        traces = []
        for k, phase in enumerate(order):
            amounts = [value(run.log.costs[phase]) if phase in run.log.costs else 0 for run in started]
            if any(amounts):
                traces.append(
                    {"type": "bar", "orientation": "h", "name": phase, "y": labels, "x": amounts,
                     "marker": {"color": PALETTE[k % len(PALETTE)]}}
                )  # fmt: skip
        names = axis("", autorange="reversed", showticklabels=len(started) > 1)
        layout: dict[str, Any] = {
            "barmode": "stack",
            "xaxis": axis(unit),
            "yaxis": names,
            "hovermode": "closest",
        }
        legend = {"y": 1.04, "yanchor": "bottom", "traceorder": "normal"}
        layout |= {"legend": legend, "showlegend": True, "margin": {"l": 20, "r": 14, "t": 70, "b": 44}}
        if traces:
            plots.append(Plot(f"cost-{key}", title, traces, layout, 220 + 34 * len(started)))
    return Block([_sentence(started)], plots, [_table(started, order)])


_COSTS = (
    (
        "bytes",
        "Bytes by phase",
        "MB sent, both directions",
        lambda c: round((c.bytes_down + c.bytes_up) / 1e6, 4),
    ),
    (
        "seconds",
        "Seconds of computing by phase",
        "seconds, all clients and the server together",
        lambda c: round(c.client_seconds + c.server_seconds, 4),
    ),
)


def _sentence(runs: Sequence[RunData]) -> str:
    """What the first run sent most bytes for; evaluation is told apart, because its cost is not counted."""
    sent = {phase: cost.bytes_down + cost.bytes_up for phase, cost in runs[0].log.costs.items()}
    evaluation = sent.pop("evaluation", 0)
    total, most = sum(sent.values()), max(sent, key=lambda phase: sent[phase], default="")
    if not total:
        return "Nothing was sent but for evaluation, which does not count."
    name = f"{runs[0].label}: " if len(runs) > 1 else ""
    words = f"{name}{human_bytes(total)} were sent, {sent[most] / total:.0%} of them for {most}."
    if evaluation:
        words += f" Evaluation sent {human_bytes(evaluation)} more; the cost of a run does not count it."
    return words


def _table(runs: Sequence[RunData], order: Sequence[str]) -> Table:
    columns = [Column("run")] if len(runs) > 1 else []
    columns += [Column("phase"), Column("to clients", "bytes"), Column("to the server", "bytes")]
    columns += [Column("clients computed", "seconds"), Column("the server computed", "seconds")]
    rows = []
    for run in runs:
        for phase in order:
            cost = run.log.costs.get(phase)
            if cost is not None:
                name = [run.label] if len(runs) > 1 else []
                amounts = (cost.bytes_down, cost.bytes_up, cost.client_seconds, cost.server_seconds)
                rows.append([*name, phase, *(amount or None for amount in amounts)])
    return Table(columns, rows)


def failures(run: RunData) -> Block | None:
    """Who did not answer, when and why; and what the run warned of."""
    log = run.log
    if not log.about:
        return None
    tables, plots = [], []
    if not log.num_failures:
        sentences = ["Every client answered every question."]
    else:
        by_client = Counter(f.client for f in log.failures)
        name, most = by_client.most_common(1)[0]
        sentences = [
            f"{plural(log.num_failures, 'question')} had no valid answer, "
            f"from {plural(len(by_client), 'client')}; {name} failed most often ({most})."
        ]
        per_round = Counter(f.round for f in log.failures)
        rounds = sorted(per_round)
        bars = {"type": "bar", "x": rounds, "y": [per_round[r] for r in rounds], "name": "failures",
                "marker": {"color": PALETTE[1]}}  # fmt: skip
        layout = {"xaxis": axis("round"), "yaxis": axis("failures", rangemode="tozero")}
        plots.append(Plot("failures", "Failures in each round", [bars], layout, 260, wide=True))
        rows = [[f.round, f.client, f.task, f.reason] for f in log.failures[:FAILURES_SHOWN]]
        note = (
            ""
            if len(rows) == log.num_failures
            else f"The first {len(rows)} of {log.num_failures:,}; events.jsonl has all."
        )
        columns = [Column("round", "number"), Column("client"), Column("question"), Column("reason")]
        tables.append(Table(columns, rows, note=note))
    if log.warnings:
        rows = [[text] for text in dict.fromkeys(log.warnings)]
        tables.append(Table([Column("the run warned")], rows[:FAILURES_SHOWN]))
    return Block(sentences, plots, tables)


def rounds_block(run: RunData) -> Block | None:
    """How long the rounds took."""
    if len(run.log.rounds) < 3:
        return None
    x = [r for r, _, _ in run.log.rounds if r]
    y = [round(s, 4) for r, s, _ in run.log.rounds if r]
    bars = {"type": "bar", "x": x, "y": y, "marker": {"color": PALETTE[0]}, "name": "seconds"}
    layout = {"xaxis": axis("round"), "yaxis": axis("seconds", rangemode="tozero")}
    mean = sum(y) / len(y)
    return Block(
        [f"A round took {human_seconds(mean)} on average, the start {human_seconds(run.log.rounds[0][1])}."],
        [Plot("seconds-of-rounds", "Seconds of each round", [bars], layout, 260, wide=True)],
    )
