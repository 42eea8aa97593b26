# SPDX-License-Identifier: Apache-2.0
"""What the ServerApp does: wait for the nodes, agree with them what the data are, and drive the run.

A server: it imports nothing of `feddag.data`, and knows clients only through what their nodes answer.
"""

import json
import time
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.files import lock_folder, write_durably
from feddag.core.host import describe_machine
from feddag.core.problem import Problem
from feddag.core.task import ClientId
from feddag.deploy.folders import ServerConfig, ServerFolder
from feddag.engines.distributed import DistributedEngine, Post
from feddag.engines.wire import agree, read_problem, write_problem
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.metrics import PROTOCOL
from feddag.runs.drive import drive
from feddag.runs.driver import Watch
from feddag.runs.prepare import NoFacts, prepare
from feddag.runs.presence import ReachedPresence

GLANCE = 0.5  # seconds between two looks for nodes
PROBLEM = "problem.json"  # in the run folder: what server and nodes have agreed on


class WatchFile:
    """Events as lines of a file that somebody may follow; nobody has to."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def __call__(self, event: dict[str, Any]) -> None:
        """Write one event."""
        self.file.write(json.dumps(event) + "\n")
        self.file.flush()


class NodePresence(ReachedPresence):
    """Whoever is connected; a node says itself whether it has samples to train on."""

    def trains(self, client: ClientId) -> bool:
        """Whether the client's node has training samples."""
        assert isinstance(self.engine, DistributedEngine)
        return self.engine.trains(client)


class NodeFacts(NoFacts):
    """A real server knows the name of the data and nothing else."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def about(self) -> dict[str, Any]:
        """The data's name; where they lie is the nodes' business."""
        name = self.experiment.data.name
        return {"source": {"dataset": name, "kind": "held by the nodes", "detail": "", "complete": True}}


def serve(post: Post, folder: Path | str) -> None:
    """Drive the run that the server folder's state names, from its last checkpoint to its result."""
    place = ServerFolder(folder)
    watch = WatchFile(place.watch)
    try:
        state = place.state()
        if not state.get("run"):
            raise InvalidInput(f"no run was started in {place.folder}: use feddag deploy up or serve")
        _serve(post, place, state, watch)
    except FederationError as error:
        watch({"event": "failed", "text": str(error)})
        raise


def _serve(post: Post, place: ServerFolder, state: dict[str, Any], watch: Watch) -> None:
    config, experiment = place.config, Experiment.from_file(place.experiment)
    run_folder = Path(state["folder"])
    with lock_folder(run_folder):
        engine = DistributedEngine(
            post,
            state["run"],
            experiment.model,
            receipts=run_folder / "memories",
            registered=None if config.insecure else {int(n): c for n, c in state["nodes"].items()},
            grace=config.grace_seconds,
            warn=lambda text: watch({"event": "warning", "text": text}),
        )
        problem = _meet(engine, config, run_folder, watch)
        prepared = prepare(experiment, problem)
        facts = NodeFacts(experiment)
        about = {
            "folder": str(run_folder),
            "experiment": experiment.settings(),
            "model": prepared.network.name,
            **engine.describe(),
            **facts.about(),
            "notes": {},
            "clients": len(engine.met),
            "clients_without_samples": [c for c in engine.clients() if not engine.trains(c)],
            "protocol": PROTOCOL,
            "machine": describe_machine(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        go_on = f"feddag deploy resume {place.folder}"
        drive(prepared, engine, NodePresence(engine), facts, run_folder, watch, about, go_on)


def _meet(engine: DistributedEngine, config: ServerConfig, run_folder: Path, watch: Watch) -> Problem:
    """Wait until all nodes are there; the problem that they agree on, now or when the run was started."""
    path = run_folder / PROBLEM
    agreed = path.exists()
    if agreed:
        engine.problem = read_problem(path.read_text())
    # A run that goes on waits for everybody, so that nothing changes; but not for ever.
    patience = config.rejoin_seconds if agreed else 60 * config.wait_minutes
    until, told = time.monotonic() + patience, -1
    while len(connected := engine.connected()) < config.clients:
        if len(connected) != told:
            told = len(connected)
            watch({"event": "waiting", "connected": told, "wanted": config.clients})
        if time.monotonic() > until:
            if agreed and connected:
                break
            raise InvalidInput(
                f"{len(connected)} of {config.clients} nodes were connected after {patience:g} s: start the "
                "others, or lower 'clients' in server.toml"
            )
        time.sleep(GLANCE)
    if not agreed:
        engine.problem = agree(connected)
        write_durably(path, write_problem(engine.problem).encode())
    assert engine.problem is not None
    return engine.problem
