# SPDX-License-Identifier: Apache-2.0
"""Time in the data: which clients' data change, when, and to what.

A client's later life is a *virtual client* of the partition: it is dealt by the same code as everybody, with
a forced label group, style or label map. So each sample belongs to at most one client and one life, and test
views, skews and planted groups need no code of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from feddag.core.chosen import chosen_clients
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.config import DriftConfig
from feddag.data.corruptions import CORRUPTIONS
from feddag.data.dataset import Dataset
from feddag.data.dealing.planting import PlantedGroups
from feddag.data.dealing.skews import CLEAN, Styles, check_images, label_map

CHANGE_POINT_MAPS = ("identity", "swap-1-2", "swap-3-4", "swap-5-6")  # concepts 0 to 3 of FedDrift's files


@dataclass(frozen=True)
class Plan:
    """What shall happen to the data of a run; without drifts nothing does."""

    drifts: tuple[DriftConfig, ...] = ()
    change_points: Path | None = None
    step: int = 10  # rounds per row of the file
    num_rounds: int = 0

    def __bool__(self) -> bool:
        return bool(self.drifts) or self.change_points is not None


@dataclass(frozen=True)
class Change:
    """One drift of one client, and where the settings ask for it."""

    client: int
    drift: DriftConfig
    where: str


@dataclass(frozen=True)
class Traits:
    """What is planted for each client, and, after the clients, for each of their later lives."""

    planted: PlantedGroups
    styles: Styles | None = None
    maps: tuple[str, ...] = ()  # names of label maps
    concepts: np.ndarray | None = None  # index into maps

    def take(self, rows: Sequence[int]) -> "Traits":
        """The traits of some of them."""
        planted, styles, at = self.planted, self.styles, np.asarray(rows, dtype=np.int64)
        groups, holds_NC = (None if a is None else a[at] for a in (planted.groups, planted.holds_NC))
        return Traits(
            planted=replace(planted, groups=groups, holds_NC=holds_NC),
            styles=None if styles is None else replace(styles, of_client=styles.of_client[at]),
            maps=self.maps,
            concepts=None if self.concepts is None else self.concepts[at],
        )


@dataclass(frozen=True)
class Life:
    """A later life of a client: number `previous` among clients and lives comes before it."""

    change: Change
    previous: int

    @property
    def dealt(self) -> bool:
        """Whether it has samples of its own."""
        return self.change.drift.keep < 1


def plan_changes(plan: Plan, ids: Sequence[str], seed: Seed) -> list[Change]:
    """The drifts of every client in the order of their rounds; what is impossible is refused."""
    if plan.change_points is not None:
        if plan.drifts:
            raise InvalidInput("scenario: expected drift tables or change_points, got both")
        return _read_change_points(plan, plan.change_points, ids)
    changes: list[Change] = []
    for i, drift in enumerate(plan.drifts):
        where = f"scenario.drift.{i}"
        for key in ("at", "until"):
            if (getattr(drift, key) or 0) > plan.num_rounds:
                raise InvalidInput(
                    f"{where}.{key} = {getattr(drift, key)}: the run has only {plan.num_rounds} rounds"
                )
        taken = {change.client for change in changes if _overlap(change.drift, drift)}
        free = [c for k, c in enumerate(ids) if k not in taken]
        for name in chosen_clients(where, drift.clients, free, ids, seed / "scenario" / "drift" / i):
            client = ids.index(name)
            if client in taken:
                raise InvalidInput(f"{where}: the data of client '{name}' are changing then already")
            changes.append(Change(client, drift, where))
    return sorted(changes, key=lambda change: (change.drift.at, change.client))


def _overlap(one: DriftConfig, other: DriftConfig) -> bool:
    """Whether two drifts of a client would be under way at the same time; back again also counts."""
    first, second = sorted((one, other), key=lambda drift: drift.at)
    return second.at < (first.until + 1 if first.until is not None else first.at + first.over)


def _read_change_points(plan: Plan, path: Path, ids: Sequence[str]) -> list[Change]:
    """FedDrift's matrix: a row of concept numbers per time step, a column per client."""
    try:
        rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
        table = np.array(rows, dtype=np.int64)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"scenario.change_points: {path} cannot be read: {error}") from None
    except ValueError:
        table = np.zeros((0, 0), dtype=np.int64)
    if table.ndim != 2 or table.shape[1:] != (len(ids),) or not 0 <= table.min() <= table.max() < 4:
        raise InvalidInput(
            f"scenario.change_points: {path}: expected rows of {len(ids)} concept numbers from 0 to 3, "
            "one number per client"
        )
    changes = []
    for step, client in zip(*np.nonzero(np.diff(table, axis=0, prepend=0)), strict=True):
        at = max(1, int(step) * plan.step + 1)
        if at <= plan.num_rounds:
            to = CHANGE_POINT_MAPS[table[step, client]]
            drift = DriftConfig(at=at, clients=(ids[client],), kind="concept", to=to)
            changes.append(Change(int(client), drift, f"scenario.change_points, row {step}"))
    return changes


def add_lives(
    dataset: Dataset, traits: Traits, changes: Sequence[Change], clients: int, seed: Seed
) -> tuple[Traits, list[Life]]:
    """The later lives of all clients, one per change except changes of quantity, and what they are like."""
    lives: list[Life] = []
    newest = list(range(clients))
    if any(change.drift.kind == "feature" for change in changes) and traits.styles is None:
        check_images(dataset, changes[0].where)
        traits = replace(traits, styles=Styles("corruption", (CLEAN,), np.zeros(clients, dtype=np.int64)))
    if any(change.drift.kind == "concept" for change in changes) and traits.concepts is None:
        traits = replace(traits, maps=("identity",), concepts=np.zeros(clients, dtype=np.int64))
    for k, change in enumerate(changes):
        if change.drift.kind == "quantity":
            continue
        life = Life(change, newest[change.client])
        traits = _with_life(dataset, traits, life, (seed / "life" / k).numpy())
        if change.drift.until is None:  # else the life before goes on
            newest[change.client] = clients + len(lives)
        lives.append(life)
    return traits, lives


def _with_life(dataset: Dataset, traits: Traits, life: Life, rng: np.random.Generator) -> Traits:
    """The traits with those of one more life: as before, but for what the drift changes."""
    kind, to, where = life.change.drift.kind, life.change.drift.to, life.change.where
    everybody = [*range(_count(traits)), life.previous]
    now = traits.take(everybody)
    if kind == "label":
        return replace(now, planted=_relabelled(now.planted, to, where, rng))
    if kind == "concept":
        assert now.concepts is not None
        names = now.maps if str(to) in (*now.maps, "other") else (*now.maps, str(to))
        concepts = now.concepts.copy()
        concepts[-1] = _choose(names, int(concepts[-1]), str(to), f"{where}.to", "label maps", rng)
        label_map(names[concepts[-1]], dataset.num_classes)  # refuses what is no label map
        return replace(now, maps=names, concepts=concepts)
    assert now.styles is not None
    names = now.styles.names
    if now.styles.kind == "domain" and not life.dealt:
        raise InvalidInput(f"{where}.keep = 1: samples of one domain cannot become samples of another")
    if now.styles.kind == "corruption" and str(to) in (CLEAN, *CORRUPTIONS) and str(to) not in names:
        names = (*names, str(to))
    of_client = now.styles.of_client.copy()
    of_client[-1] = _choose(names, int(of_client[-1]), str(to), f"{where}.to", f"{now.styles.kind}s", rng)
    return replace(now, styles=replace(now.styles, names=names, of_client=of_client))


def _count(traits: Traits) -> int:
    arrays = (traits.planted.groups, traits.planted.holds_NC, traits.concepts)
    styles = None if traits.styles is None else traits.styles.of_client
    return next((len(a) for a in (*arrays, styles) if a is not None), 0)


def _relabelled(planted: PlantedGroups, to: str | int, where: str, rng: np.random.Generator) -> PlantedGroups:
    """The last one holds the labels of another planted group; without groups it is a new draw."""
    if planted.groups is None:
        if to != "other":
            raise InvalidInput(f"{where}.to = '{to}': this partition plants no groups; expected 'other'")
        return planted
    if planted.holds_NC is None:
        raise InvalidInput(f"{where}.kind 'label': all clients of this partition hold all labels")
    groups, holds_NC = planted.groups.copy(), planted.holds_NC.copy()
    names = tuple(str(g) for g in range(len(planted.names)))
    groups[-1] = _choose(names, int(groups[-1]), str(to), f"{where}.to", "planted groups", rng)
    member = int(np.flatnonzero(groups[:-1] == groups[-1])[0])
    holds_NC[-1] = holds_NC[member]
    return replace(planted, groups=groups, holds_NC=holds_NC)


def _choose(names: Sequence[str], now: int, to: str, where: str, what: str, rng: np.random.Generator) -> int:
    """The index of the wanted name; "other" draws one that differs from the present one."""
    others = [k for k in range(len(names)) if k != now]
    if to == "other" and others:
        return int(rng.choice(others))
    if to not in names or names.index(to) == now:
        known = ", ".join(names[k] for k in others) or "none"
        raise InvalidInput(f"{where} = '{to}': expected another one of the {what}: {known}")
    return names.index(to)
