# SPDX-License-Identifier: Apache-2.0
"""Sections: the accuracy of every client, who is served worst, and every client over the rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feddag.core.text import plural
from feddag.reporting.colours import PALETTE, cluster_colour
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis, heat, room_for, share_axis
from feddag.reporting.pages.section import Block, Column, Plot, Table, compact

WORST_SHOWN = 12
NAMED_ROWS = 60  # more clients than this have no names beside a map
POINTS_SHOWN = 300  # per cluster; beyond, only the box and its outliers


def distribution(runs: Sequence[RunData]) -> Block | None:
    """The share of clients at or below each accuracy, one curve per run."""
    traces, lows = [], {}
    for k, run in enumerate(runs):
        last = run.last
        if last is None or not last.clients:
            continue
        scores = np.sort(list(last.clients.values()))
        names = sorted(last.clients, key=lambda client: (last.clients[client], client))
        lows[run.label] = float(np.percentile(scores, 10))
        shares = np.arange(1, len(scores) + 1) / len(scores)
        traces.append(
            {"type": "scatter", "mode": "lines+markers" if len(scores) <= 60 else "lines", "name": run.label,
             "x": compact(scores), "y": compact(shares), "text": names, "marker": {"size": 5},
             "line": {"shape": "hv", "color": PALETTE[k % len(PALETTE)]},
             "hovertemplate": "%{text}: %{x:.1%}<br>%{y:.0%} of the clients have this or less<extra></extra>"}
        )  # fmt: skip
    if not traces:
        return None
    layout = {
        "xaxis": share_axis("accuracy of a client"),
        "yaxis": share_axis("share of the clients", range=[0, 1.02]),
        "showlegend": len(traces) > 1,
    }
    words = "; ".join(
        f"{f'{label}: ' if len(runs) > 1 else ''}nine of ten clients have at least {low:.1%}"
        for label, low in lows.items()
    )
    plot = Plot("clients", "Accuracy of every client", traces, layout)
    if len(runs) > 1:
        return Block([f"{words}. A curve further to the right is better."], [plot])
    run = next(run for run in runs if run.label in lows)
    sentence = f"{words[0].upper()}{words[1:]}. Each step of the curve is a client."
    return Block([sentence], [plot, _boxes(run)], [worst(run)])


def _boxes(run: RunData) -> Plot:
    """A box per cluster (or one for all) with every client as a dot."""
    assert run.last is not None
    groups: dict[str, tuple[str, list[str]]] = {}
    for client in run.last.clients:
        z = run.labels.get(client, -1)
        name = f"cluster {z}" if z >= 0 else ("no cluster" if run.labels else "all clients")
        groups.setdefault(name, (cluster_colour(z) if run.labels else PALETTE[0], []))[1].append(client)
    order = sorted(groups, key=lambda name: (name == "no cluster", len(name), name))
    traces = [
        {"type": "box", "name": name, "y": compact([run.last.clients[c] for c in members]), "text": members,
         "boxpoints": "all" if len(members) <= POINTS_SHOWN else "outliers", "jitter": 0.5, "pointpos": 0,
         "marker": {"color": colour, "size": 5, "opacity": 0.75}, "line": {"color": colour},
         "hovertemplate": "%{text}: %{y:.1%}<extra></extra>"}
        for name, (colour, members) in ((name, groups[name]) for name in order)
    ]  # fmt: skip
    layout = {"xaxis": axis(""), "yaxis": share_axis("accuracy"), "showlegend": False}
    return Plot(
        "clients-by-cluster", "Clients of each cluster" if run.labels else "All clients", traces, layout
    )


def worst(run: RunData) -> Table:
    """The clients with the lowest accuracy, by name, with what they hold."""
    assert run.last is not None
    scores = run.last.clients
    rows_of = {row["client"]: row for row in run.rows}
    lowest = sorted(scores, key=lambda client: (scores[client], client))[:WORST_SHOWN]
    columns = [Column("client")]
    columns += [Column("cluster", "cluster")] if run.labels else []
    columns += [Column("accuracy", "percent"), Column("test samples", "number")]
    columns += [Column("training samples", "number"), Column("holds")] if run.holdings else []
    columns += [Column("note")] if any(row.get("note") for row in run.rows) else []
    rows = []
    for client in lowest:
        row: Mapping[str, str] = rows_of.get(client, {})
        cells: list[Any] = [client]
        cells += [run.labels.get(client)] if run.labels else []
        cells += [
            scores[client],
            int(row["test_samples"]) if row.get("test_samples", "").isdecimal() else None,
        ]
        if run.holdings:
            counts = run.holdings.counts.get(client, ())
            cells += [sum(counts), main_classes(counts, run.holdings.class_names)]
        cells += [row.get("note", "")] if columns[-1].name == "note" else []
        rows.append(cells)
    title = "Lowest accuracy" if len(scores) > WORST_SHOWN else "All clients, lowest accuracy first"
    note = (
        f"{len(rows)} of {plural(len(scores), 'client')}; clients.csv has all."
        if len(rows) < len(scores)
        else ""
    )
    return Table(columns, rows, title, note)


def main_classes(counts: Sequence[int], names: Sequence[str], most: int = 3) -> str:
    """The largest classes of a client with their shares."""
    total = sum(counts)
    if not total:
        return "no training samples"
    order = sorted((c for c in range(len(counts)) if counts[c]), key=lambda c: (-counts[c], c))
    words = ", ".join(
        f"{names[c] if c < len(names) else f'class {c}'} {counts[c] / total:.0%}" for c in order[:most]
    )
    return words + (f" and {len(order) - most} more" if len(order) > most else "")


def over_rounds(run: RunData) -> Block | None:
    """Every client's accuracy at every evaluation, as a map in the order of the clusters."""
    names, scores_NE = run.accuracies
    if len(names) < 2 or scores_NE.shape[1] < 2:
        return None
    mean_N = np.array([np.nanmean(row) if np.isfinite(row).any() else 0 for row in scores_NE])
    order = sorted(range(len(names)), key=lambda i: (run.labels.get(names[i], -1), -mean_N[i], names[i]))
    rounds = [e.round for e in run.log.evaluations]
    shown = [names[i] for i in order]
    map_ = heat(
        scores_NE[order], rounds, shown, "accuracy", hovertemplate="%{y}, round %{x}: %{z:.1%}<extra></extra>"
    )
    map_["colorbar"]["tickformat"] = ".0%"
    named = len(names) <= NAMED_ROWS
    layout = {
        "xaxis": axis("round"),
        "yaxis": axis("" if named else "client", type="category", autorange="reversed", showticklabels=named),
    }
    order_words = "cluster by cluster, the best of each first" if run.labels else "the best first"
    height = room_for(names, 14, 260, 560) if named else 520
    return Block(
        [
            f"Each row is a client ({order_words}), each column an evaluation. "
            "A dark row is a client that learns little."
        ],
        [Plot("clients-over-rounds", "Every client over the rounds", [map_], layout, height, wide=True)],
    )
