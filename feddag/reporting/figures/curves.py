# SPDX-License-Identifier: Apache-2.0
"""Learning curves of a comparison: accuracy over rounds, and accuracy over traffic."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feddag.reporting.tables.comparison import Metric, Outcome
from feddag.reporting.text import figure_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "osv^D<>pP*Xhd"


def draw_curves(
    outcomes: Sequence[Outcome], methods: Sequence[str], settings: Sequence[str], path: Path, metric: Metric
) -> None:
    """Save the learning curves as PNG."""
    from feddag.reporting.figures.save import save_png  # matplotlib takes long to import

    save_png(curves_figure(outcomes, methods, settings, metric), path)


def curves_figure(
    outcomes: Sequence[Outcome], methods: Sequence[str], settings: Sequence[str], metric: Metric
) -> "Figure":
    """One column per setting, rounds above and megabytes below; bands are deviations over seeds."""
    from matplotlib.ticker import MaxNLocator

    from feddag.reporting.figures.save import NotebookFigure

    figure = NotebookFigure(figsize=(1.5 + 4.5 * len(settings), 7), layout="constrained")
    axes = figure.subplots(2, len(settings), squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for column, setting in enumerate(settings):
        by_round, by_traffic = axes[:, column]
        for i, method in enumerate(methods):
            runs = [o for o in outcomes if o.method == method and o.setting == setting and o.curve]
            if runs:
                faint = len(methods) > 8
                handles[method] = _draw_method(by_round, by_traffic, runs, metric, _style(i), faint)
        by_round.set_title(figure_label(setting, 60))
        by_round.set_xlabel("round")
        by_round.xaxis.set_major_locator(MaxNLocator(integer=True))
        by_traffic.set_xlabel("MB in both directions")
        by_traffic.set_xscale("symlog", linthresh=1.0)
        for panel in (by_round, by_traffic):
            panel.grid(alpha=0.3)
    for row in (0, 1):
        axes[row, 0].set_ylabel(metric.replace("_", " ") + " %")
    if handles:
        labels = [figure_label(method, 40) for method in handles]
        figure.legend(list(handles.values()), labels, loc="outside right upper", fontsize="small")
    return figure


def _style(i: int) -> dict[str, Any]:
    """The line of method i: ten colours, then the same colours dashed."""
    return {
        "color": f"C{i % 10}",
        "linestyle": "-" if i < 10 else "--",
        "marker": MARKS[i % len(MARKS)],
        "markersize": 3,
        "linewidth": 1.2,
    }


def _draw_method(
    by_round: Any,
    by_traffic: Any,
    runs: Sequence[Outcome],
    metric: Metric,
    style: dict[str, Any],
    faint: bool,
) -> Any:
    """Draw mean and deviation of one method into both panels; return the line for the legend."""
    # A round that some run could not score is left out of the mean over runs.
    common = set.intersection(*({p.round for p in o.curve} for o in runs))
    curves = [[p for p in o.curve if p.round in common] for o in runs]
    scores_SN = 100 * np.array([[p.scores[metric] for p in curve] for curve in curves])
    rounds_N = np.array([p.round for p in curves[0]])
    traffic_N = np.array([[p.bytes for p in curve] for curve in curves]).mean(0) / 1e6
    mean_N, spread_N = scores_SN.mean(0), scores_SN.std(0, ddof=1 if len(runs) > 1 else 0)
    for axes, places in ((by_round, rounds_N), (by_traffic, traffic_N)):
        (line,) = axes.plot(places, mean_N, **style)
        band = {"color": style["color"], "alpha": 0.05 if faint else 0.15, "linewidth": 0}
        axes.fill_between(places, mean_N - spread_N, mean_N + spread_N, **band)
    return line
