# SPDX-License-Identifier: Apache-2.0
"""Ours against the paper's: a point per cell, the diagonal is agreement."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from feddag.reporting.text import figure_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[str, str, float, float]  # row, column, published, ours
MARKS = "osv^D<>pPXhd*"


def draw_agreement(points: Sequence[Point], name: str, path: Path) -> None:
    """Save the figure as PNG."""
    from feddag.reporting.figures.save import save_png  # matplotlib takes long to import

    save_png(agreement_figure(points, name), path)


def agreement_figure(points: Sequence[Point], name: str) -> "Figure":
    """Published accuracy to the right, ours upwards; a colour per row, a mark per column."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(8.5, 6), layout="constrained")
    axes = figure.subplots()
    rows = list(dict.fromkeys(row for row, *_ in points))
    columns = list(dict.fromkeys(column for _, column, *_ in points))
    for row, column, published, ours in points:
        mark = MARKS[columns.index(column) % len(MARKS)]
        axes.plot(published, ours, mark, color=_colour(rows.index(row)), markersize=7, alpha=0.85)
    values = [value for *_, published, ours in points for value in (published, ours)]
    low, high = max(0.0, min(values) - 4), min(100.0, max(values) + 4)
    axes.plot([low, high], [low, high], color="grey", linewidth=0.8, linestyle="--", zorder=0)
    axes.set(xlim=(low, high), ylim=(low, high), xlabel="the paper, %", ylabel="here, %")
    axes.set_title(f"{name}: ours against published, a point per cell")
    axes.set_aspect("equal")
    axes.grid(alpha=0.3)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=_colour(i), label=figure_label(row, 30))
        for i, row in enumerate(rows)
    ]
    handles += [
        Line2D(
            [], [], marker=MARKS[i % len(MARKS)], linestyle="", color="black", label=figure_label(column, 30)
        )
        for i, column in enumerate(columns)
    ]
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    return figure


def _colour(i: int) -> str:
    """Twenty colours that differ."""
    from matplotlib import colormaps

    red, green, blue, _ = colormaps["tab20"]((2 * i) % 20 + (i // 10) % 2)
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"
