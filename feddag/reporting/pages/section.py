# SPDX-License-Identifier: Apache-2.0
"""What pages are made of: sections of blocks, and blocks of sentences, plots, tables and text to copy.

All values are plain, so a block can be written as JSON beside a run and be shown later. Plots are
dictionaries in the form of plotly.js. Names of clients and classes may stand everywhere: they are escaped
when a page is made.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

Kind = Literal["text", "number", "percent", "bytes", "seconds", "cluster"]


@dataclass(frozen=True)
class Column:
    """The heading of a table's column, and how its values are shown."""

    name: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """Rows of plain values; None is shown as a dash."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """An interactive picture. The page offers it as PNG and SVG, and its data as CSV."""

    key: str  # names the files that people save; unique inside a block
    title: str
    data: Sequence[Mapping[str, Any]]  # traces of plotly.js
    layout: Mapping[str, Any] = field(default_factory=dict)
    height: int = 340
    wide: bool = False  # takes the whole width of the page


@dataclass(frozen=True)
class Block:
    """One part of a section: what is to be seen, then the pictures and tables that show it."""

    sentences: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    code: str = ""  # text with a copy button
    heading: str = ""  # which run it is about, where there are several
    tables_first: bool = False  # whether the tables stand above the plots


@dataclass(frozen=True)
class Section:
    """A titled part of a page."""

    key: str  # its address inside the page: page.html#key
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Maker:
    """How a section is made from runs. `per_run`: one block per run, else one block for all of them."""

    key: str
    title: str
    make: Callable[[Any], Block | None]
    per_run: bool = True

    def section(self, runs: Sequence[Any]) -> Section | None:
        """The section; None where no run has anything to show."""
        if not self.per_run:
            block = self._made(runs)
            return Section(self.key, self.title, (block,)) if block is not None else None
        made = [(run, self._made(run)) for run in runs]
        blocks = [
            _headed(block, run.label if len(runs) > 1 else "") for run, block in made if block is not None
        ]
        return Section(self.key, self.title, blocks) if blocks else None

    def _made(self, what: Any) -> Block | None:
        """A part that cannot be made, for example from damaged files, must not cost anyone the page."""
        try:
            return self.make(what)
        except Exception as error:
            return Block([f"This part could not be made: {type(error).__name__}: {error}."])


def _headed(block: Block, heading: str) -> Block:
    return replace(block, heading=heading or block.heading)


def compact(values: Any, digits: int = 4) -> list:
    """Numbers for a plot: rounded to so many digits after the point; None where there is no number."""
    array = np.round(np.asarray(values, dtype=np.float64), digits)
    whole = np.where(np.isfinite(array), array, np.nan).tolist()
    return _without_nan(whole)


def _without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nan(v) for v in value]
    if math.isnan(value):
        return None
    return int(value) if value == int(value) else value


# -- blocks as files ---------------------------------------------------------------------------------------


def save_block(path: Path, block: Block) -> None:
    """Write a block as JSON."""
    path.write_text(json.dumps(asdict(block), allow_nan=False, separators=(",", ":")), encoding="utf-8")


def load_block(path: Path) -> Block | None:
    """Read a block that `save_block` wrote; None if there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tables = [
            Table(**{**table, "columns": [Column(**column) for column in table["columns"]]})
            for table in found["tables"]
        ]
        return Block(**{**found, "plots": [Plot(**plot) for plot in found["plots"]], "tables": tables})
    except (OSError, ValueError, KeyError, TypeError):
        return None
