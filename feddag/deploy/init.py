# SPDX-License-Identifier: Apache-2.0
"""Making a deployment: a folder per role with everything that its machine needs."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.core.text import plural
from feddag.data.build import build_federation
from feddag.deploy.certificates import write_certificates, write_node_key
from feddag.deploy.folders import require_flower
from feddag.deploy.tasks import tasks_of
from feddag.experiment.settings import DEFAULTS, Experiment

TEMPLATES = Path(__file__).parent / "templates"
DEADLINE = 600.0  # seconds per task: a node that hangs must not stop everybody
LOCAL_NAMES = ("localhost", "127.0.0.1")


def deployed(settings: Mapping[str, Any], per_client: bool = False) -> Experiment:
    """The experiment as it is deployed: what settings leave open becomes careful.

    Privacy is `guarded`: nodes send principal vectors of a class only from 50 samples per vector on, whatever
    the server asks for. The server keeps scores as sums over clusters, unless it asks for each client's own
    (`per_client`). Every task has a deadline.
    """
    plain = dict(settings)
    if plain.get("privacy", DEFAULTS["privacy"]) == DEFAULTS["privacy"]:
        plain["privacy"] = {"level": "guarded"}
    if not per_client:
        plain["evaluation"] = {**plain.get("evaluation", {}), "scores": "clusters"}
    given = plain.get("engine", {})
    chosen = (
        {} if isinstance(given, str) else {key: value for key, value in given.items() if value is not None}
    )
    return Experiment.from_settings({**plain, "engine": {"deadline": DEADLINE, **chosen, "name": "flower"}})


def make_deployment(
    experiment: Experiment,
    folder: Path,
    *,
    server: str = "127.0.0.1:9092",
    bind: str = "127.0.0.1",
    names: Sequence[str] = (),
    insecure: bool = False,
) -> list[str]:
    """Write server/, nodes/*/, compose.yaml and README.md; the clients' ids. Nothing stays half-written."""
    require_flower()
    if folder.exists():
        raise InvalidInput(f"the folder {folder} exists: choose another with --folder")
    host, port = _address(server)
    clients, places = _clients(experiment)
    making = folder.with_name(f".{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    try:
        _write(making, experiment, clients, places, (host, port, bind, insecure), names)
        os.replace(making, folder)
    except OSError as error:
        raise InvalidInput(f"the folder {folder} cannot be made: {error.strerror or error}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return clients


def _clients(experiment: Experiment) -> tuple[list[str], dict[str, str]]:
    """The clients' ids; for own data that lie here also where each one's are."""
    if experiment.data.name == "own" and experiment.data.path is None:
        number = experiment.num_clients or 0
        if not number:
            raise InvalidInput(
                "data.name = 'own' without data.path: say how many nodes there are with --clients"
            )
        return [f"c{i:03d}" for i in range(number)], {}
    federation = build_federation(
        experiment.data, experiment.partition, experiment.num_clients, Seed(experiment.seed)
    )
    if federation.newcomers or experiment.scenario != type(experiment.scenario)():
        raise InvalidInput(
            "partition.newcomers and [scenario] plan who joins in a simulation: in a deployment nodes join "
            "and leave by themselves; remove them"
        )
    return list(federation.ids), {}


def _write(
    folder: Path,
    experiment: Experiment,
    clients: list[str],
    places: Mapping[str, str],
    address: tuple[str, int, str, bool],
    names: Sequence[str],
) -> None:
    host, port, bind, insecure = address
    server = folder / "server"
    (server / "nodes").mkdir(parents=True)
    settings = json.dumps(experiment.settings(), indent=1)
    (server / "experiment.json").write_text(settings)
    write_certificates(server, (host, *names, *LOCAL_NAMES, "server"))
    values = {
        "host": host,
        "port": str(port),
        "bind": bind,
        "clients": str(len(clients)),
        "insecure": str(insecure).lower(),
        "tasks": repr(tuple(name for name, task in tasks_of(experiment).items() if not task.sees_test)),
        "algorithm": experiment.algorithm.name,
        "data": experiment.data.name,
        "nodes": plural(len(clients), "node"),
        "names": ", ".join(clients[:8]) + (" …" if len(clients) > 8 else ""),
    }
    for name in ("server.toml", "start.sh", "feddag-server.service", "nginx.conf"):
        _fill(f"server/{name}", server / name, values)
    (server / "app" / "feddag_app").mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "feddag_app/__init__.py",
        "feddag_app/client_app.py",
        "feddag_app/server_app.py",
    ):
        _fill(f"app/{name}", server / "app" / name, values)
    for client in clients:
        node = folder / "nodes" / client
        node.mkdir(parents=True)
        (node / "experiment.json").write_text(settings)
        shutil.copy(server / "ca.crt", node / "ca.crt")
        write_node_key(node / "node.key", node / "node.pub")
        shutil.copy(node / "node.pub", server / "nodes" / f"{client}.pub")
        own = {**values, "client": client, "place": places.get(client, "")}
        for name in ("node.toml", "start.sh", "feddag-node.service"):
            _fill(f"node/{name}", node / name, own)
    blocks = [_filled("compose-node.yaml", {**values, "client": client}) for client in clients]
    _fill("compose.yaml", folder / "compose.yaml", {**values, "node_services": "".join(blocks)})
    _fill("README.md", folder / "README.md", values)
    for script in folder.rglob("start.sh"):
        script.chmod(0o755)


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (TEMPLATES / f"{template}.txt").read_text()
    for key, value in values.items():
        text = text.replace("{{" + key + "}}", value)
    return text


def _fill(template: str, path: Path, values: Mapping[str, str]) -> None:
    path.write_text(_filled(template, values))


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or '"' in host:
        raise InvalidInput(f"--server {server}: expected host:port, for example 10.0.0.1:9092")
    return host.strip("[]"), int(port)
