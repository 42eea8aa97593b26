# SPDX-License-Identifier: Apache-2.0
"""From signatures to clusters and their complementarity graph: measure, fuse, cut, graph."""

from dataclasses import dataclass

from feddag.clustering.angles import KeptAngles
from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.complementarity import (
    ComplementarityGraph,
    cluster_alignment,
    complementarity_graph,
)
from feddag.clustering.cut import Cut, choose_cut
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.proximity import Frame, ViewAngles, fuse_views, measure


@dataclass(frozen=True)
class ClusteringResult:
    """The result of each of the four steps."""

    frame: Frame
    views: ViewAngles
    distances_NN: FloatArray
    """A of Eq. 7, or the one normalised view that is used."""
    cut: Cut
    graph: ComplementarityGraph

    @property
    def labels_N(self) -> IntArray:
        """The cluster of each item."""
        return self.cut.labels_N

    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each cluster, the clusters that it learns from; the only cluster learns from itself."""
        if self.count == 1:
            return ((0,),)
        return tuple(tuple(self.graph.sources_of(z)) for z in range(self.count))

    @property
    def count(self) -> int:
        """Number of clusters."""
        return self.cut.count


def cluster_signatures(
    items: Items,
    options: ClusteringOptions | None = None,
    graph_options: GraphOptions | None = None,
    seed: int = 0,
) -> ClusteringResult:
    """Angles (Eqs. 3-6), fusion (Eqs. 7-8), clusters (Eqs. 9-10) and graph (Eqs. 11-14) of N items.

    `seed` belongs to the MLP gate and to the samples that are drawn from very many items.
    """
    options, graph_options = options or ClusteringOptions(), graph_options or GraphOptions()
    kept = KeptAngles() if graph_options.alignment and options.views != "gradient" else None
    frame, views = measure(items, options, kept)
    frame, distances_NN = fuse_views(frame, views, seed)
    cut = choose_cut(distances_NN, options)
    graph = build_graph(items, cut, distances_NN, options, graph_options, kept, seed)
    return ClusteringResult(frame, views, distances_NN, cut, graph)


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
