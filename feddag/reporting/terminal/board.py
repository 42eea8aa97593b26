# SPDX-License-Identifier: Apache-2.0
"""What a person sees during a comparison: a live table in a terminal, plain lines elsewhere."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live

from feddag.core.text import plural
from feddag.reporting.tables.comparison import Line, Metric, Outcome
from feddag.reporting.tables.comparison_text import LOW_HEADING, cells, headings
from feddag.reporting.terminal.console import TextTable, safe_console, say
from feddag.reporting.terminal.progress import megabytes, percent


class CompareBoard:
    """Shows one row per method and setting. With `quiet` it shows only failures."""

    def __init__(self, console: Console, metric: Metric, quiet: bool = False) -> None:
        self.console, self.metric, self.quiet = safe_console(console), metric, quiet
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
        """Tell the board every cell, before the first one starts."""
        self.outcomes, self.failures = {}, {}
        self.names = {name: (m, s, e.seed, e.num_rounds) for name, (m, s, e) in cells.items()}

    def progress(self, name: str, news: Mapping[str, Any]) -> None:
        """Record a finished round of a run."""
        with self._lock:
            score = self.news.get(name, (0, None))[1]
            if "scores" in news:
                score = news["scores"][self.metric]
            self.news[name] = (news["round"], score)

    def finished(self, name: str, outcome: Outcome) -> None:
        """Record a complete run."""
        with self._lock:
            self.outcomes[name] = outcome
            self.news.pop(name, None)
        traffic = megabytes(outcome.bytes_down + outcome.bytes_up)
        self._line(name, f"{percent(outcome.scores.get(self.metric))}, {traffic}, {outcome.seconds:.1f} s")

    def failed(self, name: str, reason: str) -> None:
        """Record a run that ended without a result."""
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
        say(self.console, f"[{done}/{len(self.names)}] {where}: {text}")

    def table(self) -> TextTable:
        """The state of the grid."""
        done = len(self.outcomes) + len(self.failures)
        table = TextTable(f"{done} of {plural(len(self.names), 'run')} done", box=None)
        for heading in ("method", "setting", "seeds", self.metric.replace("_", " "), "now"):
            table.heading(heading, "right" if heading == "seeds" else "left")
        with self._lock:
            rows: dict[tuple[str, str], list[str]] = {}
            for name, (method, setting, _, _) in self.names.items():
                rows.setdefault((setting, method), []).append(name)
            for (setting, method), names in rows.items():
                ready = [self.outcomes[n] for n in names if n in self.outcomes]
                scored = [o.scores[self.metric] for o in ready if o.scores]
                score = sum(scored) / len(scored) if scored else None
                now = [
                    f"seed {self.names[n][2]}: round {self.news[n][0]}/{self.names[n][3]} "
                    f"{percent(self.news[n][1])}"
                    for n in names
                    if n in self.news
                ]
                now += [f"seed {self.names[n][2]} failed" for n in names if n in self.failures]
                table.line(method, setting, f"{len(ready)}/{len(names)}", percent(score), ", ".join(now))
        return table


def comparison_tables(
    lines: Sequence[Line], first: str, metric: Metric, targets: Sequence[float]
) -> list[TextTable]:
    """The result for a terminal, one table per setting; the files have more columns."""
    head = headings(first, metric, targets)
    shown = ("vs ", "rank", "after", "client-epochs", "MB", "s", "rounds", LOW_HEADING, "clusters")
    keep = [c for c, name in enumerate(head) if c < 2 or name.startswith(shown)]
    tables = []
    for setting in dict.fromkeys(line.setting for line in lines):
        table = TextTable(setting)
        for c in keep:
            table.heading(head[c], "right" if c else "left")
        for line in lines:
            if line.setting == setting:
                text = cells(line, metric)
                table.line(*(text[c] for c in keep))
        tables.append(table)
    return tables
