# SPDX-License-Identifier: Apache-2.0
"""Learning curves of a comparison as a picture: accuracy over rounds and over traffic."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from feddag.reporting.tables.comparison import Metric, Outcome

MARKS = "osv^D<>pP*Xhd"


def draw_curves(
    outcomes: Sequence[Outcome], methods: Sequence[str], settings: Sequence[str], path: Path, metric: Metric
) -> None:
    """Save a PNG: a column a setting, above by round, below by megabytes; bands are deviations over seeds."""
    figure = Figure(figsize=(1.5 + 4.5 * len(settings), 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(settings), squeeze=False, sharey=True)
    for column, setting in enumerate(settings):
        for i, method in enumerate(methods):
            runs = [o for o in outcomes if o.method == method and o.setting == setting and o.curve]
            if not runs:
                continue
            # Runs of one method are scored in the same rounds; a shared prefix guards against odd ones.
            n = min(len(o.curve) for o in runs)
            scores_SN = 100 * np.array([[p.scores[metric] for p in o.curve[:n]] for o in runs])
            rounds_N = np.array([p.round for p in runs[0].curve[:n]])
            traffic_N = np.array([[p.bytes for p in o.curve[:n]] for o in runs]).mean(0) / 1e6
            mean_N, spread_N = scores_SN.mean(0), scores_SN.std(0, ddof=1 if len(runs) > 1 else 0)
            style = {
                "color": f"C{i % 10}",
                "linestyle": "-" if i < 10 else "--",  # ten colours, more methods
                "marker": MARKS[i % len(MARKS)],
                "markersize": 3,
                "linewidth": 1.2,
            }
            for row, places in enumerate((rounds_N, traffic_N)):
                axes[row, column].plot(places, mean_N, label=method, **style)
                axes[row, column].fill_between(
                    places,
                    mean_N - spread_N,
                    mean_N + spread_N,
                    color=style["color"],
                    alpha=0.15 if len(methods) <= 8 else 0.05,
                    linewidth=0,
                )
        axes[0, column].set_title(setting or "")
        axes[0, column].set_xlabel("round")
        axes[0, column].xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[1, column].set_xlabel("MB in both directions")
        axes[1, column].set_xscale("symlog", linthresh=1.0)
        for row in (0, 1):
            axes[row, column].grid(alpha=0.3)
    for row in (0, 1):
        axes[row, 0].set_ylabel(metric.replace("_", " ") + " %")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=130)
