# SPDX-License-Identifier: Apache-2.0
"""A grid of methods × settings × seeds. Within one setting and seed, all methods share data and cohorts.

grid = ComparisonGrid(base, methods=("fedavg", "ifca"), seeds=(1, 2, 3))
compare(grid, folder)        # in feddag.compare.run: one run folder per cell
"""

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from feddag.algorithms import ALGORITHMS
from feddag.compare.rows import Row, read_row
from feddag.core.errors import InvalidInput
from feddag.core.files import write_durably
from feddag.core.message import STRICT
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.experiment.listing import hyper_parameters
from feddag.experiment.overrides import Settings, override, read_settings
from feddag.experiment.sentences import joined, problems_of, shown_text
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.comparison import BUDGETS, SCORED, Metric

PLANTED = "planted"  # as a hyper-parameter's value: the number of planted groups in the data
MAX_SEEDS = 1_000
MAX_CELLS = 10_000
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    method: str
    setting: str
    experiment: Experiment

    @cached_property
    def name(self) -> str:
        """Folder name: readable, and different whenever anything that decides the result differs."""
        words = [self.method, re.sub(r"[^A-Za-z0-9.=-]+", "-", self.setting), f"seed{self.experiment.seed}"]
        return "-".join([word for word in words if word] + [self.experiment.digest[:8]])

    def finished(self, folder: Path) -> bool:
        """Whether its run is complete."""
        return (folder / "cells" / self.name / "result.json").is_file()


@dataclass(frozen=True)
class ComparisonGrid:
    """What is compared: everything that the command line says, checked."""

    base: Settings
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    changes: tuple[str, ...] = ()  # --set
    over: tuple[str, ...] = ()  # --over
    targets: tuple[float, ...] = ()
    metric: Metric = "accuracy"
    budget: str = "rounds"
    tune: tuple[str, ...] = ()  # --tune
    tuning_seeds: tuple[int, ...] = ()
    picked: dict[str, tuple[str, ...]] = field(default_factory=dict)  # "method setting" → what tuning chose

    __pydantic_config__: ClassVar = STRICT  # how `load` checks a file

    def __post_init__(self) -> None:
        for method in self.methods:
            read_row(method)
        if not self.methods:
            raise InvalidInput("name at least one method to compare, for example: feddag compare fedavg ifca")
        for what, things in (("method", self.methods), ("seed", self.seeds)):
            if len(set(things)) < len(things):
                raise InvalidInput(f"a {what} is named twice: {shown_text(', '.join(map(str, things)))}")
        if not 0 < len(self.seeds) <= MAX_SEEDS or not all(0 <= seed <= MAX_SEED for seed in self.seeds):
            raise InvalidInput(
                f"--seeds: expected a number of seeds from 1 to {MAX_SEEDS:,}, or seeds such as 1,2,5"
            )
        if any(not 0 < target <= 1 for target in self.targets):
            raise InvalidInput(
                "--targets: expected accuracies between 0 and 1, for example --targets 0.6,0.7"
            )
        if self.metric not in SCORED:
            raise InvalidInput(f"--metric {shown_text(self.metric)}: choose one of {', '.join(SCORED)}")
        if self.budget not in BUDGETS:
            raise InvalidInput(f"--budget {shown_text(self.budget)}: choose one of {', '.join(BUDGETS)}")
        if self.tune and (not self.tuning_seeds or {*self.tuning_seeds} & {*self.seeds}):
            raise InvalidInput("--tune needs --tuning-seeds, and none of them may be among --seeds")
        size = len(self.seeds) * len(self.methods) * prod(len(axis) for axis in axes_over(self.over))
        if size > MAX_CELLS:
            raise InvalidInput(f"the comparison has {size:,} runs; expected at most {MAX_CELLS:,}")

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The grid, seed by seed, so that a comparison that is stopped early has complete seeds."""
        grid = itertools.product(self.seeds, settings_over(self.over), self.methods)
        return tuple(self._cell(method, label, changes, seed) for seed, (label, changes), method in grid)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings, in order."""
        return tuple(dict.fromkeys(cell.setting for cell in self.cells))

    def _cell(self, word: str, label: str, changes: Sequence[str], seed: int) -> Cell:
        row = read_row(word)
        method = row.method
        tuned = self.picked.get(f"{word} {label}".strip(), ())
        general, own = self._sort((*self.changes, *changes, *tuned), row)
        settings = override(self.base, [*general, f"seed={seed}"])
        base = settings.get("algorithm", {})
        base = {"name": base} if isinstance(base, str) else base
        options = {k: v for k, v in base.items() if k != "name"} if base.get("name") == method else {}
        preset = {"preset": row.preset} if row.preset else {}
        settings["algorithm"] = {"name": method, **_merged(options, own), **preset}
        if _mentions_planted(own):
            settings["algorithm"] = _with_number(settings["algorithm"], planted_groups(settings))
        return Cell(word, label, Experiment.from_settings(settings))

    def _sort(self, changes: Sequence[str], row: Row) -> tuple[list[str], Settings]:
        """General assignments, and the hyper-parameters meant for one method."""
        method, methods = row.method, {read_row(word).method for word in self.methods}
        general: list[str] = []
        own: Settings = {}
        for assignment in changes:
            key, _, text = assignment.partition("=")
            head, _, rest = key.strip().partition(".")
            told = f"--set {shown_text(assignment)}"
            if head == "seed":
                raise InvalidInput(f"{told}: use --seeds")
            if head not in (*ALGORITHMS, "algorithm"):
                general.append(assignment)
                continue
            if not rest or rest == "name":
                raise InvalidInput(f"{told}: methods are named as arguments of compare")
            if head != "algorithm" and head not in methods:
                raise InvalidInput(f"{told}: '{head}' is not among the compared methods")
            if head == "algorithm" and not any(has_setting(other, rest) for other in methods):
                raise InvalidInput(f"{told}: none of the compared methods has '{shown_text(rest)}'")
            if head == method or (head == "algorithm" and has_setting(method, rest)):
                own = override(own, [f"{rest}={text}"])
        return general, own

    def save(self, path: Path) -> None:
        """Write the grid, so that the folder alone is enough to go on."""
        write_durably(path, json.dumps(dataclasses.asdict(self), indent=1, default=str).encode())

    @classmethod
    def load(cls, path: Path) -> "ComparisonGrid":
        """The grid that `save` wrote."""
        try:
            fields = read_settings(path)
            grid = TypeAdapter(cls).validate_python(fields)
            Experiment.from_settings(grid.base)
        except ValidationError as error:
            problems = joined(problems_of(error, fields, cls))
            raise InvalidInput(f"{path} is not the plan of a comparison: {problems}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{path} is not the plan of a comparison: {error}") from None
        return grid


def has_setting(method: str, name: str) -> bool:
    """Whether a method has a hyper-parameter, or a group of them, with this dotted name."""
    return any(f"{known}.".startswith(f"{name}.") for known, *_ in hyper_parameters(method))


def _merged(base: Settings, changes: Settings) -> Settings:
    """Nested tables with changes on top."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def _mentions_planted(options: Any) -> bool:
    if isinstance(options, dict):
        return any(_mentions_planted(value) for value in options.values())
    return isinstance(options, str) and options == PLANTED


def _with_number(options: Settings, groups: int) -> Settings:
    """Options with the number of planted groups in place of the word."""
    numbered = {k: _with_number(v, groups) if isinstance(v, dict) else v for k, v in options.items()}
    return {k: groups if isinstance(v, str) and v == PLANTED else v for k, v in numbered.items()}


def settings_over(over: Sequence[str]) -> list[tuple[str, list[str]]]:
    """All combinations of `key=value,value`, each as a label and its assignments.

    Without any `over` there is one combination: no label and no assignments.
    """
    combinations = itertools.product(*axes_over(over))
    return [(", ".join(label for label, _ in c), [change for _, change in c]) for c in combinations]


def axes_over(over: Sequence[str], option: str = "--over") -> list[list[tuple[str, str]]]:
    """For each `key=value,value` its values, each as a label and an assignment."""
    axes: list[list[tuple[str, str]]] = []
    for assignment in over:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        values = _values(text)
        if not (key and equals and values):
            told = f"{option} {shown_text(assignment)}"
            raise InvalidInput(f"{told}: expected key=value,value, e.g. partition.alpha=0.25,1")
        axes.append([(f"{key.rpartition('.')[2]}={value}", f"{key}={value}") for value in values])
    return axes


def _values(text: str) -> list[str]:
    """The values of a comma-separated list; a list in brackets or quoted text counts as one value."""
    try:
        table = tomllib.loads(f"value = [{text}]")
        if len(table) == 1:
            return [json.dumps(item, default=str) for item in table["value"]]
    except (ValueError, RecursionError):  # no TOML, an integer of many digits, or nested too deeply
        pass
    return [item.strip() for item in text.split(",") if item.strip()]


def planted_groups(settings: Mapping[str, Any]) -> int:
    """How many groups of clients were planted in the data of an experiment."""
    relevant = {k: settings[k] for k in ("data", "partition", "num_clients", "seed") if k in settings}
    return _planted_groups(json.dumps(relevant, default=str))


@lru_cache
def _planted_groups(settings: str) -> int:
    experiment = Experiment.from_settings(json.loads(settings))
    federation = build_federation(
        experiment.data, experiment.partition, experiment.num_clients, Seed(experiment.seed)
    )
    if not federation.groups:
        kind = experiment.partition.kind
        raise InvalidInput(f"'{PLANTED}': the data have no planted groups with partition '{kind}'")
    return len(set(federation.groups.values()))
