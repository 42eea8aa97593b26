# SPDX-License-Identifier: Apache-2.0
"""Which clients are alike, and why: clusters before a single round of training, as a page and as values."""

from pathlib import Path
from typing import Any

from feddag.runs.checkpoint import latest_checkpoint
from feddag.core.errors import InvalidInput
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.events import EventLog
from feddag.reporting.pages.why import write_explanation
from feddag.runs.simulate import Driver, Watch, make_engine, prepare


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
