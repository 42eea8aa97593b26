# SPDX-License-Identifier: Apache-2.0
"""From signatures to clusters and their complementarity graph: measure, fuse, cut, graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from feddag.clustering.angles import KeptAngles
from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.complementarity import (
    ComplementarityGraph,
    cluster_alignment,
    complementarity_graph,
)
from feddag.clustering.compose import Split, ViewMatrix, compose, labels_of
from feddag.clustering.cut import Cut, choose_cut
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.outliers import unlike_anyone
from feddag.clustering.placing import Everyone
from feddag.clustering.proximity import Frame, fuse_views, measure
from feddag.clustering.views import fused, unfitted_views, weighted

if TYPE_CHECKING:
    from feddag.clustering.landmarks import ItemReader


@dataclass(frozen=True)
class ClusteringResult:
    """The result of each of the four steps."""

    frame: Frame
    distances_NN: FloatArray
    """A of Eq. 7, the weighted mean of all views, or the one normalised view that is used."""
    cut: Cut
    graph: ComplementarityGraph
    splits: tuple[Split, ...] = ()
    """Fusion `views`: which view split what."""
    unlike_N: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Whether an item resembles nobody; it was put into the nearest cluster."""
    everyone: Everyone | None = None
    """Of very many items: all of them. Frame, distances, cut and splits are then those of the landmarks."""

    @property
    def labels_N(self) -> IntArray:
        """The cluster of each item."""
        return self.cut.labels_N if self.everyone is None else self.everyone.labels_N

    @property
    def kept_frame(self) -> Frame:
        """The frame of the items that newcomers are compared with: all, or the anchors."""
        return self.frame if self.everyone is None else self.everyone.anchors.frame

    @property
    def opened_from(self) -> dict[int, int]:
        """For each cluster that no landmark is in, the nearest one that has landmarks."""
        return {} if self.everyone is None else self.everyone.opened_from

    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each cluster, the clusters that it learns from; the only cluster learns from itself."""
        if self.count == 1:
            return ((0,),)
        return tuple(tuple(self.graph.sources_of(z)) for z in range(self.count))

    def notes(self, names: Sequence[str]) -> dict[str, Any]:
        """For a log: where the tree was cut, how much each view counts, and who resembles nobody."""
        return {
            "threshold": self.cut.threshold,
            "views": {fit.name: round(fit.weight, 3) for fit in self.frame.fits},
            "unlike": [name for name, alone in zip(names, self.unlike_N, strict=True) if alone],
            **({} if self.everyone is None else {"landmarks": len(self.everyone.landmarks)}),
        }

    @property
    def count(self) -> int:
        """Number of clusters."""
        return self.cut.count if self.everyone is None else self.everyone.anchors.count


def cluster_signatures(
    items: "Items | ItemReader",
    options: ClusteringOptions | None = None,
    graph_options: GraphOptions | None = None,
    seed: int = 0,
) -> ClusteringResult:
    """Angles (Eqs. 3-6), fusion (Eqs. 7-8), clusters (Eqs. 9-10) and graph (Eqs. 11-14) of N items.

    `seed` belongs to the MLP gate and to the samples that are drawn from very many items. Of more items than
    `options.landmarks` so many are clustered, and all others are placed: see `landmarks.py`.
    """
    from feddag.clustering.landmarks import InMemory, cluster_with_landmarks  # it uses this module

    options, graph_options = options or ClusteringOptions(), graph_options or GraphOptions()
    reader = InMemory(items) if isinstance(items, Items) else items
    if 0 < options.landmarks < len(reader):
        return cluster_with_landmarks(reader, options, graph_options, seed)
    whole = items if isinstance(items, Items) else reader.read(np.arange(len(reader)), None)[1]
    return cluster_whole(whole, options, graph_options, seed)


def cluster_whole(
    items: Items, options: ClusteringOptions, graph_options: GraphOptions, seed: int = 0
) -> ClusteringResult:
    """`cluster_signatures` of items that are all compared with each other."""
    kept = KeptAngles() if graph_options.alignment and items.views() else None
    splits: tuple[Split, ...] = ()
    unlike_N = np.zeros(len(items), dtype=bool)
    if options.composes:
        frame, distances_NN, splits, matrices = compose_views(items, options, kept)
        labels_N = labels_of(splits, len(items)) if options.splits else None
        cut = choose_cut(distances_NN, options, labels_N)
        unlike_N = unlike_anyone(matrices, cut.labels_N)
    else:
        frame, views = measure(items, options, kept)
        frame, distances_NN = fuse_views(frame, views, seed)
        cut = choose_cut(distances_NN, options)
    graph = build_graph(items, cut, distances_NN, options, graph_options, kept, seed)
    return ClusteringResult(frame, distances_NN, cut, graph, splits if options.splits else (), unlike_N)


def compose_views(
    items: Items, options: ClusteringOptions, kept: KeptAngles | None
) -> tuple[Frame, FloatArray, tuple[Split, ...], list[ViewMatrix]]:
    """Every view, which of them splits what, and the proximity that follows."""
    fits, matrices = [], []
    for view in unfitted_views(items, options):
        fit, matrix = view.fit(items, kept if view.name == "pixels" else None)
        fits.append(fit)
        matrices.append(matrix)
    splits = compose(matrices, len(items), options)
    frame = replace(Frame.unfitted(items, options), fits=weighted(fits, splits))
    return frame, fused(frame.fits, matrices), splits, matrices


def build_graph(
    items: Items,
    cut: Cut,
    distances_NN: FloatArray,
    options: ClusteringOptions,
    graph_options: GraphOptions,
    kept: KeptAngles | None,
    seed: int,
) -> ComplementarityGraph:
    """The sources of every cluster, with or without alignment (Eqs. 11-14)."""
    alignment_ZZC = None
    if graph_options.alignment:
        alignment_ZZC = cluster_alignment(
            items,
            cut.labels_N,
            options.angles,
            shared_alignment=graph_options.shared_alignment,
            known=kept.blocks if kept is not None else None,
            seed=seed,
        )
    return complementarity_graph(
        items.counts_NC, cut.labels_N, alignment_ZZC, options=graph_options, distances_NN=distances_NN
    )
