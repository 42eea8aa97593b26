# SPDX-License-Identifier: Apache-2.0
"""A node's desk: the process that stays, holds the node's data and memory, and answers questions.

python -m feddag.deploy.desk NODE_FOLDER

ClientApp processes hand questions in over a local socket that only this user can open. A task that exceeds
its deadline ends the whole process; whoever started the desk starts it again, and nothing is lost, because a
memory is on the disk before an answer is sent.
"""

import json
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from feddag.core import codec
from feddag.core.errors import FederationError, InvalidInput, InvalidMessage
from feddag.core.files import write_durably
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.data.federation import Federation
from feddag.data.own.one_client import own_client
from feddag.deploy.counter import ADDRESS
from feddag.deploy.folders import NodeConfig, NodeFolder
from feddag.deploy.tasks import tasks_of
from feddag.engines.node import Node
from feddag.engines.wire import Question
from feddag.experiment.settings import Experiment
from feddag.privacy.guard import Protection
from feddag.privacy.limits import load_limits

EXCEEDED = 70  # exit code of a desk that had to leave a task


def open_node(folder: Path | str) -> Node:
    """The node of a folder with its samples, checked."""
    place = NodeFolder(folder)
    experiment, config = Experiment.from_file(place.experiment), place.config
    return Node(
        config.client,
        samples_of(experiment, config),
        tasks_of(experiment),
        experiment.model,
        place.memory,
        experiment.engine.backend,
        protection_of(experiment, place),
        experiment.engine.computing,
    )


def protection_of(experiment: Experiment, place: NodeFolder) -> Protection | None:
    """What stands between the node's samples and the server: the run's level, and the node's own limits."""
    own = place.folder / "limits.toml"
    limits = load_limits(own) if own.is_file() else None
    if not experiment.privacy.on:
        if limits is not None:
            raise InvalidInput(f"{own} sets limits, but the run has privacy.level = 'off': nothing may leave")
        return None
    ledger = place.folder / "ledger.jsonl"  # what left this node
    options = replace(experiment.privacy, limits="")  # a path of the server's machine means nothing here
    tasks = experiment.build_algorithm().tasks
    return Protection(options, ledger, limits, deployed=True, tasks=tasks)


def samples_of(experiment: Experiment, config: NodeConfig) -> Federation:
    """The samples that the node's configuration names, or its share of the experiment's dataset."""
    seed = Seed(experiment.seed)
    if config.data:
        return own_client(
            Path(config.data).expanduser(), config.client, experiment.data, experiment.partition, seed
        )
    if experiment.data.name == "own" and experiment.data.path is None:
        raise InvalidInput(
            f"client '{config.client}': node.toml must say where the data are: data = \"/path\""
        )
    return build_federation(experiment.data, experiment.partition, experiment.num_clients, seed)


class Desk:
    """Takes questions from one ClientApp after another."""

    def __init__(self, node: Node, folder: Path, leave: Callable[[int], None] = os._exit) -> None:
        self.node, self.folder, self.leave = node, folder, leave
        self.key = secrets.token_bytes(32)
        # A short path: those of sockets may have about a hundred characters.
        self._place = tempfile.TemporaryDirectory(prefix="feddag-desk-")
        self.listener = Listener(str(Path(self._place.name) / "desk"), "AF_UNIX", authkey=self.key)
        where = {"address": self.listener.address, "key": self.key.hex(), "process": os.getpid()}
        write_durably(folder / ADDRESS, json.dumps(where).encode(), private=True)

    def serve(self) -> None:
        """Until the process ends."""
        while True:
            try:
                connection = self.listener.accept()
            except (OSError, EOFError, AuthenticationError):  # a caller that hung up, or a stranger
                continue
            with connection:
                self.answer(connection)

    def answer(self, connection: Connection) -> None:
        """One question; a caller that hangs up meanwhile costs nothing but the answer."""
        try:
            head, body = connection.recv_bytes(), connection.recv_bytes()
            deadline = codec.decode(Question, head).deadline
            connection.send_bytes(json.dumps({"deadline": deadline}).encode())
            alarm = threading.Timer(deadline, self.leave, (EXCEEDED,)) if deadline > 0 else None
            if alarm is not None:
                alarm.daemon = True
                alarm.start()
            try:
                answered = self.node.answer(head, body)
            finally:
                if alarm is not None:
                    alarm.cancel()
            for part in answered:
                connection.send_bytes(part)
        except (EOFError, OSError, InvalidMessage) as error:
            print(f"a question could not be answered: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the socket."""
        self.listener.close()
        self._place.cleanup()


def end_with_parent() -> None:
    """Wait until standard input ends: whoever started this desk is gone."""
    while os.read(0, 1024):
        pass
    os._exit(1)


def main() -> None:
    """Open the data, say so, and serve."""
    folder = Path(sys.argv[1])
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        desk = Desk(open_node(folder), folder)
    except FederationError as error:
        print(f"feddag: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    print(f"the desk of client '{desk.node.client}' is open", flush=True)
    desk.serve()


if __name__ == "__main__":
    main()
