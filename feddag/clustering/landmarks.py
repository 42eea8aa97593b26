# SPDX-License-Identifier: Apache-2.0
"""Clustering of very many items: some of them, the landmarks, are clustered, and all others are placed.

    landmarks   m items drawn by a seed are clustered with the whole choice (`cluster_whole`)
    others      read in blocks; each joins the cluster whose anchors are nearest on average (`placing.py`)
    strays      items that are far from every cluster may be a group of which the landmarks have too few
                members: they are clustered once more, beside the anchors, and may open clusters

Time grows with N · anchors + m², memory with m² and with N small numbers: there is no N x N array.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels, row_blocks
from feddag.clustering.complementarity import (
    ComplementarityGraph,
    cluster_alignment,
    complementarity_graph,
    mean_between,
)
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.outliers import confidence
from feddag.clustering.pipeline import ClusteringResult, cluster_whole
from feddag.clustering.placing import Anchors, Everyone, Placed, anchors_at, choose_anchors
from feddag.clustering.proximity import proximity_among

READ_AT_ONCE = 1024
"""Items that are in memory at the same time, besides landmarks, anchors and strays."""


class ItemReader(Protocol):
    """Items that are read when they are needed, because together they would not fit into memory."""

    def __len__(self) -> int:
        """Number of items."""
        ...

    def read(self, rows: IntArray, views: tuple[str, ...] | None) -> tuple[IntArray, Items]:
        """Those of the rows that could be read, and their items; `views` are needed, None: all."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Items that are in memory, or in mapped files, as a reader."""

    items: Items

    def __len__(self) -> int:
        return len(self.items)

    def read(self, rows: IntArray, views: tuple[str, ...] | None) -> tuple[IntArray, Items]:
        """All of the rows."""
        return rows, self.items.take(rows)


class Notebook:
    """What is known of each of N items: a few numbers."""

    def __init__(self, num_items: int, num_classes: int) -> None:
        self.labels_N = np.full(num_items, -1)  # -1: it could not be read
        self.counts_NC = np.zeros((num_items, num_classes))
        self.sure_N, self.second_N = np.zeros(num_items), np.full(num_items, -1)
        self.unlike_N = np.zeros(num_items, dtype=bool)

    def note(self, rows: IntArray, placed: Placed, counts: FloatArray | None = None) -> None:
        """Items that were placed."""
        self.labels_N[rows], self.unlike_N[rows] = placed.labels_M, placed.unlike_M
        self.sure_N[rows], self.second_N[rows] = placed.sure_M, placed.second_M
        if counts is not None:
            self.counts_NC[rows] = counts


class Strays:
    """The first items that are far from every cluster, with all that they tell."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: IntArray = np.zeros(0, dtype=np.int64)
        self.parts: list[Items] = []

    def add(self, rows: IntArray, items: Items, unlike_M: np.ndarray) -> None:
        """Keep those that are unlike, while there is room."""
        found = np.flatnonzero(unlike_M)[: self.most - len(self.rows)]
        if len(found):
            self.rows = np.concatenate([self.rows, rows[found]])
            self.parts.append(items.take(found))


def cluster_with_landmarks(
    reader: ItemReader, options: ClusteringOptions, graph_options: GraphOptions, seed: int
) -> ClusteringResult:
    """The clusters of N items from those of m landmarks: frame, distances, cut and splits are theirs."""
    rng = np.random.default_rng([seed, len(reader)])
    drawn = np.sort(rng.choice(len(reader), size=options.landmarks, replace=False))
    landmarks, items = reader.read(drawn, None)
    found = cluster_whole(items, options, graph_options, seed)
    chosen = choose_anchors(found.labels_N, found.unlike_N, rng)
    anchors = anchors_at(items, landmarks, chosen, found.labels_N, found.frame)
    notebook, strays = Notebook(len(reader), items.num_classes), Strays(options.landmarks)
    placed = Placed(found.labels_N, *confidence(found.distances_NN, found.labels_N), unlike_M=found.unlike_N)
    notebook.note(landmarks, placed, items.counts_NC)
    strays.add(landmarks, items, found.unlike_N & ~np.isin(landmarks, anchors.rows_A))
    del items
    others = np.setdiff1d(np.arange(len(reader)), drawn)
    for block in row_blocks(len(others), READ_AT_ONCE):
        read, told = reader.read(others[block], anchors.views())
        if len(read):
            placed = anchors.place(told)
            notebook.note(read, placed, told.counts_NC)
            strays.add(read, told, placed.unlike_M)
    opened_from: dict[int, int] = {}
    if options.splits and len(strays.rows) >= options.structure.min_size:
        anchors, opened_from = open_clusters(anchors, strays, notebook, found, options, seed)
    everyone = _renumbered(notebook, landmarks, anchors, opened_from)
    graph = _graph(everyone, options, graph_options, seed)
    return replace(found, graph=graph, unlike_N=everyone.unlike_N, everyone=everyone)


def open_clusters(
    anchors: Anchors,
    strays: Strays,
    notebook: Notebook,
    found: ClusteringResult,
    options: ClusteringOptions,
    seed: int,
) -> tuple[Anchors, dict[int, int]]:
    """Clusters of strays: those of the whole choice on anchors and strays that hold mostly strays.

    Returns the anchors with those of the new clusters, and where most members of each had been placed.
    """
    items = Items.joined([anchors.items, *strays.parts])
    again = cluster_whole(items, options, GraphOptions(alignment=False), seed)
    sure_M, _ = confidence(again.distances_NN, again.labels_N)
    opened: dict[int, IntArray] = {}
    opened_from: dict[int, int] = {}
    for z in range(again.count):
        members = np.flatnonzero(again.labels_N == z)
        own = members[members >= len(anchors.items)]
        if 2 * len(own) <= len(members) or len(own) < options.structure.min_size:
            continue
        rows, label = strays.rows[own - len(anchors.items)], anchors.count + len(opened)
        before = notebook.labels_N[rows]
        opened[label], opened_from[label] = own, int(np.bincount(before).argmax())
        labels = np.full(len(own), label)
        notebook.note(rows, Placed(labels, sure_M[own], before, again.unlike_N[own]))
    if not opened:
        return anchors, {}
    used = {split.view for split in (*found.splits, *again.splits) if split.view}
    quota = max(np.bincount(anchors.labels_A))
    some = np.concatenate([own[:quota] for own in opened.values()])
    labels_M = np.repeat([*opened], [len(own[:quota]) for own in opened.values()])
    rows = strays.rows[some - len(anchors.items)]
    return anchors.with_clusters(items.take(some), rows, labels_M, used), opened_from


def _renumbered(
    notebook: Notebook, landmarks: IntArray, anchors: Anchors, opened_from: dict[int, int]
) -> Everyone:
    """All that were read, clusters numbered by their first members."""
    rows_N = np.flatnonzero(notebook.labels_N >= 0)
    before_N = notebook.labels_N[rows_N]
    labels_N = canonical_labels(before_N)
    number_Z = np.full(anchors.count + 1, -1)  # the last entry: no second nearest cluster
    number_Z[before_N] = labels_N
    return Everyone(
        rows_N=rows_N,
        labels_N=labels_N,
        counts_NC=notebook.counts_NC[rows_N],
        sure_N=notebook.sure_N[rows_N],
        second_N=number_Z[notebook.second_N[rows_N]],
        unlike_N=notebook.unlike_N[rows_N],
        landmarks=landmarks,
        anchors=replace(
            anchors,
            labels_A=number_Z[anchors.labels_A],
            typical_VZ=tuple(t[np.argsort(number_Z[:-1])] for t in anchors.typical_VZ),
        ),
        opened_from={int(number_Z[z]): int(number_Z[old]) for z, old in opened_from.items()},
    )


def _graph(
    everyone: Everyone, options: ClusteringOptions, graph_options: GraphOptions, seed: int
) -> ComplementarityGraph:
    """Demand and supply of everybody; alignment and distances of the anchors."""
    anchors, alignment_ZZC = everyone.anchors, None
    if graph_options.alignment:
        alignment_ZZC = cluster_alignment(
            anchors.items,
            anchors.labels_A,
            options.angles,
            shared_alignment=graph_options.shared_alignment,
            seed=seed,
        )
    return complementarity_graph(
        everyone.counts_NC,
        everyone.labels_N,
        alignment_ZZC,
        options=graph_options,
        apart_ZZ=mean_between(proximity_among(anchors.items, anchors.frame), anchors.labels_A),
    )
