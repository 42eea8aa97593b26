# SPDX-License-Identifier: Apache-2.0
"""The pictures of a clustering page: which of them there are, and their files."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from feddag.core.clustering import Clustering
from feddag.reporting.figures import clustering as figures
from feddag.reporting.figures.save import save_png_and_svg
from feddag.reporting.pages.clustering import learning_edges
from feddag.reporting.pages.cuts import CutFacts


@dataclass(frozen=True)
class Picture:
    """One picture that was drawn."""

    file: str  # without ending; there is a PNG and an SVG
    title: str
    svg: str


def draw_pictures(
    folder: Path, clustering: Clustering, facts: CutFacts | None, class_names: list[str]
) -> dict[str, list[Picture]]:
    """Draw and save everything worth drawing, by the part of the page that it belongs to."""
    drawn: dict[str, list[Picture]] = {}

    def add(part: str, title: str, file: str, figure: Figure | None) -> None:
        if figure is not None:
            drawn.setdefault(part, []).append(Picture(file, title, save_png_and_svg(figure, folder / file)))

    labels_N, order_N = labels_and_order(clustering)
    for k, (name, view) in enumerate(clustering.views.items()):
        figure = figures.draw_matrix(view.matrix_NN, clustering.clients, labels_N, order_N, name, view.unit)
        add("views", name, f"distances-{k + 1}-{_slug(name)}".rstrip("-"), figure)
    tree, used = clustering.tree, clustering.clusters.labels()
    if tree is not None and facts is not None:
        leaves_L = np.array([used.get(c, -1) for c in tree.clients], dtype=np.int64)
        figure = figures.draw_tree(tree.linkage_matrix, tree.clients, leaves_L, tree.threshold)
        add("tree", "Tree of merges", "tree", figure)
        figure = figures.draw_cuts(tree, len(clustering.clusters), facts.silhouette, facts.loss)
        add("cuts", "Other thresholds", "thresholds", figure)
    if clustering.weights_N is not None:
        figure = figures.draw_weights(clustering.weights_N, clustering.clients, labels_N, order_N)
        add("weights", "Weight of the second view", "weights", figure)
    if clustering.counts_NC is not None:
        counts_ZC = cluster_counts(clustering)
        known = [z for z in range(len(counts_ZC)) if counts_ZC[z].sum() > 0]
        add("classes", "Classes of each cluster", "classes",
            figures.draw_classes(counts_ZC[known], known, class_names))  # fmt: skip
    sizes = [len(members) for members in clustering.clusters.members]
    add("graph", "Who learns from whom", "graph", figures.draw_graph(learning_edges(clustering), sizes))
    return drawn


def labels_and_order(clustering: Clustering) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of each measured client, and the order to draw them: as in the tree, else by cluster."""
    used = clustering.clusters.labels()
    labels_N = np.array([used.get(c, -1) for c in clustering.clients], dtype=np.int64)
    place: dict[str, int] = {}
    if clustering.tree is not None:
        leaves = clustering.tree.clients
        order = figures.leaf_order(clustering.tree.linkage_matrix, len(leaves))
        place = {leaves[i]: k for k, i in enumerate(order)}
    last = len(place)
    keys = [
        (place.get(c, last), int(z), i)
        for i, (c, z) in enumerate(zip(clustering.clients, labels_N, strict=True))
    ]
    return labels_N, np.array([i for *_, i in sorted(keys)], dtype=np.int64)


def cluster_counts(clustering: Clustering) -> np.ndarray:
    """Class counts of each cluster, over the clients that told theirs; noise below zero counts as zero."""
    if clustering.sampled is not None and len(clustering.sampled.counts_ZC) == len(clustering.clusters):
        return np.maximum(clustering.sampled.counts_ZC, 0)
    counts_NC = np.maximum(np.asarray(clustering.counts_NC, dtype=np.float64), 0)
    labels_N, _ = labels_and_order(clustering)
    clusters = range(len(clustering.clusters))
    return np.array([counts_NC[labels_N == z].sum(axis=0) for z in clusters]).reshape(-1, counts_NC.shape[1])


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
