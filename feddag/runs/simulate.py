# SPDX-License-Identifier: Apache-2.0
"""Running a simulation: server and all clients on one machine.

done = run(experiment)                   # runs/<algorithm>/<dataset>/<time>-<name>/
resume(done.folder)                      # after a kill at any instant: the same bits
cluster(experiment)                      # which clients are alike, before any federated training
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from feddag.core.capabilities import FindsClusters
from feddag.core.errors import InvalidInput, cannot_write
from feddag.core.files import lock_folder, write_durably
from feddag.core.host import describe_machine
from feddag.engines.memories import Memories
from feddag.experiment.settings import Experiment
from feddag.reporting.pages.report.run_data import HOLDINGS
from feddag.reporting.tables.metrics import PROTOCOL
from feddag.runs.checkpoint import latest_checkpoint
from feddag.runs.drive import drive, free_path, new_folder
from feddag.runs.driver import Driver, Watch
from feddag.runs.events import EventLog
from feddag.runs.given_data import settings_for
from feddag.runs.prepare import Prepared
from feddag.runs.result import write_clusters
from feddag.runs.run import Run
from feddag.runs.simulation import SimulatedEngine, Simulation, SimulationFacts, build, who_holds_what

SETTINGS_DIGEST = ".experiment.sha256"  # of the settings that a run was started with


def run(
    experiment: Experiment,
    *,
    root: Path | str = Path("runs"),
    folder: Path | str | None = None,
    watch: Watch = lambda event: None,
    data: Any = None,
) -> Run:
    """Run an experiment in a new folder; what it gave, which also stands for the folder's path.

    `data` is anything that `feddag.data.memory.federation_from` accepts, for example client → (x, y). It
    takes the place of the dataset that the settings name; see `feddag.runs.given_data`.
    """
    experiment = settings_for(experiment, data)
    if folder is not None and Path(folder).exists():
        raise InvalidInput(f"the run folder {folder} exists: choose another, or use 'feddag resume {folder}'")
    if experiment.engine.name == "flower":
        raise InvalidInput(
            "engine.name = 'flower' means many machines: use feddag deploy init and deploy up --local, or "
            "simulate with --set engine.name=process"
        )
    simulation = build(experiment, data)
    folder = Path(folder) if folder else new_folder(Path(root), experiment)
    try:
        (folder / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(f"the run folder {folder} cannot be made: {error.strerror}") from None
    write_durably(folder / SETTINGS_DIGEST, experiment.digest.encode())
    write_durably(folder / "experiment.json", json.dumps(experiment.settings(), indent=1).encode())
    write_durably(folder / HOLDINGS, json.dumps(who_holds_what(simulation.federation)).encode())
    _drive(simulation, folder, watch)
    return Run(folder)


def resume(folder: os.PathLike[str] | str, *, watch: Watch = lambda event: None, data: Any = None) -> Run:
    """Go on with a run from its last valid checkpoint, to the same result as if never stopped.

    A run that was started with `data` from memory needs the same data again.
    """
    folder = Path(folder)
    experiment = _experiment_of(folder, data)
    if experiment.engine.name == "flower":
        raise InvalidInput(f"the run in {folder} is on many machines: go on with feddag deploy resume")
    simulation = build(experiment, data)
    try:
        (folder / "checkpoints").mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder / "checkpoints", error) from error
    _drive(simulation, folder, watch)
    return Run(folder)


def cluster(
    what: Experiment | os.PathLike[str] | str | Any,
    folder: Path | str | None = None,
    *,
    watch: Watch = lambda event: None,
    data: Any = None,
) -> dict[str, Any]:
    """Which clients are alike, and why, as plain values and a page.

    For an experiment nothing but the method's start is computed. For a run's folder the clusters are those of
    its newest checkpoint. Anything else is data from memory, see `run`; FedDAG's clustering is used for it.
    The page goes to `folder`, by default clustering/<time>-<name>.
    """
    if not isinstance(what, Experiment | os.PathLike | str):
        if data is not None:
            raise InvalidInput("data was given twice: as the first argument and as data=")
        what, data = Experiment.from_settings({"algorithm": "feddag", "fraction_train": 1.0}), what
    if isinstance(what, Experiment):
        experiment = settings_for(what, data)
        return _cluster_at_start(
            build(experiment, data), Path(folder) if folder else _new_cluster_folder(experiment), watch
        )
    return _clusters_of_run(Path(what), Path(folder) if folder else Path(what) / "clustering", data)


def _cluster_at_start(simulation: Simulation, folder: Path, watch: Watch) -> dict[str, Any]:
    name, algorithm = simulation.experiment.algorithm.name, simulation.prepared.algorithm
    if not isinstance(algorithm, FindsClusters):
        raise InvalidInput(
            f"algorithm '{name}' has no clusters to show: use 'feddag' or another that clusters"
        )
    if not algorithm.clusters_at_start:
        raise InvalidInput(
            f"the clusters of '{name}' form during training: run it, then use 'feddag cluster RUN_FOLDER'"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"the folder {folder} exists and is not empty: choose another with --folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"the folder {folder} cannot be made: {error.strerror}") from None
    log = EventLog(folder / "events.jsonl")
    engine = simulation.open_engine()
    try:
        facts = SimulationFacts(simulation.federation, engine.memories)
        driver = Driver(simulation.prepared, engine, simulation.presence, folder, log, watch, facts)
        state = simulation.prepared.algorithm.start(driver.server(0, list(simulation.trainable)))
        return write_clusters(simulation.prepared, state, facts, folder)
    finally:
        engine.close()
        log.close()


def _clusters_of_run(run_folder: Path, folder: Path, data: Any) -> dict[str, Any]:
    return write_clusters(*newest_state(run_folder, data), folder)


def newest_state(folder: Path, data: Any = None) -> tuple[Prepared, Any, SimulationFacts]:
    """The state of a run at its newest checkpoint, with what is needed to read it."""
    simulation = build(_experiment_of(folder, data), data)
    found, _ = latest_checkpoint(folder / "checkpoints", simulation.prepared.state_class)
    if found is None:
        raise InvalidInput(f"the run in {folder} has no checkpoint yet: go on with feddag resume {folder}")
    return simulation.prepared, found[1], SimulationFacts(simulation.federation, Memories())


def _experiment_of(folder: Path, data: Any) -> Experiment:
    if not (folder / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    experiment = Experiment.from_file(folder / "experiment.json")
    if data is None and experiment.data.name == "own" and experiment.data.path is None:
        raise InvalidInput(f"the run in {folder} was made with data from memory: give the same data= again")
    digest = folder / SETTINGS_DIGEST
    if digest.is_file() and digest.read_bytes() != experiment.digest.encode():
        raise InvalidInput(
            f"{folder / 'experiment.json'} has other settings than the run was started with: "
            "restore them, or start a new run"
        )
    return experiment


def _new_cluster_folder(experiment: Experiment) -> Path:
    return free_path(Path("clustering") / f"{time.strftime('%Y%m%d-%H%M%S')}-{experiment.name}")


def _drive(simulation: Simulation, folder: Path, watch: Watch) -> None:
    """Run or go on with the rounds in a folder, and write the result."""
    with lock_folder(folder):
        engine = simulation.open_engine(folder / "memories")
        try:
            facts = SimulationFacts(simulation.federation, engine.memories, engine.site)
            about = _describe(simulation, engine, folder)
            drive(simulation.prepared, engine, simulation.presence, facts, folder, watch, about)
        finally:
            engine.close()


def _describe(simulation: Simulation, engine: SimulatedEngine, folder: Path) -> dict[str, Any]:
    """What a reader of the log must know: settings, data source, machine, versions."""
    clients, plan = simulation.clients, simulation.privacy_plan()
    return {
        **({"privacy": plan.plain()} if plan is not None else {}),
        "folder": str(folder),
        "experiment": simulation.experiment.settings(),
        "model": simulation.prepared.network.name,
        **engine.describe(),
        "source": vars(simulation.federation.source),
        "notes": dict(simulation.federation.notes),
        "clients": len(clients),
        "clients_without_samples": [c for c in clients if not simulation.presence.trains(c)],
        "protocol": PROTOCOL,
        "machine": describe_machine(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
