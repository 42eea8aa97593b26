# SPDX-License-Identifier: Apache-2.0
"""Simulation: server and all clients on one machine. With `given_data` the part of `runs` that holds data.

folder = run(experiment)                 # runs/<algorithm>/<dataset>/<time>-<name>/
resume(folder)                           # after a kill at any instant: the same bits
cluster(experiment)                      # which clients are alike, before any federated training
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feddag.core.algorithm import Algorithm, FindsClusters
from feddag.core.deployment import Deployment
from feddag.core.errors import FederationError, Interrupted, InvalidInput
from feddag.core.files import lock_folder, write_durably
from feddag.core.host import describe_machine
from feddag.core.seeds import Seed
from feddag.core.task import ClientId
from feddag.data.federation import Federation
from feddag.engines.inline import InlineEngine
from feddag.engines.memories import Memories
from feddag.engines.perform import Site
from feddag.engines.process import ProcessEngine
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.metrics import PROTOCOL
from feddag.runs.checkpoint import latest_checkpoint
from feddag.runs.driver import Driver, Watch
from feddag.runs.events import EventLog, LogPrefix
from feddag.runs.given_data import federation_for, settings_for
from feddag.runs.prepare import Prepared, prepare
from feddag.runs.presence import PlannedPresence, plan_presence
from feddag.runs.result import write_clusters, write_result

SimulatedEngine = InlineEngine | ProcessEngine


@dataclass(frozen=True)
class Simulation:
    """An experiment with the data of all its clients."""

    prepared: Prepared
    federation: Federation

    @property
    def experiment(self) -> Experiment:
        """The settings."""
        return self.prepared.experiment

    @property
    def algorithm(self) -> Algorithm:
        """The method."""
        return self.prepared.algorithm

    @cached_property
    def site(self) -> Site:
        """What the clients' tasks run on."""
        return Site(self.federation, self.prepared.network, self.experiment.engine.backend)

    @cached_property
    def presence(self) -> PlannedPresence:
        """Who is there when, as the scenario says; newcomers of the partition join after the last round."""
        federation, newcomers = self.federation, self.federation.newcomers
        return plan_presence(
            self.experiment.scenario,
            tuple(c for c in federation.ids if c not in newcomers),
            self.experiment.num_rounds,
            Seed(self.experiment.seed),
            newcomers,
            frozenset(c for c in federation.ids if not len(federation.clients[c].train)),
        )

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All clients but those who come after the last round."""
        return self.presence.clients

    @property
    def trainable(self) -> tuple[ClientId, ...]:
        """Those of them that hold training samples."""
        return tuple(c for c in self.clients if self.presence.trains(c))

    def open_engine(self, memories: Path | None = None) -> SimulatedEngine:
        """The engine that the experiment names; `memories` is where clients keep what they remember."""
        config = self.experiment.engine
        if config.name == "inline":
            return InlineEngine(self.site, memories)
        return ProcessEngine(self.site, self.experiment.model, config.workers, memories)


@dataclass(frozen=True)
class SimulationFacts:
    """What the simulation adds to reports; see `Facts`."""

    federation: Federation
    memories: Memories

    def about(self) -> dict[str, Any]:
        """Where the data came from."""
        return {"source": vars(self.federation.source)}

    def digest(self) -> str:
        """SHA-256 of the data's source and of who holds which rows."""
        sha = hashlib.sha256(json.dumps(vars(self.federation.source), sort_keys=True).encode())
        for client in self.federation.ids:
            share = self.federation.clients[client]
            for part in (share.train, share.validation, share.test, share.relabel):
                sha.update(f"{client} {0 if part is None else len(part)} ".encode())
                sha.update(b"" if part is None else part.tobytes())
        return sha.hexdigest()

    def planted(self) -> Mapping[ClientId, int]:
        """The planted groups."""
        return self.federation.groups

    def group_names(self) -> Mapping[int, str]:
        """What the planted groups are, in words."""
        return self.federation.group_names

    def personal(self, client: ClientId, deployment: Deployment) -> Deployment:
        """What the client would use: its own parts put back."""
        return deployment.recall(self.memories.get(client))


def build(experiment: Experiment, data: Any = None) -> Simulation:
    """Build data, networks and algorithm; everything that can be wrong is found here."""
    federation = federation_for(experiment, data)
    simulation = Simulation(prepare(experiment, federation.problem), federation)
    if not simulation.trainable:
        number = len(simulation.clients)
        raise InvalidInput(f"none of the {number} clients holds a training sample: at least one must")
    experiment.cohort_size(len(simulation.trainable))
    return simulation


def run(
    experiment: Experiment,
    *,
    root: Path | str = Path("runs"),
    folder: Path | str | None = None,
    watch: Watch = lambda event: None,
    data: Any = None,
) -> Path:
    """Run an experiment in a new folder; returns the folder.

    `data` is anything that `feddag.data.memory.federation_from` accepts, for example client → (x, y). It
    takes the place of the dataset that the settings name; see `feddag.runs.given_data`.
    """
    experiment = settings_for(experiment, data)
    if folder is not None and Path(folder).exists():
        raise InvalidInput(f"the run folder {folder} exists: choose another, or use 'feddag resume {folder}'")
    simulation = build(experiment, data)
    folder = Path(folder) if folder else _new_folder(Path(root), experiment)
    try:
        (folder / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(f"the run folder {folder} cannot be made: {error.strerror}") from None
    write_durably(folder / "experiment.json", json.dumps(experiment.settings(), indent=1).encode())
    _drive(simulation, folder, watch)
    return folder


def resume(folder: Path | str, *, watch: Watch = lambda event: None, data: Any = None) -> Path:
    """Go on with a run from its last valid checkpoint, to the same result as if never stopped.

    A run that was started with `data` from memory needs the same data again.
    """
    folder = Path(folder)
    simulation = build(_experiment_of(folder, data), data)
    (folder / "checkpoints").mkdir(exist_ok=True)
    _drive(simulation, folder, watch)
    return folder


def cluster(
    what: Experiment | Path | str | Any,
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
    if not isinstance(what, Experiment | Path | str):
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
        return write_clusters(simulation.prepared, state, folder, facts)
    finally:
        engine.close()
        log.close()


def _clusters_of_run(run_folder: Path, folder: Path, data: Any) -> dict[str, Any]:
    simulation = build(_experiment_of(run_folder, data), data)
    found, _ = latest_checkpoint(run_folder / "checkpoints", simulation.prepared.state_class)
    if found is None:
        raise InvalidInput(
            f"the run in {run_folder} has no checkpoint yet: go on with feddag resume {run_folder}"
        )
    facts = SimulationFacts(simulation.federation, Memories())
    return write_clusters(simulation.prepared, found[1], folder, facts)


def _experiment_of(folder: Path, data: Any) -> Experiment:
    if not (folder / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    experiment = Experiment.from_file(folder / "experiment.json")
    if data is None and experiment.data.name == "own" and experiment.data.path is None:
        raise InvalidInput(f"the run in {folder} was made with data from memory: give the same data= again")
    return experiment


def _new_folder(root: Path, experiment: Experiment) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return _free(root / experiment.algorithm.name / experiment.data.name / f"{stamp}-{experiment.name}")


def _new_cluster_folder(experiment: Experiment) -> Path:
    return _free(Path("clustering") / f"{time.strftime('%Y%m%d-%H%M%S')}-{experiment.name}")


def _free(base: Path) -> Path:
    candidates = (base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000)))
    return next(path for path in candidates if not path.exists())


def _drive(simulation: Simulation, folder: Path, watch: Watch) -> None:
    """Run or go on with the rounds in a folder, and write the result."""
    checkpoints = folder / "checkpoints"
    with lock_folder(folder):
        engine = simulation.open_engine(folder / "memories")
        try:
            facts = SimulationFacts(simulation.federation, engine.memories)
            found, problems = latest_checkpoint(
                checkpoints, simulation.prepared.state_class, engine.restore_memories
            )
            if found:
                _check_same(folder, simulation.experiment, facts, found[0].experiment, found[0].data)
            keep = LogPrefix(found[0].log_bytes, found[0].log_sha256) if found else LogPrefix()
            log = EventLog(folder / "events.jsonl", keep)
            try:
                driver = Driver(
                    simulation.prepared, engine, simulation.presence, checkpoints, log, watch, facts
                )
                if found:
                    driver.continue_from(*found)
                driver.record("resumed" if found else "started", **_describe(simulation, engine, folder))
                for problem in problems:
                    driver.record("warning", text=problem)
                _run_to_the_end(driver, folder, facts)
            finally:
                log.close()
        finally:
            engine.close()


def _run_to_the_end(driver: Driver, folder: Path, facts: SimulationFacts) -> None:
    try:
        driver.run_rounds()
        write_result(driver, folder, facts)
    except KeyboardInterrupt:
        driver.checkpoint()
        where = "before the first checkpoint"
        if driver.state is not None:
            where = f"after round {driver.progress.round}"
        raise Interrupted(f"stopped {where}; go on with: feddag resume {folder}") from None
    except FederationError:
        driver.checkpoint()
        raise


def _check_same(
    folder: Path, experiment: Experiment, facts: SimulationFacts, settings_then: str, data_then: str
) -> None:
    """Refuse to go on with other settings or other data than the checkpoint was made with."""
    for what, then, now in (
        ("settings", settings_then, experiment.digest),
        ("data", data_then, facts.digest()),
    ):
        if then != now:
            raise InvalidInput(
                f"the checkpoint in {folder} was made with other {what}: restore them, or start a new run"
            )


def _describe(simulation: Simulation, engine: SimulatedEngine, folder: Path) -> dict[str, Any]:
    """What a reader of the log must know: settings, data source, machine, versions."""
    clients = simulation.clients
    return {
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
