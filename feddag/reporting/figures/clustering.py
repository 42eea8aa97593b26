# SPDX-License-Identifier: Apache-2.0
"""Pictures that show why clients are grouped as they are: arrays in, matplotlib figures out.

Every function returns None where there is nothing to see, so that no empty chart is drawn. Cluster -1 means
that a client is in no cluster.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from scipy.cluster.hierarchy import leaves_list

from feddag.core.clustering import Tree
from feddag.reporting.colours import GREY, cluster_colour, ink_on
from feddag.reporting.text import figure_label

NAMES_SHOWN = 60  # with more clients their names are left out of the pictures
CLASSES_SHOWN = 100
CLUSTERS_IN_GRAPH = 40
RED, BLUE = "#cc3311", "#4477aa"


def leaf_order(linkage_matrix: np.ndarray, n: int) -> np.ndarray:
    """The leaves of a tree from left to right."""
    return np.arange(n) if n < 2 else np.asarray(leaves_list(linkage_matrix))


def draw_matrix(
    matrix_NN: np.ndarray,
    names: Sequence[str],
    labels_N: np.ndarray,
    order_N: np.ndarray,
    title: str,
    unit: str,
) -> Figure | None:
    """A distance matrix; the strip on the left shows the cluster of each client."""
    n = len(names)
    if n < 2 or same_everywhere(matrix_NN):
        return None
    named = n <= NAMES_SHOWN
    side = min(max(4.6, 1.6 + 0.14 * n), 10.0) if named else 5.2
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    strip, axes = figure.subplots(1, 2, width_ratios=(1, 24))
    _draw_strip(strip, labels_N[order_N][:, None])
    image = axes.imshow(
        matrix_NN[np.ix_(order_N, order_N)], aspect="auto", cmap="viridis", interpolation="nearest"
    )
    axes.set(title=figure_label(title, 60), xticks=[], yticks=[])
    strip.set_ylabel("cluster")
    if named:
        shown = [figure_label(names[i], 16) for i in order_N]
        size = 8 if n <= 30 else 6
        axes.set_xticks(range(n), shown, rotation=90, fontsize=size)
        strip.set_yticks(range(n), shown, fontsize=size)
    else:
        axes.set_xlabel(f"{n} clients")
    figure.colorbar(image, ax=axes, label=figure_label(unit))
    return figure


def same_everywhere(matrix_NN: np.ndarray) -> bool:
    """Whether each two different items are equally far apart."""
    apart = matrix_NN[~np.eye(len(matrix_NN), dtype=bool)]
    return bool(len(apart) == 0 or np.ptp(apart) <= 1e-12)


def draw_tree(
    linkage_matrix: np.ndarray, names: Sequence[str], labels_N: np.ndarray, threshold: float
) -> Figure | None:
    """The tree of merges with its cut. A strip below shows the cluster of each leaf."""
    n = len(names)
    if n < 2 or float(linkage_matrix[:, 2].max()) <= 0:
        return None
    figure = Figure(figsize=(10.8, 4.2), layout="constrained")
    axes, strip = figure.subplots(2, 1, height_ratios=(24, 1), sharex=True)
    order_N = leaf_order(linkage_matrix, n)
    axes.add_collection(LineCollection(merge_lines(linkage_matrix, order_N), colors="#666666", linewidths=1))
    axes.axhline(threshold, color=RED, linestyle="--", label=f"cut at {threshold:.3g}")
    axes.legend(loc="upper right")
    top = max(float(linkage_matrix[:, 2].max()), threshold if np.isfinite(threshold) else 0)
    axes.set(title="Tree of merges", ylabel="distance of the merged groups", ylim=(0, 1.06 * top))
    axes.set_xlim(-0.5, n - 0.5)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    _draw_strip(strip, labels_N[order_N][None, :])
    strip.set_yticks([0], ["cluster"], fontsize=8)
    if n <= NAMES_SHOWN:
        strip.set_xticks(range(n), [figure_label(names[i], 16) for i in order_N], rotation=90, fontsize=7)
    else:
        strip.set(xticks=[], xlabel=f"{n} clients")
    return figure


def merge_lines(linkage_matrix: np.ndarray, order_N: np.ndarray) -> list[list[tuple[float, float]]]:
    """One bracket per merge. A loop instead of a recursion, because chains of clients can be long."""
    n = len(order_N)
    across, up = np.zeros(2 * n - 1), np.zeros(2 * n - 1)
    across[order_N] = np.arange(n)
    lines = []
    for step, (a, b, height, _) in enumerate(linkage_matrix):
        left, right, node = int(a), int(b), n + step
        lines.append(
            [
                (across[i], h)
                for i, h in ((left, up[left]), (left, height), (right, height), (right, up[right]))
            ]
        )
        across[node], up[node] = (across[left] + across[right]) / 2, height
    return lines


def _draw_strip(axes: Any, labels: np.ndarray) -> None:
    """The clusters of clients as a strip of colours."""
    colours = ListedColormap([GREY, *(cluster_colour(z) for z in range(int(labels.max(initial=-1)) + 1))])
    axes.imshow(labels, aspect="auto", cmap=colours, vmin=-1.5, vmax=colours.N - 1.5, interpolation="nearest")
    axes.set(xticks=[], yticks=[])


def draw_cuts(
    tree: Tree, in_use: int, silhouette: float | None = None, loss: float | None = None
) -> Figure | None:
    """What other thresholds give. The red dot is what is in use: it can lie off the curve of plain cuts."""
    curves: list[tuple[str, np.ndarray, float | None]] = [
        ("number of clusters", np.asarray(tree.counts_T, dtype=float), float(in_use)),
        ("loss of the cut (drawn up to 1)", np.minimum(tree.losses_T, 1), loss),
        ("mean silhouette", np.asarray(tree.silhouettes_T), silhouette),
    ]
    shown = [c for c in curves if len(c[1]) == len(tree.thresholds_T) and np.isfinite(c[1]).sum() > 1]
    if not shown:
        return None
    figure = Figure(figsize=(3.6 * len(shown), 3.2), layout="constrained")
    for axes, (title, values_T, used) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        axes.plot(tree.thresholds_T, values_T, marker="o", markersize=3, color=BLUE, label="plain cut")
        axes.axvline(tree.threshold, color=RED, linestyle="--", linewidth=1)
        if used is not None:
            words = f"in use: {used:.3g}"
            axes.plot(
                [tree.threshold], [min(used, 1) if "loss" in title else used], "o", color=RED, label=words
            )
        if title == "number of clusters":
            _count_axis(axes, values_T)
        axes.set(title=title, xlabel="threshold")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure


def _count_axis(axes: Any, counts_T: np.ndarray) -> None:
    """Whole numbers; a logarithmic scale where a few large counts would hide the small ones."""
    if np.nanmax(counts_T) > 20 and np.nanmin(counts_T) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def draw_weights(
    weights_N: np.ndarray, names: Sequence[str], labels_N: np.ndarray, order_N: np.ndarray
) -> Figure | None:
    """How much the second view counts for each client; None where it counts the same for all."""
    n = len(names)
    if n < 2 or np.ptp(weights_N) <= 1e-9:
        return None
    figure = Figure(figsize=(10.8, 2.6), layout="constrained")
    axes = figure.subplots()
    colours = [cluster_colour(int(labels_N[i])) for i in order_N]
    axes.bar(np.arange(n), weights_N[order_N], color=colours, width=0.9 if n <= NAMES_SHOWN else 1.0)
    axes.set(title="Weight of the second view", ylim=(0, 1), xlim=(-0.6, n - 0.4), ylabel="weight", xticks=[])
    if n <= NAMES_SHOWN:
        axes.set_xticks(range(n), [figure_label(names[i], 16) for i in order_N], rotation=90, fontsize=7)
    else:
        axes.set_xlabel(f"{n} clients")
    return figure


def largest_classes(counts_ZC: np.ndarray) -> np.ndarray:
    """The classes that `draw_classes` shows: the largest ones if there are too many."""
    return np.sort(np.argsort(-counts_ZC.sum(axis=0), kind="stable")[:CLASSES_SHOWN])


def draw_classes(counts_ZC: np.ndarray, clusters: Sequence[int], class_names: Sequence[str]) -> Figure | None:
    """The share of each class in each cluster; classes are rows, so that their names never overlap."""
    if not len(clusters) or counts_ZC.sum() <= 0:
        return None
    chosen = largest_classes(counts_ZC)
    shares_ZC = counts_ZC / np.maximum(counts_ZC.sum(axis=1, keepdims=True), 1e-12)
    shares_KZ, counts_KZ = shares_ZC[:, chosen].T, counts_ZC[:, chosen].T
    rows, columns = shares_KZ.shape
    figure = Figure(
        figsize=(min(max(4.2, 2.4 + 0.5 * columns), 10.8), 1.2 + rows * (0.28 if rows <= 30 else 0.16)),
        layout="constrained",
    )
    axes = figure.subplots()
    image = axes.imshow(100 * shares_KZ, cmap="Blues", aspect="auto", vmin=0, interpolation="nearest")
    # A tall chart keeps a colour bar of ordinary size.
    shrink = min(1.0, 3.0 / figure.get_figheight())
    figure.colorbar(image, ax=axes, label="% of the cluster's samples", shrink=shrink, anchor=(0, 1))
    axes.set(title="Classes of each cluster", xlabel="cluster")
    shown = [figure_label(class_names[c]) for c in chosen]
    axes.set_yticks(range(rows), shown, fontsize=8 if rows <= 30 else 7)
    if columns <= NAMES_SHOWN:
        axes.set_xticks(range(columns), [str(z) for z in clusters], fontsize=8 if columns <= 20 else 6)
    if rows <= 30 and columns <= 16:
        _write_counts(axes, counts_KZ, shares_KZ)
    return figure


def _write_counts(axes: Any, counts_KZ: np.ndarray, shares_KZ: np.ndarray) -> None:
    for (k, z), count in np.ndenumerate(counts_KZ):
        if count > 0:
            text = f"{count:.0f}" if count < 10_000 else f"{count / 1000:.0f}k"
            ink = "white" if shares_KZ[k, z] > 0.6 * shares_KZ.max() else "#333333"
            axes.text(z, k, text, ha="center", va="center", fontsize=7, color=ink)


def draw_graph(edges: Sequence[tuple[int, int]], sizes: Sequence[int]) -> Figure | None:
    """Which cluster learns from which; `edges` are pairs of learner and source."""
    if not edges or len(sizes) > CLUSTERS_IN_GRAPH:
        return None
    few = len(sizes) <= 16
    figure = Figure(figsize=(5.2, 5.0) if few else (8.0, 7.8), layout="constrained")
    axes = figure.subplots()
    angles = np.linspace(0, 2 * np.pi, len(sizes), endpoint=False) + np.pi / 2
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for learner, source in edges:
        style = {
            "arrowstyle": "-|>",
            "color": cluster_colour(source),
            "shrinkA": 15,
            "shrinkB": 15,
            "lw": 1.4,
        }
        ends = {"xy": places[learner], "xytext": places[source]}
        axes.annotate("", **ends, arrowprops={**style, "connectionstyle": "arc3,rad=0.12"})
    for z, (x, y) in enumerate(places.tolist()):
        axes.scatter(x, y, s=620, color=cluster_colour(z), zorder=3, edgecolors="white", linewidths=2)
        axes.text(x, y, str(z), ha="center", va="center", color=ink_on(cluster_colour(z)), zorder=4)
    axes.set(title="Arrows go from a cluster to those that learn from it", aspect="equal")
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    axes.axis("off")
    return figure
