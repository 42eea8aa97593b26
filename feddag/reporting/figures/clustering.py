# SPDX-License-Identifier: Apache-2.0
"""Pictures that say why clients were grouped as they are; arrays in, matplotlib figures out."""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import dendrogram

PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994455",
    "#117733", "#ddaa33", "#332288", "#88ccee",
)  # fmt: skip


def colour(k: int) -> str:
    """The colour of cluster k; colours repeat after twelve."""
    return PALETTE[k % len(PALETTE)]


def leaf_order(linkage_matrix: np.ndarray, n: int) -> np.ndarray:
    """Items from left to right under the dendrogram."""
    if n < 2:
        return np.arange(n)
    return np.array(dendrogram(linkage_matrix, no_plot=True)["leaves"])


def draw_matrix(
    matrix_NN: np.ndarray, labels_N: np.ndarray, order_N: np.ndarray, title: str, unit: str
) -> Figure:
    """A distance matrix in dendrogram order; the strip on the left shows the clusters."""
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    strip, axes = figure.subplots(1, 2, width_ratios=(1, 24))
    clusters = labels_N[order_N][:, None]
    colours = ListedColormap([colour(k) for k in range(int(labels_N.max(initial=0)) + 1)])
    strip.imshow(
        clusters, aspect="auto", cmap=colours, vmin=-0.5, vmax=colours.N - 0.5, interpolation="nearest"
    )
    strip.set(xticks=[], yticks=[], ylabel="cluster")
    image = axes.imshow(
        matrix_NN[np.ix_(order_N, order_N)], aspect="auto", cmap="viridis", interpolation="nearest"
    )
    axes.set(title=title, xticks=[], yticks=[], xlabel="clients, in the order of the dendrogram")
    figure.colorbar(image, ax=axes, label=unit)
    return figure


def draw_dendrogram(
    linkage_matrix: np.ndarray, labels_N: np.ndarray, names: list[str], threshold: float
) -> Figure:
    """The tree of merges, its leaves in the colours of the clusters, and the cut."""
    figure = Figure(figsize=(10.8, 3.6), layout="constrained")
    axes = figure.subplots()
    if len(linkage_matrix):
        shown = dendrogram(
            linkage_matrix, ax=axes, labels=names, color_threshold=0, above_threshold_color="#777777"
        )
        for tick, leaf in zip(axes.get_xticklabels(), shown["leaves"], strict=True):
            tick.set(color=colour(int(labels_N[leaf])), fontsize=7 if len(names) <= 60 else 4)
        axes.axhline(threshold, color="#cc3311", linestyle="--", label=f"cut at {threshold:.3f}")
        axes.legend(loc="upper right")
    axes.set(title="Dendrogram", ylabel="proximity at which groups merge")
    return figure


def draw_curves(
    thresholds_T: np.ndarray,
    counts_T: np.ndarray,
    losses_T: np.ndarray,
    silhouettes_T: np.ndarray,
    chosen: float,
) -> Figure:
    """Number of clusters, the paper's loss and the silhouette against the threshold."""
    figure = Figure(figsize=(10.8, 3.0), layout="constrained")
    panels = figure.subplots(1, 3)
    curves = (counts_T, np.minimum(losses_T, 1), silhouettes_T)
    titles = ("clusters Z", "loss L (Eq. 10, clipped at 1)", "mean silhouette")
    for axes, values, title in zip(panels, curves, titles, strict=True):
        axes.plot(thresholds_T, values, marker="o", markersize=3, color="#4477aa")
        axes.axvline(chosen, color="#cc3311", linestyle="--", linewidth=1)
        axes.set(title=title, xlabel="threshold α")
        axes.grid(alpha=0.3)
    return figure


def draw_weights(weights_N: np.ndarray, labels_N: np.ndarray, order_N: np.ndarray) -> Figure:
    """How much the gradient view counts for each client; the rest is the data view's."""
    figure = Figure(figsize=(10.8, 2.2), layout="constrained")
    axes = figure.subplots()
    bars = [colour(int(labels_N[i])) for i in order_N]
    axes.bar(np.arange(len(order_N)), weights_N[order_N], color=bars, width=1.0)
    axes.set(title="Fusion weight of the gradient view", ylim=(0, 1), xticks=[], ylabel="w", xlabel="clients")
    return figure


def draw_classes(counts_ZC: np.ndarray, class_names: list[str]) -> Figure:
    """Samples of each class in each cluster."""
    figure = Figure(figsize=(5.2, 0.9 + 0.34 * len(counts_ZC) + 0.9), layout="constrained")
    axes = figure.subplots()
    shares = counts_ZC / np.maximum(counts_ZC.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", aspect="auto", vmin=0, vmax=max(float(shares.max(initial=0)), 1e-9))
    axes.set(title="Classes held by each cluster", ylabel="cluster")
    axes.set_xticks(range(len(class_names)), class_names, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(counts_ZC)))
    if counts_ZC.size <= 400:
        for z, row in enumerate(counts_ZC):
            for c, count in enumerate(row):
                dark = shares[z, c] > 0.6 * shares.max()
                text = f"{count:.0f}" if count < 10_000 else f"{count / 1000:.0f}k"
                axes.text(
                    c, z, text, ha="center", va="center", fontsize=6, color="white" if dark else "#444444"
                )
    return figure


def draw_graph(learners_E: np.ndarray, sources_E: np.ndarray, sizes_Z: np.ndarray) -> Figure:
    """Who learns from whom: an arrow from each source cluster to its learner."""
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.subplots()
    angles = np.linspace(0, 2 * np.pi, len(sizes_Z), endpoint=False) + np.pi / 2
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for learner, source in zip(learners_E, sources_E, strict=True):
        style = {"arrowstyle": "-|>", "color": colour(int(source)), "shrinkA": 16, "shrinkB": 16, "lw": 1.4}
        axes.annotate(
            "",
            xy=places[learner],
            xytext=places[source],
            arrowprops={**style, "connectionstyle": "arc3,rad=0.12"},
        )
    for z, place in enumerate(places):
        x, y = (float(v) for v in place)
        axes.scatter(x, y, s=620, color=colour(z), zorder=3, edgecolors="white", linewidths=2)
        axes.text(
            x, y, f"{z}\n({sizes_Z[z]:.0f})", ha="center", va="center", fontsize=7, color="white", zorder=4
        )
    axes.set(
        title="Complementarity graph: source → learner",
        xlim=(-1.35, 1.35),
        ylim=(-1.35, 1.35),
        aspect="equal",
    )
    axes.axis("off")
    return figure
