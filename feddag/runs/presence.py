# SPDX-License-Identifier: Apache-2.0
"""Who is there in which round: as a scenario plans it, or whoever the engine can reach."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from feddag.core.chosen import chosen_clients
from feddag.core.engine import Engine
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.core.task import ClientId
from feddag.experiment.scenario import ScenarioConfig

Absence = tuple[int, int | None]  # first round away, round of return


@dataclass(frozen=True)
class PlannedPresence:
    """The plan of a simulation. Without joins and absences the same clients are there in every round."""

    clients: tuple[ClientId, ...]  # everybody but those who come after the last round
    num_rounds: int
    newcomers: tuple[ClientId, ...] = ()  # they come after the last round
    spectators: Collection[ClientId] = ()  # clients without training samples
    joins: Mapping[ClientId, int] = field(default_factory=dict)  # first round of clients that join
    absences: Mapping[ClientId, tuple[Absence, ...]] = field(default_factory=dict)
    _everybody: list[tuple[ClientId, ...]] = field(default_factory=list, repr=False, compare=False)

    def present(self, round_: int) -> tuple[ClientId, ...]:
        """Clients that are there in a round; after the last round also the newcomers."""
        late = self.newcomers if round_ > self.num_rounds else ()
        if self.joins or self.absences or late:
            return tuple(sorted((*(c for c in self.clients if self._is_there(c, round_)), *late)))
        if not self._everybody:
            self._everybody.append(tuple(sorted(self.clients)))
        return self._everybody[0]

    def _is_there(self, client: ClientId, round_: int) -> bool:
        away = any(
            first <= round_ and (back is None or round_ < back)
            for first, back in self.absences.get(client, ())
        )
        return self.joins.get(client, 0) <= round_ and not away

    def trains(self, client: ClientId) -> bool:
        """Everybody who has training samples."""
        return client not in self.spectators


@dataclass(frozen=True)
class ReachedPresence:
    """Whoever the engine can reach: clients join and leave as they like."""

    engine: Engine
    seen: dict[int, tuple[ClientId, ...]] = field(default_factory=dict)

    def present(self, round_: int) -> tuple[ClientId, ...]:
        """Clients that could be reached when the round was first asked about: a round has one answer."""
        if round_ not in self.seen:
            self.seen[round_] = self.engine.clients()
        return self.seen[round_]

    def trains(self, client: ClientId) -> bool:
        """Every client: one without samples answers that it has none."""
        return True


def plan_presence(
    scenario: ScenarioConfig,
    clients: tuple[ClientId, ...],
    num_rounds: int,
    seed: Seed,
    newcomers: tuple[ClientId, ...] = (),
    spectators: Collection[ClientId] = (),
) -> PlannedPresence:
    """A scenario for these clients; what is impossible is refused in one sentence."""
    joins: dict[ClientId, int] = {}
    absences: dict[ClientId, tuple[Absence, ...]] = {}
    for i, join in enumerate(scenario.join):
        where = f"scenario.join.{i}"
        _check_round(where, "at", join.at, num_rounds)
        free = [c for c in clients if c not in joins]
        for client in chosen_clients(where, join.clients, free, clients, seed / "scenario" / "join" / i):
            if client in joins:
                raise InvalidInput(f"{where}: client '{client}' joins twice")
            joins[client] = join.at
    if joins and not any(c not in joins and c not in spectators for c in clients):
        raise InvalidInput("scenario.join: all clients join later; at least one must be there at the start")
    for i, leave in enumerate(scenario.leave):
        where = f"scenario.leave.{i}"
        _check_round(where, "at", leave.at, num_rounds)
        if leave.back is not None:
            _check_round(where, "back", leave.back, num_rounds)
            if leave.back <= leave.at:
                raise InvalidInput(f"{where}.back = {leave.back}: expected a round after at = {leave.at}")
        free = [c for c in clients if joins.get(c, 0) < leave.at and c not in absences]
        for client in chosen_clients(where, leave.clients, free, clients, seed / "scenario" / "leave" / i):
            if joins.get(client, 0) >= leave.at:
                raise InvalidInput(f"{where}: client '{client}' would leave before it joins")
            absences[client] = (*absences.get(client, ()), (leave.at, leave.back))
    return PlannedPresence(clients, num_rounds, newcomers, spectators, joins, absences)


def _check_round(where: str, key: str, round_: int, num_rounds: int) -> None:
    if round_ > num_rounds:
        raise InvalidInput(f"{where}.{key} = {round_}: the run has only {num_rounds} rounds")
