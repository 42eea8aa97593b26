# SPDX-License-Identifier: Apache-2.0
"""A comparison's folder as an object, and a comparison in one call.

done = compare_methods(["feddag", "fedavg"], experiment, seeds=[1, 2, 3])
done.summary                             # a data frame: one row per method and setting
done.run("feddag", seed=1).clients       # one of its runs
"""

import csv
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddag.compare.cells import outcome_of
from feddag.compare.grid import ComparisonGrid
from feddag.compare.run import compare
from feddag.core.errors import InvalidInput
from feddag.experiment.settings import Experiment
from feddag.reporting.figures.curves import curves_figure
from feddag.reporting.frames import frame_of
from feddag.runs.run import Run, load_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class Comparison(os.PathLike[str]):
    """A comparison's folder as an object; it can be used as a path."""

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @cached_property
    def grid(self) -> ComparisonGrid:
        """What is compared."""
        return ComparisonGrid.load(self.folder / "compare.json")

    @property
    def run_rows(self) -> list[dict[str, str]]:
        """One row per finished run, as in comparison.csv."""
        return self._rows("comparison.csv")

    @property
    def summary_rows(self) -> list[dict[str, str]]:
        """One row per method and setting, as in summary.csv."""
        return self._rows("summary.csv")

    @property
    def runs(self) -> "DataFrame":
        """One row per finished run; needs pandas."""
        return frame_of(self.run_rows, "runs", texts=("method", "setting"))

    @property
    def summary(self) -> "DataFrame":
        """One row per method and setting, means over seeds; needs pandas."""
        return frame_of(self.summary_rows, "summary", texts=("method", "setting", "verdict"))

    def run(self, method: str, seed: int, setting: str = "") -> Run:
        """One of the runs."""
        for cell in self.grid.cells:
            if (cell.method, cell.setting, cell.experiment.seed) == (method, setting, seed):
                return load_run(self.folder / "cells" / cell.name)
        methods, seeds = ", ".join(self.grid.methods), ", ".join(map(str, self.grid.seeds))
        raise InvalidInput(f"there is no such run: methods are {methods}; seeds {seeds}")

    def plot_curves(self) -> "Figure":
        """Learning curves over rounds and over traffic, the band is the deviation over seeds."""
        grid = self.grid
        outcomes = [outcome_of(cell, self.folder) for cell in grid.cells if cell.finished(self.folder)]
        return curves_figure(outcomes, grid.methods, grid.settings, grid.metric)

    def _repr_html_(self) -> str:
        from feddag.reporting.pages.summary import comparison_summary  # jinja2 takes long to import

        return comparison_summary(str(self.folder), self.summary_rows, self.grid.metric)

    def _rows(self, name: str) -> list[dict[str, str]]:
        path = self.folder / name
        if not path.is_file():
            raise InvalidInput(
                f"the comparison in {self.folder} has no tables yet: feddag compare --folder {self.folder}"
            )
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def compare_methods(
    methods: Sequence[str],
    experiment: Experiment | Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    changes: Sequence[str] = (),
    over: Sequence[str] = (),
    folder: os.PathLike[str] | str | None = None,
    jobs: int = 0,
) -> Comparison:
    """Compare methods on the same data, cohorts and seeds, as `feddag compare` does.

    `changes` and `over` are those of `--set` and `--over`, for example ["ifca.num_clusters=5"].
    """
    settings = (
        experiment if isinstance(experiment, Experiment) else Experiment.from_settings(experiment or {})
    )
    first = settings.seed
    numbers = tuple(range(first, first + seeds)) if isinstance(seeds, int) else tuple(seeds)
    grid = ComparisonGrid(settings.settings(), tuple(methods), numbers, tuple(changes), tuple(over))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    place = Path(folder) if folder else Path("runs") / "compare" / f"{stamp}-{settings.name}"
    compare(grid, place, jobs=jobs)
    return Comparison(place)


def load_comparison(folder: os.PathLike[str] | str) -> Comparison:
    """A comparison that was made before."""
    if not (Path(folder) / "compare.json").is_file():
        raise InvalidInput(f"{folder} is not the folder of a comparison: it has no compare.json")
    return Comparison(Path(folder))
