# SPDX-License-Identifier: Apache-2.0
"""Why the clusters are what they are, as a block of a report: the clustering page with plots to explore."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from feddag.core.clustering import Clustering, Tree
from feddag.reporting.colours import cluster_colour, ink_on
from feddag.reporting.figures.clustering import (
    CLUSTERS_IN_GRAPH,
    NAMES_SHOWN,
    largest_classes,
    leaf_order,
    merge_lines,
    same_everywhere,
)
from feddag.reporting.pages.clustering import (
    PlantedTruth,
    learning_edges,
    named_classes,
    summarise_clustering,
)
from feddag.reporting.pages.content import agreement_table, answer, cluster_rows, how, notes
from feddag.reporting.pages.cuts import CutFacts, cut_facts
from feddag.reporting.pages.pictures import cluster_counts, labels_and_order
from feddag.reporting.pages.report.traces import axis, heat, room_for
from feddag.reporting.pages.section import Block, Column, Plot, Table, compact

MOST_CELLS = 300  # rows of a distance map; more clients are shown as means of neighbours
MEMBERS_NAMED = 40  # per cluster, in the table
RED, BLUE, LINE = "#cc3311", "#4477aa", "#8a949e"


def why_block(
    clustering: Clustering, truth: PlantedTruth | None = None, class_names: Sequence[str] = ()
) -> Block:
    """Sentences, tables and plots; whatever the method does not report is left out."""
    facts, class_names = cut_facts(clustering), named_classes(clustering, class_names)
    summary = summarise_clustering(clustering, truth, facts)
    plots = [*_views(clustering), *_tree(clustering), *_cuts(clustering, facts), *_weights(clustering)]
    plots += [*_classes(clustering, class_names), *_graph(clustering)]
    sentences = [answer(summary), *how(clustering, summary, facts), *notes(clustering)]
    if any(plot.key.startswith("distances") for plot in plots):
        sentences.append(
            "In the maps of distances, dark means near: dark squares are groups of similar clients."
        )
    tables = [_clusters(clustering, class_names)]
    agreement = agreement_table(clustering, truth) if "ari" in summary else None
    if agreement is not None:
        groups = (Column(name, "number") for name in agreement["groups"])
        columns = [Column("cluster", "cluster"), *groups]
        rows = [[z, *(count or None for count in counts)] for z, counts in enumerate(agreement["counts"])]
        tables.append(Table(columns, rows, "Clients of each planted group in each cluster"))
    return Block(sentences, plots, tables, tables_first=True)


def _clusters(clustering: Clustering, class_names: Sequence[str]) -> Table:
    found = cluster_rows(clustering, class_names)
    has_classes = clustering.counts_NC is not None
    has_sources = clustering.sources is not None and len(clustering.clusters) > 1
    columns = [Column("cluster", "cluster"), Column("clients", "number")]
    columns += [Column("main classes")] if has_classes else []
    columns += [Column("learns from")] if has_sources else []
    rows = []
    for row, members in zip(found, clustering.clusters.members, strict=True):
        cells = [row["number"], row["size"]]
        cells += [row["classes"]] if has_classes else []
        cells += [row["sources"]] if has_sources else []
        more = f" and {len(members) - MEMBERS_NAMED:,} more" if len(members) > MEMBERS_NAMED else ""
        rows.append([*cells, ", ".join(members[:MEMBERS_NAMED]) + more])
    return Table([*columns, Column("members")], rows)


def _views(clustering: Clustering) -> list[Plot]:
    """How far apart the clients are, one map per view, in the order of the tree."""
    _, order_N = labels_and_order(clustering)
    plots = []
    for k, (name, view) in enumerate(clustering.views.items()):
        if len(clustering.clients) < 2 or same_everywhere(view.matrix_NN):
            continue
        matrix, names = thinned(
            view.matrix_NN[np.ix_(order_N, order_N)], [clustering.clients[i] for i in order_N]
        )
        hover = "%{y} and %{x}: %{z:.4g}<extra></extra>"
        map_ = heat(matrix, names, names, view.unit, digits=4, hovertemplate=hover)
        few = len(names) <= NAMES_SHOWN
        size = {"type": "category", "showticklabels": few, "tickfont": {"size": 8}}
        layout = {"xaxis": axis("", tickangle=-90, **size), "yaxis": axis("", autorange="reversed", **size)}
        plots.append(Plot(f"distances-{k + 1}", name, [map_], layout, 460))
    return plots


def thinned(matrix_NN: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """At most so many rows and columns that a page can hold: neighbours are averaged."""
    n = len(names)
    if n <= MOST_CELLS:
        return matrix_NN, names
    edges = np.linspace(0, n, MOST_CELLS + 1).astype(int)
    sums = np.add.reduceat(np.add.reduceat(matrix_NN, edges[:-1], axis=0), edges[:-1], axis=1)
    sizes = np.diff(edges)
    shown = [f"{names[a]} to {names[b - 1]}" if b - a > 1 else names[a] for a, b in pairwise(edges)]
    return sums / np.outer(sizes, sizes), shown


def _tree(clustering: Clustering) -> list[Plot]:
    """The tree of merges, its cut, and the cluster of each leaf as a dot below."""
    tree = clustering.tree
    if tree is None or len(tree.clients) < 2 or float(tree.linkage_matrix[:, 2].max()) <= 0:
        return []
    order_N = leaf_order(tree.linkage_matrix, len(tree.clients))
    x: list[float | None] = []
    y: list[float | None] = []
    for bracket in merge_lines(tree.linkage_matrix, order_N):
        x += [*(round(float(px), 3) for px, _ in bracket), None]
        y += [*(round(float(py), 5) for _, py in bracket), None]
    used = clustering.clusters.labels()
    leaves = [tree.clients[i] for i in order_N]
    numbers = [used.get(client, -1) for client in leaves]
    lines = {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": "merges", "hoverinfo": "skip",
             "line": {"color": LINE, "width": 1}, "showlegend": False}  # fmt: skip
    words = [
        f"{client}, cluster {z}" if z >= 0 else client for client, z in zip(leaves, numbers, strict=True)
    ]
    dots = {"type": "scatter", "mode": "markers", "x": list(range(len(leaves))), "y": [0] * len(leaves),
            "text": words, "name": "clients", "showlegend": False, "cliponaxis": False,
            "marker": {"color": [cluster_colour(z) for z in numbers], "size": 7, "symbol": "square"},
            "hovertemplate": "%{text}<extra></extra>"}  # fmt: skip
    layout: dict[str, Any] = {
        "xaxis": axis("clients", showticklabels=False, showgrid=False, zeroline=False),
        "yaxis": axis("distance of the merged groups", rangemode="tozero"),
    }
    if np.isfinite(tree.threshold):
        layout |= _cut_line(tree.threshold)
    return [Plot("tree", "Tree of merges and its cut", [lines, dots], layout, 360, wide=True)]


def _cut_line(threshold: float) -> dict[str, Any]:
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": threshold, "y1": threshold}
    text = {"xref": "paper", "x": 1, "y": threshold, "yanchor": "bottom", "showarrow": False}
    return {
        "shapes": [shape | {"line": {"color": RED, "dash": "dash", "width": 1.5}}],
        "annotations": [text | {"text": f"cut at {threshold:.3g}", "font": {"color": RED}}],
    }


def _cuts(clustering: Clustering, facts: CutFacts | None) -> list[Plot]:
    """What other thresholds would give; the red dot is what is in use."""
    tree = clustering.tree
    if tree is None or facts is None:
        return []
    in_use = float(len(clustering.clusters))
    curves = (
        ("counts", "Clusters at other thresholds", "clusters", tree.counts_T, in_use),
        ("loss", "Loss at other thresholds (up to 1)", "loss", np.minimum(tree.losses_T, 1), facts.loss),
        (
            "silhouette",
            "Silhouette at other thresholds",
            "mean silhouette",
            tree.silhouettes_T,
            facts.silhouette,
        ),
    )
    return [plot for curve in curves if (plot := _curve(tree, *curve)) is not None]


def _curve(
    tree: Tree, key: str, title: str, unit: str, values: np.ndarray, used: float | None
) -> Plot | None:
    values_T = np.asarray(values, dtype=np.float64)
    if len(values_T) != len(tree.thresholds_T) or np.isfinite(values_T).sum() < 2:
        return None
    dots: dict[str, Any] = {"type": "scatter", "mode": "lines+markers", "name": "plain cut"}
    dots |= {"x": compact(tree.thresholds_T, 5), "y": compact(values_T, 5), "marker": {"size": 4}}
    traces = [dots | {"line": {"color": BLUE}}]
    if used is not None and np.isfinite(tree.threshold):
        y_used = round(min(used, 1.0) if key == "loss" else used, 5)
        dot = {"type": "scatter", "mode": "markers", "name": f"in use: {used:.3g}", "y": [y_used]}
        traces.append(dot | {"x": [round(tree.threshold, 5)], "marker": {"color": RED, "size": 10}})
    many = key == "counts" and np.nanmax(values_T) > 20 and np.nanmin(values_T) > 0
    y = axis(unit, type="log", dtick=1) if many else axis(unit)
    return Plot(f"thresholds-{key}", title, traces, {"xaxis": axis("threshold"), "yaxis": y}, 320)


def _weights(clustering: Clustering) -> list[Plot]:
    """How much the second view counted for each client."""
    weights_N = clustering.weights_N
    if weights_N is None or len(weights_N) < 2 or np.ptp(weights_N) <= 1e-9:
        return []
    labels_N, order_N = labels_and_order(clustering)
    names = [clustering.clients[i] for i in order_N]
    bars = {"type": "bar", "x": names, "y": compact(weights_N[order_N]), "name": "weight",
            "marker": {"color": [cluster_colour(int(labels_N[i])) for i in order_N]}}  # fmt: skip
    few = len(names) <= NAMES_SHOWN
    layout = {
        "xaxis": axis("", type="category", showticklabels=few, tickangle=-90, tickfont={"size": 9}),
        "yaxis": axis("weight of the second view", range=[0, 1]),
    }
    return [Plot("weights", "How much the second view counted", [bars], layout, 280, wide=True)]


def _classes(clustering: Clustering, class_names: Sequence[str]) -> list[Plot]:
    """The share of each class in each cluster."""
    if clustering.counts_NC is None:
        return []
    counts_ZC = cluster_counts(clustering)
    known = [z for z in range(len(counts_ZC)) if counts_ZC[z].sum() > 0]
    if not known:
        return []
    chosen = largest_classes(counts_ZC)
    shares = counts_ZC[known] / counts_ZC[known].sum(axis=1, keepdims=True)
    names, clusters = [class_names[c] for c in chosen], [f"cluster {z}" for z in known]
    map_ = heat(shares[:, chosen].T, clusters, names, "share of the cluster's samples",
                hovertemplate="%{x} holds %{y}: %{z:.1%}<extra></extra>")  # fmt: skip
    map_["colorbar"]["tickformat"] = ".0%"
    layout = {"xaxis": axis("", type="category"), "yaxis": axis("", type="category", autorange="reversed")}
    return [
        Plot("classes-of-clusters", "Classes of each cluster", [map_], layout, room_for(names, 18, 300, 900))
    ]


def _graph(clustering: Clustering) -> list[Plot]:
    """Who learns from whom: arrows go from a source to its learner."""
    edges, sizes = learning_edges(clustering), [len(m) for m in clustering.clusters.members]
    if not edges or len(sizes) > CLUSTERS_IN_GRAPH:
        return []
    angles = np.linspace(0, 2 * np.pi, len(sizes), endpoint=False) + np.pi / 2
    x, y = np.round(np.cos(angles), 4).tolist(), np.round(np.sin(angles), 4).tolist()
    arrows = [
        {"x": x[learner], "y": y[learner], "ax": x[source], "ay": y[source], "xref": "x", "yref": "y",
         "axref": "x", "ayref": "y", "text": "", "showarrow": True, "arrowhead": 2, "arrowwidth": 1.6,
         "arrowcolor": cluster_colour(source), "standoff": 20, "startstandoff": 16}
        for learner, source in edges
    ]  # fmt: skip
    learns = {
        z: ", ".join(str(q) for p, q in edges if p == z) or "no other cluster" for z in range(len(sizes))
    }
    nodes = {"type": "scatter", "mode": "markers+text", "x": x, "y": y, "name": "clusters",
             "text": [str(z) for z in range(len(sizes))],
             "customdata": [f"cluster {z}, learns from {learns[z]}" for z in range(len(sizes))],
             "hovertemplate": "%{customdata}<extra></extra>",
             "textfont": {"color": [ink_on(cluster_colour(z)) for z in range(len(sizes))]},
             "marker": {"size": 30, "color": [cluster_colour(z) for z in range(len(sizes))]}}  # fmt: skip
    bare = {"visible": False, "range": [-1.35, 1.35]}
    layout = {
        "annotations": arrows,
        "xaxis": {**bare},
        "yaxis": {**bare, "scaleanchor": "x"},
        "showlegend": False,
    }
    return [Plot("graph", "Arrows go from a cluster to those that learn from it", [nodes], layout, 420)]
