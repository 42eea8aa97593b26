# SPDX-License-Identifier: Apache-2.0
"""The paper's tables, read from tables.toml: settings and published values of every cell."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from feddag.core.errors import InvalidInput
from feddag.experiment.sentences import shown_text

Kind = Literal["accuracy", "thresholds"]


@dataclass(frozen=True)
class Row:
    """What a row of a table is here: a row of `feddag compare`, and hyper-parameters."""

    name: str
    row: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: a dataset and how it is dealt."""

    name: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """How much of the paper's setting is computed."""

    name: str
    title: str
    changes: tuple[str, ...]
    keep: tuple[str, ...]  # keys in which the scale has the last word
    seeds: int


@dataclass(frozen=True)
class Table:
    """One table or figure of the paper."""

    id: str
    title: str
    kind: Kind
    score: str  # which score of a result: "final.before", "newcomers.after"
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]  # kind "thresholds": the one method whose cuts are swept
    published: Mapping[str, tuple[float | None, ...]]  # row → a value per column; None where nothing is told

    def value(self, row: str, column: str) -> float | None:
        """What the paper reports."""
        return self.published[row][[c.name for c in self.columns].index(column)]


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("feddag.reproduce").joinpath("tables.toml").read_text())


def scales() -> dict[str, Scale]:
    """All scales by name."""
    return {
        name: Scale(name, s["title"], tuple(s["set"]), tuple(s.get("keep", ())), s["seeds"])
        for name, s in _file()["scales"].items()
    }


@cache
def tables() -> dict[str, Table]:
    """All tables and figures by their id."""
    general = _file()["rows"]
    result = {}
    for t in _file()["tables"]:
        known = {**general, **t.get("rows", {})}
        rows = {name: known[name] for name in t["published"]} if t["kind"] == "accuracy" else {}
        rows = rows or {"sweep": t["sweep"]}
        result[t["id"]] = Table(
            id=t["id"],
            title=t["title"],
            kind=t["kind"],
            score=t["score"],
            changes=tuple(t["set"]),
            notes=tuple(t["notes"]),
            columns=tuple(Column(c["name"], tuple(c["set"])) for c in t["columns"]),
            rows=tuple(Row(name, r["row"], tuple(r.get("set", ()))) for name, r in rows.items()),
            published={
                row: tuple(v if isinstance(v, int | float) else None for v in values)
                for row, values in t["published"].items()
            },
        )
    return dict(sorted(result.items(), key=lambda item: (item[0][0] != "T", int(item[0][1:]))))


def table_of(name: str) -> Table:
    """The table that somebody named, in any case."""
    known = tables()
    if name.upper() not in known:
        raise InvalidInput(f"'{shown_text(name)}' is no table of the paper: choose one of {', '.join(known)}")
    return known[name.upper()]


def chosen(words: str, names: Sequence[str], option: str) -> list[str]:
    """The names that contain one of the words between commas, in their order; all without words."""
    wanted = [word.strip().lower() for word in words.split(",") if word.strip()]
    for word in wanted:
        if not any(_matches(word, name) for name in names):
            raise InvalidInput(f"{option} {shown_text(word)}: choose from {', '.join(names)}")
    return [name for name in names if not wanted or any(_matches(word, name) for word in wanted)]


def _matches(word: str, name: str) -> bool:
    """A whole name, or whole words of it: `fedavg` is not PerFedAvg, and `feddag` is not FedDAG*."""
    return word == name.lower() or f" {word} " in f" {name.lower()} "
