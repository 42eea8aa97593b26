# SPDX-License-Identifier: Apache-2.0
"""A Grid without a network: real Flower messages and a real ClientApp, in this process, in shuffled order."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity  # private: outside a runtime nobody else sets it

from feddag.core.engine import Answer, Exchange
from feddag.core.task import ClientId, ClientTask
from feddag.deploy.flower_app import client_app
from feddag.engines.distributed import DistributedEngine
from feddag.engines.flower import FlowerPost
from feddag.engines.node import Node
from feddag.engines.perform import Site
from feddag.learning.evaluation import evaluate

Spoil = Callable[[int, Message, Message], Message | None]  # node, question, reply → reply, or None: it hangs


class LoopGrid(Grid):
    """Nodes by id; each answers at once, and replies come one per pull in an order of their own."""

    def __init__(self, nodes: Mapping[int, Node], seed: int = 0) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.nodes = dict(nodes)
        self.away: set[int] = set()
        self.spoil: Spoil = lambda node, question, reply: reply
        self.late: list[Message] = []  # delivered whoever asks for replies next
        self._waiting: list[Message] = []
        self._order = np.random.default_rng(seed)
        self._count = 0

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.nodes if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers: list[str | None] = []
        for message in messages:
            self._count += 1
            number = f"message {self._count}"
            message.metadata.__dict__["_message_id"] = number
            node = message.metadata.dst_node_id
            numbers.append(None if node in self.away else number)
            if node not in self.away:
                reply = self.spoil(node, message, self._handle(node, message))
                self._waiting += [] if reply is None else [reply]
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        late, self.late = self.late, []
        if not self._waiting:
            return late
        return [*late, self._waiting.pop(int(self._order.integers(len(self._waiting))))]

    def _handle(self, number: int, message: Message) -> Message:
        node = self.nodes[number]
        context = Context(run_id=1, node_id=number, node_config={}, state=RecordDict(), run_config={})
        try:
            return app_of(node)(message, context)
        except Exception as error:  # as Flower does
            return Message(Error(code=3, reason=f"{type(error)}:<'{error}'>"), reply_to=message)

    # Not used by us.
    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    run = property(lambda self: None)

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise NotImplementedError


def app_of(node: Node) -> ClientApp:
    """The app that a node would load, without the way through its desk."""
    return client_app(node.tasks, lambda config, head, body: node.answer(head, body))


def nodes_of(site: Site, tasks: Iterable[ClientTask], folder: Path, model: str = "mlp") -> dict[int, Node]:
    """One node per client of a federation; ids as strange as Flower's."""
    named = {task.name: task for task in (*tasks, evaluate)}
    clients = enumerate(site.federation.ids)
    return {
        1000 + (7919 * i) % 997: Node(c, site.federation, named, model, folder / c, site.backend)
        for i, c in clients
    }


class LoopEngine(DistributedEngine):
    """The distributed engine over a LoopGrid; tests can look into the nodes' memories."""

    def __init__(self, grid: LoopGrid, **options: Any) -> None:
        options = {"run": "r0", "model": "mlp", "grace": 0.0, **options}
        super().__init__(FlowerPost(grid), **options)
        self.grid = grid
        self.clients()  # they say hello

    @property
    def memories(self) -> "LoopEngine":
        return self

    @property
    def of(self) -> dict[ClientId, Any]:
        """What every client remembers at the version that the server knows."""
        nodes = {node.client: node for node in self.grid.nodes.values()}
        return {c: nodes[c].memory.read(self.run, version) for c, version in self.receipts.now.items()}

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        return super().ask(task, requests, exchange)
