# SPDX-License-Identifier: Apache-2.0
"""Plots of one run, as matplotlib figures: a notebook shows them, `figure.savefig` keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from feddag.core.errors import InvalidInput
from feddag.reporting.figures.save import NotebookFigure
from feddag.reporting.text import figure_label

NAMES_SHOWN = 60  # clients that have their name below their bar


def accuracy_figure(rows: Sequence[Mapping[str, str]]) -> Figure:
    """Mean accuracy over rounds; the band is one deviation over clients."""
    scored = [row for row in rows if row["accuracy"]]
    if not scored:
        raise InvalidInput("no round was evaluated yet: there is nothing to plot")
    figure = NotebookFigure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    rounds = [int(row["round"]) for row in scored]
    for column, label in (("accuracy", "accuracy"), ("balanced_accuracy", "balanced accuracy")):
        mean = [100 * float(row[column]) for row in scored]
        spread = [100 * float(row[f"{column}_std"] or 0) for row in scored]
        (line,) = axes.plot(rounds, mean, marker="o", markersize=3, label=label)
        low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(rounds, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(xlabel="round", ylabel="% of test samples right, mean over clients")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def clients_figure(rows: Sequence[Mapping[str, str]]) -> Figure:
    """A bar per client, clusters side by side, the best client of a cluster first."""
    scored = [row for row in rows if row["accuracy"]]
    if not scored:
        raise InvalidInput("no client was scored: there is nothing to plot")
    ordered = sorted(scored, key=lambda row: (int(row["cluster"] or -1), -float(row["accuracy"])))
    figure = NotebookFigure(figsize=(max(5.0, min(14.0, 1.5 + 0.22 * len(ordered))), 4), layout="constrained")
    axes = figure.subplots()
    clusters = list(dict.fromkeys(row["cluster"] for row in ordered))
    for number, cluster in enumerate(clusters):
        places = [i for i, row in enumerate(ordered) if row["cluster"] == cluster]
        heights = [100 * float(ordered[i]["accuracy"]) for i in places]
        label = f"cluster {cluster}" if cluster else None
        axes.bar(places, heights, width=0.85, color=f"C{number % 10}", label=label)
    if len(ordered) <= NAMES_SHOWN:
        names = [figure_label(row["client"], 20) for row in ordered]
        axes.set_xticks(range(len(ordered)), names, rotation=90, fontsize="x-small")
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(ordered):,} clients")
    axes.set(ylabel="% of test samples right", ylim=(0, 100), xlim=(-0.7, len(ordered) - 0.3))
    if clusters != [""]:
        figure.legend(loc="outside upper right", ncols=min(len(clusters), 6), fontsize="small")
    return figure


def cost_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Megabytes by task, to clients and back."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    if not tasks:
        raise InvalidInput("nobody was asked anything yet: there is nothing to plot")
    figure = NotebookFigure(figsize=(7, 1.2 + 0.45 * len(tasks)), layout="constrained")
    axes = figure.subplots()
    for shift, column, label in ((-0.2, "bytes_down", "to clients"), (0.2, "bytes_up", "from clients")):
        sums = [sum(row[column] for row in rows if row["task"] == task) / 1e6 for task in tasks]
        axes.barh([i + shift for i in range(len(tasks))], sums, height=0.38, label=label)
    axes.set_yticks(range(len(tasks)), [figure_label(task, 30) for task in tasks])
    axes.invert_yaxis()
    axes.set_xlabel("MB")
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
    return figure
