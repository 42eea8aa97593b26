# SPDX-License-Identifier: Apache-2.0
"""Section: accuracy against rounds, bytes and seconds, all runs in the same plots."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from feddag.reporting.colours import PALETTE
from feddag.reporting.pages.render import human_bytes, human_seconds
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis, band, line, share_axis
from feddag.reporting.pages.section import Block, Plot
from feddag.reporting.tables.run_log import Evaluation

LOW, HIGH = 10, 90  # percentiles over clients


def block(runs: Sequence[RunData]) -> Block | None:
    """Three plots with the same curves: what a round, a byte and a second bring."""
    scored = {run.label: (k, _scored(run)) for k, run in enumerate(runs)}
    scored = {label: found for label, found in scored.items() if found[1]}
    if not scored:
        return None
    plots = []
    for key, title, places in _AGAINST:
        traces: list[dict] = []
        for label, (k, evaluations) in scored.items():
            x = [places(e) for e in evaluations]
            colour = PALETTE[k % len(PALETTE)]
            if len(runs) == 1:
                traces += _spread(x, evaluations, colour)
            name = label if len(runs) > 1 else "accuracy, mean over clients"
            traces.append(line(name, x, [e.test["accuracy"] for e in evaluations], colour))
        layout: dict[str, Any] = {"xaxis": axis(title), "yaxis": share_axis("accuracy")}
        layout |= {"hovermode": "x unified", "showlegend": sum("name" in trace for trace in traces) > 1}
        plots.append(Plot(f"accuracy-against-{key}", f"Against {key}", traces, layout, 360))
    return Block(sentences=[_sentence(runs, scored)], plots=plots)


_AGAINST = (
    ("rounds", "round", lambda e: e.round),
    ("bytes", "MB sent, both directions", lambda e: round(e.bytes / 1e6, 3)),
    ("seconds", "seconds of the rounds", lambda e: round(e.seconds, 2)),
)


def _scored(run: RunData) -> list[Evaluation]:
    return [e for e in run.log.evaluations if e.test.get("accuracy") is not None]


def _spread(x: Sequence, evaluations: Sequence[Evaluation], colour: str) -> list[dict]:
    """The band that holds eight of ten clients, and the balanced accuracy where it says something else."""
    low, high = (
        [np.percentile(list(e.clients.values()), p) if e.clients else np.nan for e in evaluations]
        for p in (LOW, HIGH)
    )
    traces = band(x, low, high, colour) if any(len(e.clients) > 1 for e in evaluations) else []
    balanced = [e.test.get("balanced_accuracy", np.nan) for e in evaluations]
    plain = [e.test["accuracy"] for e in evaluations]
    if np.isfinite(balanced).all() and not np.allclose(balanced, plain, atol=1e-3):
        traces.append(
            line("balanced accuracy", x, balanced, PALETTE[1], line={"color": PALETTE[1], "dash": "dot"})
        )
    return traces


def _sentence(runs: Sequence[RunData], scored: dict[str, tuple[int, list[Evaluation]]]) -> str:
    if len(runs) > 1:
        best = max(scored, key=lambda label: scored[label][1][-1].test["accuracy"])
        top = scored[best][1][-1]
        return (
            f"{best} ends highest, at {top.test['accuracy']:.1%} after {human_bytes(top.bytes)}. "
            "Every curve is the mean over clients of the accuracy on their own test samples."
        )
    ((_, evaluations),) = scored.values()
    first, last = evaluations[0], evaluations[-1]
    words = f"{last.test['accuracy']:.1%} at round {last.round}"
    if first is not last:
        words = f"{first.test['accuracy']:.1%} at round {first.round}, {words}"
    return (
        f"{words[0].upper()}{words[1:]}, after {human_bytes(last.bytes)} and {human_seconds(last.seconds)}. "
        "Accuracy is measured on each client's own test samples; the light band holds eight of ten clients."
    )
