# SPDX-License-Identifier: Apache-2.0
"""Pictures of a federation: samples of its clients, and samples per class and client."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from feddag.core.seeds import Seed
from feddag.data.federation import Federation
from feddag.data.summary import client_rows
from feddag.reporting.figures.save import save_png
from feddag.reporting.text import figure_label

GREY, INK, ACCENT = "#8a8a8a", "#222222", "#3b6fb6"
CLIENTS_SHOWN, SAMPLES_SHOWN = 10, 8


def plot_classes_by_clients(federation: Federation, path: Path) -> None:
    """Save a PNG: how many training samples of each class each client holds."""
    save_png(draw_classes_by_clients(federation), path, dpi=120, bbox_inches="tight")


def draw_classes_by_clients(federation: Federation) -> Figure:
    """Classes are rows, clients are columns; clients of one planted group stand side by side."""
    rows = client_rows(federation)
    counts_CN = np.array([row.counts for row in rows]).T
    classes, clients = counts_CN.shape
    figure = Figure(figsize=(min(14, max(5, 2.5 + 0.16 * clients)), min(12, 2.6 + 0.24 * min(classes, 40))))
    top, axes = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3.2])
    top.bar(np.arange(clients), counts_CN.sum(axis=0), width=0.9, color=GREY)
    top.set_ylabel("samples")
    shown = np.ma.masked_equal(counts_CN, 0)
    image = axes.imshow(
        shown,
        aspect="auto",
        cmap="Blues",
        norm=PowerNorm(0.5, vmin=0, vmax=max(1, counts_CN.max())),
        interpolation="nearest",
    )
    names = federation.class_names or tuple(str(c) for c in range(classes))
    if classes <= 40:
        axes.set_yticks(range(classes), [figure_label(name, 16) for name in names], fontsize=8)
    else:
        axes.set_ylabel("class")
    if clients <= 40:
        axes.set_xticks(
            range(clients),
            [figure_label(row.client, 20) + ("*" if row.newcomer else "") for row in rows],
            rotation=90,
            fontsize=7,
        )
    axes.set_xlabel("client" + (" (* joins later)" if federation.newcomers else ""))
    _mark_groups(top, axes, [row.group for row in rows])
    for spine in ("top", "right"):
        top.spines[spine].set_visible(False)
    figure.colorbar(image, ax=[top, axes], label="training samples", fraction=0.03, pad=0.01)
    figure.suptitle(
        figure_label(f"{federation.source.dataset}: {federation.notes.get('partition', '')}", 110),
        fontsize=9,
        color=INK,
        x=0.01,
        ha="left",
    )
    return figure


def _mark_groups(top: Any, axes: Any, groups: list[str]) -> None:
    """Draw lines between planted groups, and write their names where there is room."""
    starts = [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1]]
    if len(starts) < 2:
        return
    for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
        for axis in (top, axes):
            if start:
                axis.axvline(start - 0.5, color=INK, linewidth=0.8)
        if len(starts) <= 12:
            top.annotate(
                figure_label(groups[start], 28),
                ((start + end - 1) / 2, 1.02),
                xycoords=("data", "axes fraction"),
                ha="left" if len(starts) > 4 else "center",
                va="bottom",
                rotation=35 if len(starts) > 4 else 0,
                fontsize=7,
                color=INK,
            )


def plot_samples(federation: Federation, path: Path) -> None:
    """Save a PNG: some samples of some clients, and how many samples of each class these clients hold."""
    save_png(draw_samples(federation), path, bbox_inches="tight")


def draw_samples(federation: Federation) -> Figure:
    """One row per client; one client of each planted group comes first."""
    chosen = _some_clients(federation)
    width = 0.75 * SAMPLES_SHOWN + 3.2
    if not chosen:
        figure = Figure(figsize=(width, 1))
        figure.text(0.5, 0.5, "No client holds a training sample.", ha="center", va="center")
        return figure
    figure = Figure(figsize=(width, 0.95 * len(chosen) + 0.7))
    grid = figure.add_gridspec(len(chosen), SAMPLES_SHOWN + 3, wspace=0.12, hspace=0.55)
    for line, client in enumerate(chosen):
        examples = federation.examples(client)
        rng = (Seed(0) / "shown" / client).numpy()
        for column, i in enumerate(rng.permutation(len(examples))[:SAMPLES_SHOWN]):
            axis = figure.add_subplot(grid[line, column])
            _draw(axis, examples.x[i], federation)
            name = _class_name(federation, int(examples.y[i]))
            axis.set_title(name, fontsize=6 if len(name) < 12 else 4.5, pad=1.5, color=INK)
            axis.set_xticks([])
            axis.set_yticks([])
            if column == 0:
                group = federation.groups.get(client)
                words = "" if group is None else federation.group_names.get(group, "")
                axis.set_ylabel(
                    "\n".join(figure_label(part) for part in (client, *words.split(", "))),
                    fontsize=6,
                    rotation=0,
                    ha="right",
                    va="center",
                    labelpad=8,
                )
        bars = figure.add_subplot(grid[line, SAMPLES_SHOWN:])
        bars.bar(np.arange(federation.num_classes), examples.counts(), color=ACCENT, width=0.8)
        bars.set_xlim(-0.6, federation.num_classes - 0.4)
        bars.tick_params(labelsize=6, length=2, pad=1)
        bars.yaxis.tick_right()
        bars.set_xticks(range(federation.num_classes) if federation.num_classes <= 12 else [])
        for spine in ("top", "left"):
            bars.spines[spine].set_visible(False)
        if line == 0:
            bars.set_title("training samples per class", fontsize=7, color=INK)
    return figure


def _some_clients(federation: Federation) -> list[str]:
    """One client of each planted group, then others, until the picture is full."""
    first_of_group = {g: c for c, g in sorted(federation.groups.items(), reverse=True)}
    chosen = [first_of_group[g] for g in sorted(first_of_group)][:CLIENTS_SHOWN]
    rest = [c for c in federation.ids if c not in chosen]
    chosen += rest[: max(0, min(CLIENTS_SHOWN, len(federation.ids)) - len(chosen))]
    return [c for c in chosen if len(federation.clients[c].train)]


def _class_name(federation: Federation, c: int) -> str:
    return figure_label(federation.class_names[c], 18) if federation.class_names else str(c)


def _constants(federation: Federation) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    return [(federation.scaling.mean, (0.0,)), (federation.scaling.std, (1.0,))]


def _draw(axis: Any, x: np.ndarray, federation: Federation) -> None:
    """One sample: an image, curves over time, a text, or bars."""
    if x.ndim == 3:
        pixels = np.moveaxis(x, 0, -1).astype(float) / federation.scaling.unit
        if pixels.shape[-1] == 1:
            axis.imshow(pixels[..., 0], cmap="gray", vmin=0, vmax=1)
        else:
            axis.imshow(np.clip(pixels[..., :3], 0, 1))
    elif x.ndim == 2:
        axis.plot(x.T, linewidth=0.4)
    elif x.dtype == np.uint8 and federation.class_names and len(federation.class_names) > int(x.max()):
        text = "".join(federation.class_names[c].replace("\\n", " ") for c in x)
        lines = [text[i : i + 16] for i in range(0, len(text), 16)]
        axis.text(
            0.5,
            0.5,
            "\n".join(figure_label(line) for line in lines),
            fontsize=3.2,
            ha="center",
            va="center",
            family="monospace",
        )
    else:
        mean, std = (np.array(values or default) for values, default in _constants(federation))
        axis.bar(np.arange(len(x)), (x / federation.scaling.unit - mean) / std, color=GREY)
