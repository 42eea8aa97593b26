# SPDX-License-Identifier: Apache-2.0
"""A grid of methods × settings × seeds that share data, cohorts and seeds.

plan = Plan(base, methods=("fedavg", "ifca"), seeds=(1, 2, 3))
compare(plan, folder)        # one run folder a cell; finished cells are not run again, killed ones resume
"""

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console

from feddag.algorithms import ALGORITHMS
from feddag.compare.pool import run_side_by_side
from feddag.core.errors import FederationError, InvalidInput
from feddag.core.files import lock_folder, write_durably
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.experiment.overrides import Settings, override
from feddag.experiment.settings import Experiment
from feddag.reporting.figures.curves import draw_curves
from feddag.reporting.tables.comparison import (
    METRICS,
    Line,
    Metric,
    Outcome,
    latex,
    markdown,
    outcomes_csv,
    read_outcome,
    summarise,
    summary_csv,
)
from feddag.reporting.terminal.board import CompareBoard
from feddag.runs.simulate import build

PLANTED = "planted"  # as a hyper-parameter's value: the number of planted groups in the data


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
class Plan:
    """What is compared: everything that the command line says, checked."""

    base: Settings
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    changes: tuple[str, ...] = ()  # --set
    over: tuple[str, ...] = ()  # --over
    targets: tuple[float, ...] = ()
    metric: Metric = "accuracy"

    def __post_init__(self) -> None:
        for method in self.methods:
            if method not in ALGORITHMS:
                raise InvalidInput(
                    f"'{method}' is neither a method ({', '.join(ALGORITHMS)}), recipe nor file"
                )
        if not self.methods:
            raise InvalidInput("name at least one method to compare, for example: feddag compare fedavg ifca")
        for what, things in (("method", self.methods), ("seed", self.seeds)):
            if len(set(things)) < len(things):
                raise InvalidInput(f"a {what} is named twice: {', '.join(map(str, things))}")
        if not self.seeds or min(self.seeds) < 0:
            raise InvalidInput("--seeds: expected a number of seeds from 1 on, or seeds such as 1,2,5")
        if any(not 0 < target <= 1 for target in self.targets):
            raise InvalidInput(
                "--targets: expected accuracies between 0 and 1, for example --targets 0.6,0.7"
            )
        if self.metric not in METRICS:
            raise InvalidInput(f"--metric {self.metric}: choose one of {', '.join(METRICS)}")

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The grid, seed by seed, so that a comparison cut short has whole seeds."""
        grid = itertools.product(self.seeds, settings_over(self.over), self.methods)
        return tuple(self._cell(method, label, changes, seed) for seed, (label, changes), method in grid)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings, in order."""
        return tuple(dict.fromkeys(cell.setting for cell in self.cells))

    def _cell(self, method: str, label: str, changes: Sequence[str], seed: int) -> Cell:
        general, own = self._sort((*self.changes, *changes), method)
        settings = override(self.base, [*general, f"seed={seed}"])
        base = settings.get("algorithm", {})
        base = {"name": base} if isinstance(base, str) else base
        options = {k: v for k, v in base.items() if k != "name"} if base.get("name") == method else {}
        settings["algorithm"] = {"name": method, **options, **own}
        if PLANTED in own.values():
            groups = planted_groups(settings)
            settings["algorithm"] |= {k: groups for k, v in own.items() if v == PLANTED}
        return Cell(method, label, Experiment.from_settings(settings))

    def _sort(self, changes: Sequence[str], method: str) -> tuple[list[str], Settings]:
        """General assignments, and the hyper-parameters meant for one method."""
        general: list[str] = []
        own: Settings = {}
        for assignment in changes:
            head, _, rest = assignment.partition("=")[0].strip().partition(".")
            if head == "seed":
                raise InvalidInput(f"--set {assignment}: use --seeds")
            if head not in (*ALGORITHMS, "algorithm"):
                general.append(assignment)
                continue
            if not rest or rest == "name":
                raise InvalidInput(f"--set {assignment}: methods are named as arguments of compare")
            if head != "algorithm" and head not in self.methods:
                raise InvalidInput(f"--set {assignment}: '{head}' is not among the compared methods")
            if head == "algorithm" and not any(rest in hyper_parameters(m) for m in self.methods):
                raise InvalidInput(f"--set {assignment}: none of the compared methods has '{rest}'")
            if head == method or (head == "algorithm" and rest in hyper_parameters(method)):
                own |= override({}, [f"{rest}={assignment.partition('=')[2]}"])
        return general, own

    def save(self, path: Path) -> None:
        """Write the plan, so that a folder alone is enough to go on."""
        write_durably(path, json.dumps(dataclasses.asdict(self), indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """The plan that `save` wrote."""
        try:
            fields: dict[str, Any] = json.loads(path.read_text())
            fields |= {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
            return cls(**fields)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInput(f"{path} is not the plan of a comparison: {error}") from None


def hyper_parameters(method: str) -> set[str]:
    """Names of a method's settings."""
    return {f.name for f in dataclasses.fields(ALGORITHMS[method])} - {"local"}


def settings_over(over: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Every combination of `key=value,value` as a label and its assignments; one empty one without any."""
    axes: list[list[tuple[str, str]]] = []
    for assignment in over:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        values = _values(text)
        if not (key and equals and values):
            raise InvalidInput(f"--over {assignment}: expected key=value,value, e.g. partition.alpha=0.25,1")
        axes.append([(f"{key.rpartition('.')[2]}={value}", f"{key}={value}") for value in values])
    combinations = itertools.product(*axes)
    return [(", ".join(label for label, _ in c), [change for _, change in c]) for c in combinations]


def _values(text: str) -> list[str]:
    """The values of a comma-separated list; lists and quoted text count as one value."""
    try:
        items = tomllib.loads(f"value = [{text}]")["value"]
        return [json.dumps(item) for item in items]
    except tomllib.TOMLDecodeError:
        return [item.strip() for item in text.split(",") if item.strip()]


def planted_groups(settings: Mapping[str, Any]) -> int:
    """How many groups of clients were planted in the data of an experiment."""
    relevant = {k: settings[k] for k in ("data", "partition", "num_clients", "seed") if k in settings}
    return _planted_groups(json.dumps(relevant))


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


def compare(plan: Plan, folder: Path, *, jobs: int = 0, board: CompareBoard | None = None) -> list[Line]:
    """Run what is not finished and write the tables; the summary, a line for each setting and method."""
    board = board or CompareBoard(Console(), plan.metric, quiet=True)
    cells = plan.cells
    checked: set[str] = set()
    for cell in cells:  # what can be wrong with data and network is found before anything runs
        settings = cell.experiment.settings()
        key = json.dumps(
            [settings[k] for k in ("data", "partition", "num_clients", "model", "fraction_train")]
        )
        if key not in checked:
            checked.add(key)
            build(cell.experiment)
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"the folder {folder} cannot be made: {error.strerror}") from None
    with lock_folder(folder):
        plan.save(folder / "compare.json")
        board.expect({cell.name: (cell.method, cell.setting, cell.experiment) for cell in cells})
        for cell in cells:
            if cell.finished(folder):
                board.finished(cell.name, _outcome(cell, folder))
        waiting = {cell.name: cell for cell in cells if not cell.finished(folder)}  # equal cells run once
        failures = run_side_by_side(
            {name: cell.experiment for name, cell in waiting.items()},
            folder,
            jobs,
            board,
            read=lambda name: _outcome(waiting[name], folder),
        )
        lines = report(plan, folder)
    if failures:
        name, reason = next(iter(failures.items()))
        raise FederationError(
            f"{len(failures)} of {len(cells)} runs failed, the first is {name}: {reason}; "
            f"the tables in {folder} hold the others"
        )
    return lines


def _outcome(cell: Cell, folder: Path) -> Outcome:
    return read_outcome(folder / "cells" / cell.name, cell.method, cell.setting, cell.experiment.seed)


def report(plan: Plan, folder: Path) -> list[Line]:
    """Write comparison.md, .tex, .csv, summary.csv and curves.png from the finished cells."""
    outcomes = [_outcome(cell, folder) for cell in plan.cells if cell.finished(folder)]
    lines = summarise(outcomes, plan.methods, plan.settings, plan.metric, plan.targets)
    base, first = plan.cells[0].experiment, plan.methods[0]
    title = f"{base.data.name}, {base.num_clients or 'all'} clients, {base.num_rounds} rounds"
    files = {
        "comparison.md": markdown(lines, first, plan.metric, plan.targets, title),
        "comparison.tex": latex(lines, first, plan.metric, plan.targets),
        "comparison.csv": outcomes_csv(outcomes),
        "summary.csv": summary_csv(lines, plan.targets),
    }
    for name, text in files.items():
        write_durably(folder / name, text.encode())
    if outcomes:
        draw_curves(outcomes, plan.methods, plan.settings, folder / "curves.png", plan.metric)
    return lines
