# SPDX-License-Identifier: Apache-2.0
"""Small pieces of plots that several sections share, in the form of plotly.js."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from feddag.reporting.pages.section import compact

MAP_COLOURS = "Viridis"
PERCENT = ".1%"


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": title}, **options}


def share_axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis of shares, shown in percent."""
    return axis(title, tickformat=".0%", **options)


def line(name: str, x: Sequence, y: Any, colour: str, **options: Any) -> dict[str, Any]:
    """A line with a dot at every value; few values get larger dots."""
    return {
        "type": "scatter", "mode": "lines+markers" if len(x) <= 40 else "lines", "name": name, "x": list(x),
        "y": compact(y), "line": {"color": colour, "width": 2}, "marker": {"size": 5}, **options,
    }  # fmt: skip


def band(x: Sequence, low: Any, high: Any, colour: str) -> list[dict[str, Any]]:
    """The space between two curves, filled lightly."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    quiet = {"type": "scatter", "mode": "lines", "x": list(x), "line": {"width": 0}, "showlegend": False,
             "hoverinfo": "skip"}  # fmt: skip
    return [
        {**quiet, "y": compact(low)},
        {**quiet, "y": compact(high), "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.16)"},
    ]


def heat(z: Any, x: Sequence, y: Sequence, unit: str, digits: int = 3, **options: Any) -> dict[str, Any]:
    """A map of values with a colour scale."""
    return {
        "type": "heatmap", "z": compact(z, digits), "x": list(x), "y": list(y), "colorscale": MAP_COLOURS,
        "colorbar": {"title": {"text": unit, "side": "right"}, "thickness": 12, "len": 0.9}, **options,
    }  # fmt: skip


def room_for(names: Sequence[str], each: int = 15, least: int = 260, most: int = 900) -> int:
    """A height for so many rows with names."""
    return int(np.clip(110 + each * len(names), least, most))
