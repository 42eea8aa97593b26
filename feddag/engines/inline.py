# SPDX-License-Identifier: Apache-2.0
"""The reference engine: one client after another in this process, made for reading and debugging."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.task import ClientId, ClientTask
from feddag.engines.memories import Remembered
from feddag.engines.perform import Site
from feddag.engines.simulated import SimulatedClients
from feddag.engines.together import groups, perform_together


class InlineEngine(SimulatedClients):
    """Runs every task in this process. It cannot interrupt a client: late answers are discarded."""

    def __init__(self, site: Site, memories: Path | None = None, owner: str = "") -> None:
        super().__init__(site, memories, owner)
        self._blas = ThreadpoolController()

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Ask the clients one by one, or some at once where they train at once."""
        answers: dict[ClientId, Answer] = {}
        # One BLAS thread, as in a worker: the same bits, and no fight for cores.
        with self._blas.limit(limits=1, user_api="blas"):
            for group in groups(self.site, [*requests], exchange.round):
                asked = {client: requests[client] for client in group}
                memories = {client: self.memories.get(client) for client in group}
                performed = perform_together(self.site, task, asked, exchange, memories)
                for client, (answer, memory_after) in performed.items():
                    answers[client] = self._received(client, answer, memory_after, exchange.deadline)
                    answers[client] = replace(answers[client], bytes_down=codec.nbytes(requests[client]))
                    exchange.on_answer(client)
        return answers

    def _received(self, client: ClientId, answer: Answer, memory: Remembered, deadline: float) -> Answer:
        if answer.seconds > deadline:
            late = f"took {answer.seconds:.1f} s, the deadline is {deadline:g} s"
            return Answer(failure=late, seconds=answer.seconds)
        if not answer.failure:
            self.memories.put(client, memory)
        return answer
