# SPDX-License-Identifier: Apache-2.0
"""Rounds of a toy federation without a driver: tests look at every state and at every answer."""

from dataclasses import replace
from typing import Any

from feddag.contracts.toys import toy_server
from feddag.core.seeds import Seed
from feddag.data.federation import NO_INDICES
from feddag.engines.inline import InlineEngine
from feddag.runs.simulate import Simulation


def played(
    simulation: Simulation, rounds: int, *, share: float = 1.0, engine: Any = None, log: list | None = None
) -> list[Any]:
    """The states of the start, with everybody, and of all rounds, with the first clients.

    `log` gets (task, round, answers) of every question.
    """
    engine = engine or InlineEngine(simulation.site)
    engine.memories.of.clear()
    clients = simulation.trainable

    def server(round_: int) -> Any:
        return toy_server(
            simulation.site,
            engine,
            clients=clients,
            cohort=clients[: round(share * len(clients))] if round_ else clients,
            round=round_,
            seed=Seed(1),
            num_rounds=rounds,
            on_answers=lambda task, r, answers: None if log is None else log.append((task.name, r, answers)),
        )

    found = [simulation.algorithm.start(server(0))]
    for round_ in range(1, rounds + 1):
        found.append(simulation.algorithm.round(found[-1], server(round_)))
    return found


def without_validation(simulation: Simulation) -> Simulation:
    """The same federation, but no client has validation samples."""
    federation = simulation.federation
    shares = {c: replace(share, validation=NO_INDICES) for c, share in federation.clients.items()}
    return replace(simulation, federation=replace(federation, clients=shares))
