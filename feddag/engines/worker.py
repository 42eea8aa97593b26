# SPDX-License-Identifier: Apache-2.0
"""A worker process of the process engine: `python -m feddag.engines.worker`, address and key on stdin."""

import gc
import json
import os
import shutil
import sys
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core import codec
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError
from feddag.core.seeds import Seed
from feddag.core.task import ClientTask, Memory, load_task
from feddag.data.federation import Federation
from feddag.engines.perform import open_site, perform, single_threaded


def blob(data: bytes) -> np.ndarray:
    """Bytes as an array, so that a packed message can travel inside another."""
    return np.frombuffer(data, dtype=np.uint8)


class Desk:
    """Answers one question after another; tasks and the latest broadcast are loaded once."""

    def __init__(self, data: Path, model: str, backend: str) -> None:
        self.site = open_site(Federation.open(data), model, backend)
        self.tasks: dict[str, ClientTask] = {}
        self.broadcast: tuple[str, Any] = ("", None)

    def answer(self, question: codec.Payload) -> codec.Payload:
        """Perform the task a question names; any fault is told in the answer."""
        try:
            task, request = self._load(question["task"], question["request"])
            exchange = Exchange(
                question["round"], Seed(question["root"], tuple(json.loads(question["path"])))
            )
            memory = codec.decode(Memory, question["memory"].tobytes()).unwrap()
            answer, memory = perform(self.site, task, request, question["client"], exchange, memory)
        except FederationError as error:
            return {"failure": str(error), "seconds": 0.0}
        if answer.failure:
            return {"failure": answer.failure, "seconds": answer.seconds}
        return {
            "failure": "",
            "seconds": answer.seconds,
            "bytes_up": answer.bytes_up,
            "reply": blob(codec.encode(answer.reply)),
            "memory": blob(codec.encode(Memory.of(memory))),
        }

    def _load(self, address: str, block: str) -> tuple[ClientTask, Any]:
        if address not in self.tasks:
            self.tasks[address] = load_task(address)
        if self.broadcast[0] != block:
            self.broadcast = (block, codec.decode(self.tasks[address].request, Path(block).read_bytes()))
        return self.tasks[address], self.broadcast[1]


def serve(connection: Connection) -> None:
    """Answer questions until the engine closes the connection."""
    gc.freeze()  # torch alone is half a million objects: the collector need not look at them again and again
    connection.send_bytes(codec.pack({"pid": os.getpid()}))
    hello = codec.unpack(connection.recv_bytes())
    desk = Desk(Path(hello["data"]), hello["model"], hello["backend"])
    try:
        while True:
            connection.send_bytes(codec.pack(desk.answer(codec.unpack(connection.recv_bytes()))))
    except (EOFError, ConnectionError):
        # The engine is gone: nobody else will remove the files it shared with us.
        shutil.rmtree(hello["folder"], ignore_errors=True)


if __name__ == "__main__":
    where, key = json.loads(sys.stdin.readline())
    with single_threaded():
        serve(connect(tuple(where) if isinstance(where, list) else where, authkey=bytes.fromhex(key)))
