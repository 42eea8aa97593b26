# SPDX-License-Identifier: Apache-2.0
"""Equal tuning: the same small grid for every method, chosen by validation on seeds that no table has.

grid = ComparisonGrid(…, tune=("training.lr=0.01,0.03", "fedsoft.pull=0.01,0.1,1"), tuning_seeds=(901, 902))
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from feddag.compare.grid import Cell, ComparisonGrid, axes_over, has_setting
from feddag.compare.rows import read_row

Candidate = tuple[str, ...]  # assignments


def candidates(grid: ComparisonGrid, label: str) -> list[Candidate]:
    """All combinations of the tuned values that concern a method; without any, its settings as they are."""
    method, own = read_row(label).method, []
    for axis in axes_over(grid.tune, "--tune"):
        head, _, rest = axis[0][1].partition("=")[0].partition(".")
        general = head not in ("algorithm", *(read_row(m).method for m in grid.methods))
        if general or head == method or (head == "algorithm" and has_setting(method, rest)):
            own.append([assignment for _, assignment in axis])
    return [tuple(combination) for combination in itertools.product(*own)]


def tuning_cells(grid: ComparisonGrid) -> dict[tuple[str, str], dict[Candidate, list[Cell]]]:
    """(method, setting) → candidate → its runs on the tuning seeds; methods with one candidate need none."""
    result: dict[tuple[str, str], dict[Candidate, list[Cell]]] = {}
    for label in grid.methods:
        options = candidates(grid, label)
        for candidate in options if len(options) > 1 else ():
            one = replace(
                grid,
                methods=(label,),
                seeds=grid.tuning_seeds,
                changes=(*grid.changes, *candidate),
                tune=(),
                tuning_seeds=(),
            )
            for cell in one.cells:
                result.setdefault((label, cell.setting), {}).setdefault(candidate, []).append(cell)
    return result


def picked(
    cells: Mapping[tuple[str, str], Mapping[Candidate, list[Cell]]],
    score: Callable[[Cell], float | None],
) -> dict[str, Candidate]:
    """For every method and setting the candidate of the best mean validation score; ties to the first."""
    result: dict[str, Candidate] = {}
    for (label, setting), options in cells.items():
        means = {}
        for candidate, runs in options.items():
            scores = [s for s in map(score, runs) if s is not None]
            if len(scores) == len(runs):  # a candidate that failed is not chosen
                means[candidate] = sum(scores) / len(scores)
        if means:
            result[pick_key(label, setting)] = max(means, key=lambda c: means[c])
    return result


def pick_key(label: str, setting: str) -> str:
    """Under which name a choice is kept."""
    return f"{label} {setting}".strip()


def validation_score(folder: Path, metric: str) -> float | None:
    """The final validation score of a finished run; nothing else of it may choose settings."""
    result = json.loads((folder / "result.json").read_text())
    report = result["final"]["validation"]
    return report.get(metric, report.get("accuracy"))


def words(picks: Mapping[str, Candidate]) -> str:
    """What was picked, for people."""
    return "; ".join(f"{name}: {', '.join(choice)}" for name, choice in sorted(picks.items()))
