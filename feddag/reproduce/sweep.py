# SPDX-License-Identifier: Apache-2.0
"""Clusters and clustering loss at every threshold: nothing but the start of a run is computed."""

from pathlib import Path
from typing import Any

from feddag.clustering.scores import score_cuts
from feddag.experiment.settings import Experiment
from feddag.runs.driver import Driver
from feddag.runs.events import EventLog
from feddag.runs.simulate import build
from feddag.runs.simulation import SimulationFacts


def sweep(experiment: Experiment, thresholds: list[float], folder: Path) -> dict[str, tuple[int, float]]:
    """Threshold → number of clusters, loss; the distances are those of the method's start."""
    simulation = build(experiment)
    algorithm: Any = simulation.prepared.algorithm  # FedDAG: its clustering holds a tree and a fused view
    folder.mkdir(parents=True, exist_ok=True)
    log = EventLog(folder / "events.jsonl")
    engine = simulation.open_engine()
    try:
        facts = SimulationFacts(simulation.federation, engine.memories)
        driver = Driver(
            simulation.prepared, engine, simulation.presence, folder, log, lambda event: None, facts
        )
        state = algorithm.start(driver.server(0, list(simulation.trainable)))
    finally:
        engine.close()
        log.close()
    found = algorithm.clustering(state)
    distances_NN = list(found.views.values())[-1].matrix_NN  # the fused view comes last
    options = algorithm.clustering_options
    scored = score_cuts(distances_NN, found.tree.linkage_matrix, tuple(sorted(thresholds)), options.loss)
    rows = zip(scored.thresholds_T, scored.counts_T, scored.losses_T, strict=True)
    return {f"{t:.2f}": (int(z), min(float(loss), 1.0)) for t, z, loss in rows}
