# SPDX-License-Identifier: Apache-2.0
"""From FedDAG's own result to its page, until every method reports a `Clustering` itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feddag.core.clustering import Clustering, Tree, View
from feddag.core.clusters import Clusters
from feddag.reporting.pages.clustering import PlantedTruth, write_clustering_page

if TYPE_CHECKING:
    from feddag.clustering.pipeline import ClusteringResult
    from feddag.data.federation import Federation
    from feddag.learning.signature import Signature


def write_explanation(
    folder: Path,
    federation: "Federation",
    signatures: Mapping[str, "Signature"],
    result: "ClusteringResult",
) -> dict[str, Any]:
    """Write page and figures; return the clustering as plain values."""
    choice, cuts, clients = result.choice, result.choice.cuts, tuple(signatures)
    views = {
        "Data angles": (result.data_NN, "degrees"),
        "Gradient angles": (result.gradient_NN, "degrees"),
        "Proximity": (result.distances_NN, "0 near, 1 far"),
    }
    labels_N = choice.labels_N
    members = [[c for c, z in zip(clients, labels_N, strict=True) if z == k] for k in range(result.count)]
    sources: list[list[int]] = [[] for _ in members]
    for learner, source in zip(result.graph.learners_E, result.graph.sources_E, strict=True):
        sources[learner].append(int(source))
    clustering = Clustering(
        clusters=Clusters(members=tuple(map(tuple, members))),
        how=f"The cut was chosen by rule '{choice.rule.name}' on {choice.rule.linkage} linkage.",
        clients=clients,
        views={name: View(matrix, unit) for name, (matrix, unit) in views.items() if matrix is not None},
        counts_NC=np.stack([s.counts for s in signatures.values()]),
        weights_N=result.weights_N if result.options.views == "fused" else None,
        tree=Tree(
            clients=clients,
            linkage_matrix=choice.linkage_matrix,
            threshold=choice.threshold,
            thresholds_T=cuts.thresholds_T,
            counts_T=cuts.counts_T,
            losses_T=cuts.losses_T,
            silhouettes_T=cuts.silhouettes_T,
        ),
        sources=tuple(map(tuple, sources)),
        withheld=sum(s.withheld for s in signatures.values()),
    )
    truth = PlantedTruth(federation.groups, federation.group_names)
    return write_clustering_page(folder, clustering, truth, federation.class_names)
