# SPDX-License-Identifier: Apache-2.0
"""A whole deployment on this machine, or its server alone: started, watched, and taken down again."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, Interrupted, InvalidInput
from feddag.core.files import lock_folder
from feddag.deploy.folders import NodeFolder, ServerFolder, require_flower
from feddag.deploy.node import NodeServices
from feddag.deploy.services import end_all
from feddag.deploy.supervisor import Supervisor
from feddag.experiment.settings import Experiment
from feddag.runs.drive import new_folder
from feddag.runs.driver import Watch

GLANCE = 0.1
STOP_LIMIT = 60.0  # seconds that a deployment has to stop


def server_of(folder: Path) -> ServerFolder:
    """The server folder of a deployment; the folder itself may be it."""
    for place in (folder, folder / "server"):
        if (place / "server.toml").is_file():
            return ServerFolder(place)
    raise InvalidInput(
        f"{folder} is no deployment: there is no server.toml in it (feddag deploy init makes one)"
    )


def nodes_of(folder: Path) -> list[NodeFolder]:
    """The node folders of a deployment."""
    return [NodeFolder(path.parent) for path in sorted(folder.glob("nodes/*/node.toml"))]


def unfinished_run(server: ServerFolder) -> Path | None:
    """The folder of a run that was started here and has no result yet."""
    folder = server.state().get("folder")
    return Path(folder) if folder and not (Path(folder) / "result.json").exists() else None


def run_deployment(
    folder: Path, watch: Watch, *, local: bool, resume: bool = False, root: Path | None = None
) -> Path:
    """Run to the end: the server, and with `local` also all nodes of the deployment; returns the run folder.

    A new run folder is made in `root`, by default where server.toml says.
    """
    require_flower()
    server = server_of(folder)
    experiment = Experiment.from_file(server.experiment)
    open_run = unfinished_run(server)
    if resume and open_run is None:
        raise InvalidInput(f"there is no unfinished run in {folder}: start one with feddag deploy up")
    if not resume and open_run is not None and any((open_run / "checkpoints").glob("*.json")):
        raise InvalidInput(
            f"the run in {open_run} is not finished: go on with feddag deploy resume {folder}, "
            f"or remove {server.folder / 'state.json'} to give it up"
        )
    with lock_folder(server.folder), stopped_by_signals():
        (server.folder / "supervisor").write_text(str(os.getpid()))
        supervisor = Supervisor(server)
        nodes = [NodeServices(place) for place in nodes_of(folder)] if local else []
        if local and not nodes:
            raise InvalidInput(f"{folder} has no nodes: feddag deploy init makes nodes/*/node.toml")
        if open_run is None or not resume:
            runs = (root or server.folder / server.config.runs).resolve()
            supervisor.begin(new_folder(runs, experiment), experiment.digest)
        server.write_state(local=local)
        run_folder = Path(server.state()["folder"])
        try:
            for node in nodes:  # they open their data while the SuperLink starts
                node.desk.start()
            supervisor.start()
            for node in nodes:
                node.supernode.start()
            _watch_to_the_end(supervisor, nodes, watch)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; go on with: feddag deploy resume {folder}") from None
        finally:
            with _undisturbed():
                end_all([supervisor.superlink, *(service for node in nodes for service in node.all)])
                supervisor.end()
                for node in nodes:
                    node.end()
                (server.folder / "supervisor").unlink(missing_ok=True)
    return run_folder


def _watch_to_the_end(supervisor: Supervisor, nodes: list[NodeServices], watch: Watch) -> None:
    while True:
        for event in supervisor.tend():
            watch(event)
            if event["event"] == "failed":
                raise FederationError(event["text"])
            if event["event"] == "finished":
                return
        for node in nodes:
            if text := node.tend():
                watch({"event": "warning", "text": text})
        time.sleep(GLANCE)


def stop_deployment(folder: Path) -> bool:
    """Stop what `up`, `serve` or `resume` started here; whether there was anything to stop."""
    server = server_of(folder)
    process = _supervisor_of(server)
    if not process:
        return False
    os.kill(process, signal.SIGTERM)
    until = time.monotonic() + STOP_LIMIT
    while _supervisor_of(server) == process:
        if time.monotonic() > until:
            raise FederationError(f"process {process} did not stop within {STOP_LIMIT:g} s")
        time.sleep(GLANCE)
    return True


def status_of(folder: Path) -> dict[str, Any]:
    """What is known about a deployment without asking anybody: plain values."""
    server = server_of(folder)
    state = server.state()
    run_folder = Path(state["folder"]) if state.get("folder") else None
    events: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for line in server.watch.read_text().splitlines():
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
    rounds = [event["round"] for event in events if event["event"] in ("round", "start")]
    waiting = [event for event in events if event["event"] == "waiting"]
    finished = run_folder is not None and (run_folder / "result.json").exists()
    return {
        "running": bool(_supervisor_of(server)),
        "address": f"{server.config.host}:{server.config.port}",
        "registered": len(state.get("nodes", {})),
        "wanted": server.config.clients,
        "run": str(run_folder) if run_folder else None,
        "round": rounds[-1] if rounds else None,
        "rounds": Experiment.from_file(server.experiment).num_rounds,
        "finished": finished,
        "waiting": waiting[-1]["connected"] if waiting and not rounds and not finished else None,
        "failed": next((e["text"] for e in reversed(events) if e["event"] == "failed"), None),
    }


def _supervisor_of(server: ServerFolder) -> int:
    """The process that takes care of a deployment now; 0 if nobody does."""
    try:
        process = int((server.folder / "supervisor").read_text())
    except (OSError, ValueError):
        return 0
    try:
        with lock_folder(server.folder):
            return 0  # nobody holds the lock: it was killed
    except FederationError:
        return process


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let a polite end (SIGTERM, as systemd sends it) be what Ctrl-C is, also for background commands.

    A shell starts background commands with Ctrl-C ignored, and Python leaves it so.
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Nothing may interrupt the taking down: a second Ctrl-C would leave processes behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
