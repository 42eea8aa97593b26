# SPDX-License-Identifier: Apache-2.0
"""What it costs to run over Flower: seconds per round against worker processes, and bytes on the wire.

    python benchmarks/deploy.py --nodes 2 4 8 --out overhead.json

Everything runs on this machine over TLS with authenticated nodes, which compete for its cores. Flower's own
floor is measured in the same run, before it: an empty message to every node and back, as often as there are
rounds. Bytes are counted by a forwarder that stands between the nodes and the server.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from feddag.core.host import describe_machine
from feddag.deploy.init import deployed, make_deployment
from feddag.deploy.services import free_port
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.log import read_events
from feddag.runs.simulate import run

FLOOR_APP = '''
"""The deployment's app, which measures Flower's floor first."""
import json, time
from pathlib import Path
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from feddag.engines.flower import FlowerPost
from feddag.deploy.flower_app import server_app

inner = server_app()
app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    post, seconds = FlowerPost(grid), []
    while len(post.nodes()) < NODES:
        time.sleep(0.5)
    for round_ in range(ROUNDS + 1):
        started = time.perf_counter()
        came = post.carry({node: ("query.echo", b"x", b"") for node in post.nodes()}, "echo", 600.0)
        assert not any(isinstance(reply, str) for reply in came.values()), came
        seconds.append(time.perf_counter() - started)
    (folder / "floor.json").write_text(json.dumps(seconds[1:]))
    inner(grid=grid, context=context)
'''


class Forwarder:
    """Passes TCP connections on to the server, and counts what passes."""

    def __init__(self, target: int) -> None:
        self.target, self.up, self.down = target, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            inside, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(inside,), daemon=True).start()

    def _serve(self, inside: socket.socket) -> None:
        try:
            outside = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            inside.close()
            return
        for source, target, name in ((inside, outside, "up"), (outside, inside, "down")):
            threading.Thread(target=self._pass, args=(source, target, name), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, name: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, name, getattr(self, name) + len(data))
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()


def settings(nodes: int, rounds: int) -> dict[str, Any]:
    """FedAvg on Fashion-MNIST's embedded sample: one question per round, a model of some size."""
    return {
        "num_clients": nodes,
        "num_rounds": rounds,
        "fraction_train": 1.0,
        "data": "fashion-mnist-sample",
        "algorithm": "fedavg",
        "training": {"local_epochs": 1, "batch_size": 32, "lr": 0.05},
        "evaluation": {"every": 1000, "after_training": False},
    }


def rounds_of(folder: Path) -> list[float]:
    """Seconds of every round."""
    return [e["seconds"] for e in read_events(folder / "events.jsonl") if e["event"] == "round"]


def measure(nodes: int, rounds: int, place: Path) -> dict[str, Any]:
    """One row of the table."""
    plain = Experiment.from_settings(settings(nodes, rounds) | {"engine": "process"})
    simulated = run(plain, root=place / "simulated")
    deployment, inner = place / "deployment", free_port()
    forwarder = Forwarder(inner)
    make_deployment(deployed(settings(nodes, rounds)), deployment, server=f"127.0.0.1:{inner}")
    for config in deployment.glob("nodes/*/node.toml"):
        config.write_text(config.read_text().replace(f"127.0.0.1:{inner}", f"127.0.0.1:{forwarder.port}"))
    app = FLOOR_APP.replace("NODES", str(nodes)).replace("ROUNDS", str(rounds))
    (deployment / "server" / "app" / "feddag_app" / "server_app.py").write_text(app)
    started = time.perf_counter()
    command = [sys.executable, "-m", "feddag", "deploy", "up", str(deployment), "--local", "--quiet"]
    subprocess.run(command, cwd=place, check=True)
    whole = time.perf_counter() - started
    folder = Path(json.loads((deployment / "server" / "state.json").read_text())["folder"])
    result = json.loads((folder / "result.json").read_text())
    same = json.loads((simulated / "result.json").read_text())["state_digest"] == result["state_digest"]
    asked = [e for e in read_events(folder / "events.jsonl") if e["event"] == "exchange"]
    floor = json.loads((deployment / "server" / "floor.json").read_text())
    return {
        "nodes": nodes,
        "rounds": rounds,
        "process": median(rounds_of(simulated)),
        "floor": median(floor),
        "flower": median(rounds_of(folder)),
        "whole": whole,
        "counted_down": sum(e["bytes_down"] for e in asked),
        "counted_up": sum(e["bytes_up"] for e in asked),
        "wire_down": forwarder.down,
        "wire_up": forwarder.up,
        "same_digest": same,
    }


def main() -> None:
    """Measure, print the table in Markdown, and keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("overhead.json"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| nodes | `process` | Flower's floor | over Flower | counted down, up | on the wire down, up |")
    print("|---|---|---|---|---|---|")
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory() as place:
            row = measure(nodes, options.rounds, Path(place))
        rows.append(row)
        counted = f"{row['counted_down'] / 1e6:.2f}, {row['counted_up'] / 1e6:.2f} MB"
        wire = f"{row['wire_down'] / 1e6:.2f}, {row['wire_up'] / 1e6:.2f} MB"
        seconds = " | ".join(f"{row[key]:.2f} s" for key in ("process", "floor", "flower"))
        print(f"| {nodes} | {seconds} | {counted} | {wire} |", flush=True)
        options.out.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
