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
from feddag.engines.perform import Site, perform
from feddag.engines.simulated import SimulatedClients


class InlineEngine(SimulatedClients):
    """Runs every task in this process. It cannot interrupt a client: late answers are discarded."""

    def __init__(self, site: Site, memories: Path | None = None, owner: str = "") -> None:
        super().__init__(site, memories, owner)
        self._blas = ThreadpoolController()

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Ask the clients one by one."""
        answers: dict[ClientId, Answer] = {}
        # One BLAS thread, as in a worker: the same bits, and no fight for cores.
        with self._blas.limit(limits=1, user_api="blas"):
            for client, request in requests.items():
                memory = self.memories.get(client)
                answer, memory_after = perform(self.site, task, request, client, exchange, memory)
                if answer.seconds > exchange.deadline:
                    answer = Answer(
                        failure=f"took {answer.seconds:.1f} s, the deadline is {exchange.deadline:g} s",
                        seconds=answer.seconds,
                    )
                elif not answer.failure:
                    self.memories.put(client, memory_after)
                answers[client] = replace(answer, bytes_down=codec.nbytes(request))
                exchange.on_answer(client)
        return answers
