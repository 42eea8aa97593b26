# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a run goes on: a bar in a terminal, plain lines elsewhere, or nothing."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Event = dict[str, Any]


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.2f}%"


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.1f} MB"


class Watcher:
    """Shows the events of a run; `quiet` shows warnings and the folder alone."""

    def __init__(self, console: Console, rounds: int, quiet: bool = False) -> None:
        self.console, self.rounds, self.quiet = console, rounds, quiet
        self.accuracy = ""
        self.stage = "start"
        self._bar: Progress | None = None
        self._last = time.monotonic()

    def __enter__(self) -> "Watcher":
        if self.console.is_terminal and not self.quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console)
            self._task = self._bar.add_task("starting", total=self.rounds, figures="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is not None:
            show(event)

    def _line(self, text: str, style: str | None = None) -> None:
        if not self.quiet:
            self.console.print(text, style=style, highlight=False)

    def _on_started(self, event: Event) -> None:
        source, experiment = event["source"], event["experiment"]
        part = "" if source["complete"] else ", a subset or stand-in"
        self._line(
            f"{experiment['algorithm']['name']} on {source['dataset']} ({source['kind']}{part}): "
            f"{event['clients']} clients, {experiment['num_rounds']} rounds, model {event['model']}, "
            f"engine {experiment['engine']['name']}, seed {experiment['seed']}"
        )
        self._line(f"folder {event['folder']}")
        if event["clients_without_samples"]:
            names = ", ".join(event["clients_without_samples"][:5])
            self._warn(f"clients without training samples are evaluated only: {names}")

    def _on_resumed(self, event: Event) -> None:
        self._on_started(event)

    def _on_warning(self, event: Event) -> None:
        self._warn(event["text"])

    def _warn(self, text: str) -> None:
        self.console.print(f"warning: {text}", style="yellow", highlight=False)

    def _on_exchange(self, event: Event) -> None:
        for client, reason in list(event["failures"].items())[:3]:
            self._warn(f"round {event['round']}: client '{client}' failed in '{event['task']}': {reason}")

    def _on_answer(self, event: Event) -> None:
        if self._bar is not None:
            step = f"{event['task']} {event['done']}/{event['asked']}"
            self._bar.update(self._task, description=f"{self.stage}  {step}")
        elif event["asked"] >= 20 and time.monotonic() - self._last >= 5.0:
            self._last = time.monotonic()
            self._line(f"{self.stage}  {event['task']} {event['done']}/{event['asked']} clients")

    def _on_start(self, event: Event) -> None:
        self.stage = "round 1"

    def _on_round(self, event: Event) -> None:
        figures = f"{self.accuracy}{event['seconds']:.2f} s/round"
        self.stage = f"round {min(event['round'] + 1, self.rounds)}"
        if self._bar is not None:
            self._bar.update(self._task, completed=event["round"], description=self.stage, figures=figures)
        elif time.monotonic() - self._last >= 1.0 or event["round"] == self.rounds:
            self._last = time.monotonic()
            self._line(f"round {event['round']}/{self.rounds}  {figures}")

    def _on_evaluation(self, event: Event) -> None:
        test = event["test"]
        self.accuracy = f"accuracy {percent(test['accuracy'])} ± {percent(test['accuracy_std'])}  "
        if self._bar is None:
            self._line(f"round {event['round']}/{self.rounds}  {self.accuracy}balanced "
                       f"{percent(test['balanced_accuracy'])}")  # fmt: skip

    def _on_finished(self, event: Event) -> None:
        if self._bar is not None:
            self._bar.stop()
        if not self.quiet:
            self.console.print(result_table(event))
        self.console.print(f"results in {event['folder']}", highlight=False, soft_wrap=True)


def result_table(result: Event) -> Table:
    """Final and validation-chosen accuracy, before and after local training, and the cost."""
    table = Table(title=f"{result['algorithm']}: accuracy over clients, mean ± spread")
    for heading in ("round", "model", "accuracy", "balanced accuracy"):
        table.add_column(heading, justify="left" if heading in ("round", "model") else "right")
    for name in ("final", "chosen", "newcomers"):
        scores = result.get(name)
        if scores is None:
            continue
        for when, words in (("before", "as served"), ("after", "after local training")):
            if when in scores:
                s = scores[when]
                table.add_row(
                    f"{name} ({scores['round']})",
                    words,
                    f"{percent(s['accuracy'])} ± {percent(s['accuracy_std'])}",
                    f"{percent(s['balanced_accuracy'])} ± {percent(s['balanced_accuracy_std'])}",
                )
    table.caption = (
        f"{megabytes(result['bytes_down'])} down, {megabytes(result['bytes_up'])} up, "
        f"{result['seconds']:.1f} s in {result['rounds']} rounds, {result['failures']} client failures"
    )
    return table
