# SPDX-License-Identifier: Apache-2.0
"""Which clients are alike, and why: clusters before a single round of training, as a page and as values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feddag.checkpoint import latest_checkpoint
from feddag.clustering.pipeline import ClusteringResult
from feddag.core.errors import InvalidInput
from feddag.data.federation import Federation
from feddag.experiment import Experiment
from feddag.learning.signature import Signature
from feddag.reporting.clustering_page import Explanation, summarise, write_page
from feddag.reporting.events import EventLog
from feddag.run import Driver, Watch, make_engine, prepare


def cluster_experiment(
    experiment: Experiment, folder: Path, watch: Watch = lambda event: None
) -> dict[str, Any]:
    """Ask every client for its signature, cluster them, write the page; no federated training."""
    prepared = prepare(experiment)
    find_clusters = getattr(prepared.algorithm, "find_clusters", None)
    if find_clusters is None:
        raise InvalidInput(
            f"algorithm '{experiment.algorithm.name}' has no clustering to explain: use 'feddag'"
        )
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"the folder {folder} exists and is not empty: choose another with --folder")
    folder.mkdir(parents=True, exist_ok=True)
    log = EventLog(folder / "events.jsonl", keep_bytes=0)
    engine = make_engine(prepared)
    try:
        driver = Driver(prepared, engine, folder, log, watch)
        signatures, clustering = find_clusters(driver.server(0))
    finally:
        engine.close()
        log.close()
    return write_explanation(folder, prepared.federation, signatures, clustering)


def explain_run(folder: Path) -> dict[str, Any]:
    """Write the page of a run that has started, from its newest checkpoint."""
    prepared = prepare(Experiment.from_file(folder / "experiment.json"))
    explain = getattr(prepared.algorithm, "explain", None)
    if explain is None:
        name = prepared.experiment.algorithm.name
        raise InvalidInput(f"the run in {folder} used '{name}', which has no clustering to explain")
    found, _ = latest_checkpoint(folder / "checkpoints", prepared.state_class)
    if found is None:
        raise InvalidInput(f"the run in {folder} has no checkpoint yet: go on with feddag resume {folder}")
    state = found[1]
    return write_explanation(folder / "clustering", prepared.federation, state.signatures, explain(state))


def write_explanation(
    folder: Path, federation: Federation, signatures: Mapping[str, Signature], clustering: ClusteringResult
) -> dict[str, Any]:
    """Write page and figures; the clustering as plain values."""
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
