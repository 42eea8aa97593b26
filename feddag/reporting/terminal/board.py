# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a comparison goes on: a live table in a terminal, plain lines elsewhere."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from feddag.reporting.tables.comparison import Line, Metric, Outcome, cells, headings
from feddag.reporting.terminal.progress import megabytes, percent


class CompareBoard:
    """Shows a row for each method and setting; `quiet` shows failures alone."""

    def __init__(self, console: Console, metric: Metric, quiet: bool = False) -> None:
        self.console, self.metric, self.quiet = console, metric, quiet
        self.names: dict[str, tuple[str, str, int, int]] = {}  # method, setting, seed, rounds
        self.outcomes: dict[str, Outcome] = {}
        self.failures: dict[str, str] = {}
        self.news: dict[str, tuple[int, float | None]] = {}  # name → round, latest score
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> "CompareBoard":
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, get_renderable=self.table, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def expect(self, cells: Mapping[str, tuple[str, str, Any]]) -> None:
        """All cells, before the first starts."""
        self.names = {name: (m, s, e.seed, e.num_rounds) for name, (m, s, e) in cells.items()}

    def progress(self, name: str, news: Mapping[str, Any]) -> None:
        """A round is done."""
        with self._lock:
            score = self.news.get(name, (0, None))[1]
            if "scores" in news:
                score = news["scores"][self.metric]
            self.news[name] = (news["round"], score)

    def finished(self, name: str, outcome: Outcome) -> None:
        """A run is complete."""
        with self._lock:
            self.outcomes[name] = outcome
            self.news.pop(name, None)
        traffic = megabytes(outcome.bytes_down + outcome.bytes_up)
        self._line(name, f"{percent(outcome.scores[self.metric])}, {traffic}, {outcome.seconds:.1f} s")

    def failed(self, name: str, reason: str) -> None:
        """A run ended without a result."""
        with self._lock:
            self.failures[name] = reason
            self.news.pop(name, None)
        self._line(name, f"failed: {reason}", always=True)

    def _line(self, name: str, text: str, always: bool = False) -> None:
        if self._live is not None or (self.quiet and not always):
            return
        method, setting, seed, _ = self.names[name]
        done = len(self.outcomes) + len(self.failures)
        where = " ".join(part for part in (method, setting, f"seed {seed}") if part)
        line = f"[{done}/{len(self.names)}] {where}: {text}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def table(self) -> Table:
        """The state of the grid."""
        done = len(self.outcomes) + len(self.failures)
        table = Table(title=f"{done} of {len(self.names)} runs done", title_justify="left", box=None)
        for heading in ("method", "setting", "seeds", self.metric.replace("_", " "), "now"):
            table.add_column(heading, justify="right" if heading == "seeds" else "left")
        with self._lock:
            rows: dict[tuple[str, str], list[str]] = {}
            for name, (method, setting, _, _) in self.names.items():
                rows.setdefault((setting, method), []).append(name)
            for (setting, method), names in rows.items():
                ready = [self.outcomes[n] for n in names if n in self.outcomes]
                score = sum(o.scores[self.metric] for o in ready) / len(ready) if ready else None
                now = [
                    f"seed {self.names[n][2]}: round {self.news[n][0]}/{self.names[n][3]} "
                    f"{percent(self.news[n][1])}"
                    for n in names
                    if n in self.news
                ]
                now += [f"seed {self.names[n][2]} failed" for n in names if n in self.failures]
                table.add_row(method, setting, f"{len(ready)}/{len(names)}", percent(score), ", ".join(now))
        return table


def comparison_tables(
    lines: Sequence[Line], first: str, metric: Metric, targets: Sequence[float]
) -> list[Table]:
    """The result for a terminal, one table a setting; the files have more columns."""
    head = headings(first, metric, targets)
    keep = [
        c for c, name in enumerate(head) if c < 2 or name.startswith(("vs ", "rank", "MB", "s", "rounds"))
    ]
    tables = []
    for setting in dict.fromkeys(line.setting for line in lines):
        table = Table(title=setting or None, title_justify="left")
        for c in keep:
            table.add_column(head[c], justify="right" if c else "left")
        for line in lines:
            if line.setting == setting:
                text = cells(line, metric)
                table.add_row(*(text[c] for c in keep))
        tables.append(table)
    return tables
