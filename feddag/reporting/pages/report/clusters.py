# SPDX-License-Identifier: Apache-2.0
"""Sections: curves per cluster, which classes each client holds, and why the clusters are what they are."""

import numpy as np

from feddag.core.text import plural
from feddag.reporting.colours import cluster_colour
from feddag.reporting.pages.report.clients import NAMED_ROWS, main_classes
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis, heat, line, room_for, share_axis
from feddag.reporting.pages.section import Block, Column, Plot, Table

CLUSTERS_SHOWN = 40  # curves; the table has all


def curves(run: RunData) -> Block | None:
    """The mean accuracy of the clients of each cluster."""
    if not run.clusters or run.last is None:
        return None
    names, scores_NE = run.accuracies
    place = {client: i for i, client in enumerate(names)}
    rounds = [e.round for e in run.log.evaluations]
    traces = []
    for z, members in list(run.clusters.items())[:CLUSTERS_SHOWN]:
        inside = [place[c] for c in members if c in place]
        if inside and rounds:
            scores_E = [_mean(scores_NE[inside, e]) for e in range(len(rounds))]
            traces.append(line(f"cluster {z} ({len(members)})", rounds, scores_E, cluster_colour(z)))
    table = _table(run)
    scored = [(row[0], row[2]) for row in table.rows if row[2] is not None]
    sentences = []
    if len(scored) > 1:
        low, high = min(scored, key=lambda pair: pair[1]), max(scored, key=lambda pair: pair[1])
        sentences.append(
            f"Cluster {high[0]} has the highest mean ({high[1]:.1%}), "
            f"cluster {low[0]} the lowest ({low[1]:.1%}). "
            "Clients are counted in the cluster that they have now."
        )
    layout = {"xaxis": axis("round"), "yaxis": share_axis("mean accuracy"), "hovermode": "x unified"}
    plots = (
        [Plot("clusters", "Mean accuracy of each cluster", traces, layout, 400, wide=True)] if traces else []
    )
    return Block(sentences, plots, [table])


def _mean(scores: np.ndarray) -> float:
    known = scores[np.isfinite(scores)]
    return float(known.mean()) if len(known) else float("nan")


def _table(run: RunData) -> Table:
    """One row per cluster."""
    assert run.last is not None
    scores, held = run.last.clients, run.holdings
    columns = [Column("cluster", "cluster"), Column("clients", "number"), Column("mean accuracy", "percent")]
    columns += [Column("lowest client", "percent"), Column("lowest client's name")]
    columns += [Column("holds")] if held else []
    rows = []
    for z, members in run.clusters.items():
        known = [c for c in members if c in scores]
        lowest = min(known, key=lambda c: (scores[c], c), default=None)
        row = [z, len(members), float(np.mean([scores[c] for c in known])) if known else None]
        row += [scores[lowest] if lowest else None, lowest]  # type: ignore[list-item]
        if held:
            counts = np.sum([held.counts[c] for c in members if c in held.counts] or [[0]], axis=0)
            row.append(main_classes(counts.tolist(), held.class_names, most=5))  # type: ignore[arg-type]
        rows.append(row)
    return Table(columns, rows)


def classes(run: RunData) -> Block | None:
    """A map: each column is a client, each row a class, brightness is the share of the client's samples."""
    held = run.holdings
    if held is None or not held.counts:
        return None
    clients = sorted(held.counts, key=lambda c: (run.labels.get(c, -1), held.groups.get(c, -1), c))
    counts_NC = np.array([held.counts[c] for c in clients], dtype=np.float64)
    shares_NC = counts_NC / np.maximum(counts_NC.sum(axis=1, keepdims=True), 1)
    names = [
        held.class_names[c] if c < len(held.class_names) else f"class {c}" for c in range(counts_NC.shape[1])
    ]
    named = len(clients) <= NAMED_ROWS
    map_ = heat(shares_NC.T, clients, names, "share of a client's samples",
                hovertemplate="%{x} holds %{y}: %{z:.1%}<extra></extra>")  # fmt: skip
    map_["colorbar"]["tickformat"] = ".0%"
    x = axis(
        "" if named else "client", type="category", showticklabels=named, tickangle=-90, tickfont={"size": 9}
    )
    y = axis("", type="category", autorange="reversed", showticklabels=len(names) <= 100)
    order = (
        "cluster by cluster" if run.labels else "planted group by planted group" if held.groups else "by name"
    )
    sentence = f"{plural(len(clients), 'client')} ({order}) and {plural(len(names), 'class', 'classes')}. "
    sentence += "Clients with the same bright cells hold the same classes."
    layout = {"xaxis": x, "yaxis": y, "shapes": _borders(run, clients)}
    plot = Plot(
        "classes", "What every client holds", [map_], layout, room_for(names, 18, 300, 900), wide=True
    )
    return Block([sentence], [plot])


def _borders(run: RunData, clients: list[str]) -> list[dict]:
    """White lines between clusters."""
    labels = [run.labels.get(c, -1) for c in clients]
    return [
        {"type": "line", "x0": i - 0.5, "x1": i - 0.5, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"color": "#ffffff", "width": 1.5}}
        for i in range(1, len(labels)) if labels[i] != labels[i - 1]
    ]  # fmt: skip


def why(run: RunData) -> Block | None:
    """Why the clusters are what they are; made when the clustering was at hand."""
    return run.clustering
