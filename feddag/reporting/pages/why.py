# SPDX-License-Identifier: Apache-2.0
"""From a clustering to its page: which of all its steps are shown."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from feddag.clustering.pipeline import ClusteringResult
    from feddag.data.federation import Federation
    from feddag.learning.signature import Signature


def write_explanation(
    folder: Path,
    federation: "Federation",
    signatures: Mapping[str, "Signature"],
    clustering: "ClusteringResult",
) -> dict[str, Any]:
    """Write page and figures; the clustering as plain values."""
    from feddag.reporting.pages.clustering import Explanation, summarise, write_page

    choice, cuts = clustering.choice, clustering.choice.cuts
    views = {
        "Data angles": (clustering.data_NN, "degrees"),
        "Gradient angles": (clustering.gradient_NN, "degrees"),
        "Proximity": (clustering.distances_NN, "0 near, 1 far"),
    }
    explanation = Explanation(
        clients=list(signatures),
        labels_N=choice.labels_N,
        counts_NC=np.stack([s.counts for s in signatures.values()]),
        matrices={name: (matrix, unit) for name, (matrix, unit) in views.items() if matrix is not None},
        linkage_matrix=choice.linkage_matrix,
        threshold=choice.threshold,
        thresholds_T=cuts.thresholds_T,
        counts_T=cuts.counts_T,
        losses_T=cuts.losses_T,
        silhouettes_T=cuts.silhouettes_T,
        rule=f"The cut was chosen by rule '{choice.rule.name}' on {choice.rule.linkage} linkage.",
        weights_N=clustering.weights_N if clustering.options.views == "fused" else None,
        edges=(clustering.graph.learners_E, clustering.graph.sources_E),
        withheld=sum(s.withheld for s in signatures.values()),
        class_names=federation.class_names,
        groups=federation.groups,
    )
    page = write_page(folder, explanation)
    return {**summarise(explanation), "page": str(page)}
