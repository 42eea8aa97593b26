# SPDX-License-Identifier: Apache-2.0
"""The processes of a node: its desk, which holds the data, and Flower's SuperNode, which holds the line."""

import contextlib
import sys
import time
from collections.abc import Callable

from feddag.core.errors import InvalidInput
from feddag.deploy.counter import ADDRESS
from feddag.deploy.folders import NodeFolder
from feddag.deploy.services import Service, end_all, environment, free_port

GLANCE = 0.5
REFUSED = "Failed to activate SuperNode"  # what Flower says
BAD_INPUT = 2  # exit code of a desk whose data or settings are wrong


class NodeServices:
    """Desk and SuperNode of one node; both are started again when they end."""

    def __init__(self, place: NodeFolder) -> None:
        self.place, config = place, place.config
        self.client = config.client
        self._told = False
        env = environment(place.flower_home)
        place.flower_home.mkdir(parents=True, exist_ok=True)
        (place.folder / ADDRESS).unlink(missing_ok=True)
        desk = [sys.executable, "-m", "feddag.deploy.desk", str(place.folder)]
        self.desk = Service(f"desk of {config.client}", desk, env, place.logs / "desk.log")
        port = config.port or free_port()
        node_config = f'folder="{place.folder}" client-id="{config.client}"'
        command = ["flower-supernode", "--superlink", config.server, "--host", "127.0.0.1"]
        command += ["--port", str(port), "--node-config", node_config]
        if config.insecure:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(place.authority)]
            command += ["--auth-supernode-private-key", str(place.key)]
        self.supernode = Service(f"SuperNode of {config.client}", command, env, place.logs / "supernode.log")

    @property
    def all(self) -> list[Service]:
        """Both processes."""
        return [self.desk, self.supernode]

    def start(self) -> None:
        """Start both; the desk opens while the SuperNode connects."""
        self.desk.start()
        self.supernode.start()

    def tend(self) -> str:
        """Start again what has ended; InvalidInput if the desk cannot open its data.

        Returns what the operator should know, once.
        """
        process = self.desk.process
        if process is not None and process.poll() == BAD_INPUT:
            words = self.desk.last_words().strip().splitlines()
            reason = words[-1].removeprefix("feddag: ") if words else "it gave no reason"
            raise InvalidInput(f"node '{self.client}': {reason}")
        self.desk.tend()
        if self.supernode.tend() and REFUSED in self.supernode.last_words() and not self._told:
            self._told = True
            return (
                f"the server at {self.place.config.server} refused node '{self.client}': its key is not "
                "registered there yet, or it was connected a minute ago and must wait; it is tried again"
            )
        return ""

    def end(self) -> None:
        """End both."""
        end_all(self.all)
        with contextlib.suppress(OSError):
            (self.place.folder / ADDRESS).unlink(missing_ok=True)


def run_node(place: NodeFolder, tell: Callable[[str], None]) -> None:
    """Be a node until somebody stops it."""
    services = NodeServices(place)
    try:
        services.start()
        while True:
            if text := services.tend():
                tell(text)
            time.sleep(GLANCE)
    finally:
        services.end()
