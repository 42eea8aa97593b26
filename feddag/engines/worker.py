# SPDX-License-Identifier: Apache-2.0
"""A worker process of the process engine; `feddag.engines.workers` starts it.

Its standard input brings one line that says which worker it is, one line that says where to call back, and
then nothing more: when it ends, the engine is gone.
"""

import gc
import json
import os
import select
import sys
import threading
from collections.abc import Collection
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import FederationError
from feddag.core.seeds import Seed
from feddag.core.task import ClientTask, Memory, load_task
from feddag.data.federation import Federation
from feddag.engines.memories import Remembered
from feddag.engines.perform import open_site, single_threaded
from feddag.engines.private_folder import remove_folder
from feddag.engines.together import perform_together
from feddag.learning.devices import Computing
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.guard import Protection

GLANCE = 1.0  # seconds between two looks at the parent process


def blob(data: bytes) -> np.ndarray:
    """Bytes as an array, so that a packed message can travel inside another."""
    return np.frombuffer(data, dtype=np.uint8)


class Desk:
    """Answers one question after another; tasks and the latest broadcast are loaded once."""

    def __init__(
        self, data: Path, model: str, backend: str, privacy: Protection | None, computing: Computing
    ) -> None:
        self.site = open_site(Federation.open(data), model, backend, privacy, computing)
        self.tasks: dict[str, ClientTask] = {}
        self.requests: dict[str, Any] = {}  # those of the latest question

    def answers(self, question: codec.Payload) -> list[codec.Payload]:
        """Perform the task a question names for its clients; any fault is told in the answer."""
        asked = json.loads(question["clients"])  # client id → where its request is
        try:
            task = self._load(question["task"], set(asked.values()))
            requests = {client: self.requests[block] for client, block in asked.items()}
            exchange = Exchange(
                question["round"], Seed(question["root"], tuple(json.loads(question["path"])))
            )
            memories = {
                client: codec.decode(Memory, question[f"memory {i}"].tobytes()).unwrap()
                for i, client in enumerate(asked)
            }
            performed = perform_together(self.site, task, requests, exchange, memories)
        except FederationError as error:
            return [{"failure": str(error), "seconds": 0.0} for _ in asked]
        return [self._packed(*performed[client]) for client in asked]

    @staticmethod
    def _packed(answer: Answer, memory: Remembered) -> codec.Payload:
        if answer.failure:
            return {"failure": answer.failure, "seconds": answer.seconds}
        return {
            "failure": "",
            "seconds": answer.seconds,
            "samples": answer.samples,
            "epochs": answer.epochs,
            "bytes_up": answer.bytes_up,
            "phases": json.dumps(answer.phases),
            "reply": blob(codec.encode(answer.reply)),
            "memory": blob(codec.encode(Memory.of(memory))),
        }

    def _load(self, address: str, blocks: Collection[str]) -> ClientTask:
        if address not in self.tasks:
            self.tasks[address] = load_task(address)
        task, known = self.tasks[address], self.requests
        self.requests = {
            block: known[block] if block in known else codec.decode(task.request, Path(block).read_bytes())
            for block in sorted(blocks)
        }
        return task


def protection(hello: codec.Payload) -> Protection | None:
    """The privacy that the engine asks for, if it asks for any."""
    if "privacy" not in hello:
        return None
    return Protection(codec.decode(PrivacyOptions, hello["privacy"].tobytes()), Path(hello["ledger"]))


def serve(connection: Connection, number: int, screen: int | None) -> None:
    """Answer questions until the engine closes the connection."""
    gc.freeze()  # torch alone is half a million objects: the collector need not look at them again and again
    connection.send_bytes(codec.pack({"number": number}))
    hello = codec.unpack(connection.recv_bytes())
    folder = Path(hello["folder"])
    threading.Thread(target=end_with_parent, args=(folder, os.getppid()), daemon=True).start()
    computing = codec.decode(Computing, hello["computing"].tobytes())
    desk = Desk(Path(hello["data"]), hello["model"], hello["backend"], protection(hello), computing)
    if screen is not None:  # it has started: from now on its words go to the user
        os.dup2(screen, 2)
        os.close(screen)
    connection.send_bytes(codec.pack({"ready": True}))
    try:
        while True:
            for answer in desk.answers(codec.unpack(connection.recv_bytes())):
                connection.send_bytes(codec.pack(answer))
    except (EOFError, ConnectionError):
        remove_folder(folder)  # the engine is gone: nobody else will remove the files it shared with us


def end_with_parent(folder: Path, parent: int) -> None:
    """Wait until standard input ends or the parent process is another one; then clean up and end.

    The parent was killed: even a task that would never return must end now.
    """
    while os.getppid() == parent:
        # Windows cannot wait for a pipe with a limit; there, reading alone must do.
        came = os.name != "posix" or select.select([0], [], [], GLANCE)[0]
        if came and not os.read(0, 1024):
            break
    remove_folder(folder)
    os._exit(1)


def read_line() -> dict[str, Any]:
    """One line of standard input, without reading beyond it; the process ends if there is none."""
    line = bytearray()
    while not line.endswith(b"\n"):
        letter = os.read(0, 1)
        if not letter:
            sys.exit(1)
        line += letter
    return json.loads(line)


def main() -> None:
    """Call back, and serve."""
    me, where = read_line(), read_line()
    address = where["address"]
    with single_threaded():
        connection = connect(
            tuple(address) if isinstance(address, list) else address, authkey=bytes.fromhex(where["key"])
        )
        serve(connection, me["number"], me["screen"])
