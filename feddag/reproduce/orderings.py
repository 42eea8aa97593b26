# SPDX-License-Identifier: Apache-2.0
"""Which orderings of the paper hold here, which fail, and which cannot be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from feddag.reporting.tables.comparison import Difference, difference
from feddag.reproduce.tables import Table

Scores = Mapping[tuple[str, str], Mapping[int, float]]  # (row, column) → seed → accuracy in percent


@dataclass(frozen=True)
class Ordering:
    """In the paper `better` is above `worse` in a column; how that is here."""

    column: str
    better: str
    worse: str
    published: float  # difference in points
    ours: Difference | None  # paired by seed, in points

    @property
    def verdict(self) -> str:
        """Only what lies outside the 95% interval holds or fails."""
        verdicts = {"win": "holds", "loss": "fails"}
        return verdicts.get(self.ours.verdict, "cannot be told") if self.ours else "cannot be told"


def orderings(table: Table, rows: Sequence[str], columns: Sequence[str], scores: Scores) -> list[Ordering]:
    """Every pair of rows that the paper puts in an order."""
    found = []
    for column in columns:
        for better, worse in permutations(rows, 2):
            high, low = table.value(better, column), table.value(worse, column)
            if high is None or low is None or high <= low:
                continue
            mine, theirs = scores.get((better, column), {}), scores.get((worse, column), {})
            if not mine or not theirs:
                continue  # one of the two was not computed
            paired = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
            found.append(Ordering(column, better, worse, high - low, difference(paired)))
    return found


def counts(found: Sequence[Ordering]) -> dict[str, int]:
    """How many hold, fail and cannot be told."""
    names = ("holds", "fails", "cannot be told")
    return {name: sum(1 for o in found if o.verdict == name) for name in names}
