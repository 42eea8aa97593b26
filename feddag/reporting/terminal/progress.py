# SPDX-License-Identifier: Apache-2.0
"""What a person sees during a run: a progress bar in a terminal, plain lines elsewhere, or nothing."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from feddag.core.text import listed, plural, printable
from feddag.reporting.terminal.console import TextTable, safe_console, say
from feddag.reporting.text import ascii_only

Event = dict[str, Any]
FAILURES_SHOWN = 3  # per question to the clients


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.2f}%"


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.1f} MB"


class Watcher:
    """Shows the events of a run. With `quiet` it shows only warnings and the folder of the results."""

    def __init__(self, console: Console, rounds: int, quiet: bool = False) -> None:
        self.console, self.rounds, self.quiet = safe_console(console), rounds, quiet
        self.accuracy = ""
        self.stage = "start"
        self._bar: Progress | None = None
        self._last = time.monotonic()

    def __enter__(self) -> "Watcher":
        if self.console.is_terminal and not self.quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
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
        """Show one event; unknown kinds of events are ignored."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is not None:
            show(event)

    def _line(self, text: str) -> None:
        if not self.quiet:
            say(self.console, text)

    def _warn(self, text: str) -> None:
        say(self.console, f"warning: {text}", style="yellow")

    def _update_bar(self, description: str, **fields: Any) -> None:
        if self._bar is not None:
            fit = ascii_only if self.console.options.ascii_only else str
            words: dict[str, Any] = {k: fit(v) if isinstance(v, str) else v for k, v in fields.items()}
            self._bar.update(self._task, description=fit(printable(description)), **words)

    def _on_started(self, event: Event) -> None:
        source, experiment = event["source"], event["experiment"]
        part = "" if source["complete"] else ", a subset or stand-in"
        self._line(
            f"{experiment['algorithm']['name']} on {source['dataset']} ({source['kind']}{part}): "
            f"{plural(event['clients'], 'client')}, {plural(experiment['num_rounds'], 'round')}, "
            f"model {event['model']}, engine {experiment['engine']['name']}, seed {experiment['seed']}"
        )
        self._line(f"folder {event['folder']}")
        if event["clients_without_samples"]:
            names = listed(event["clients_without_samples"])
            self._warn(f"clients without training samples are only evaluated: {names}")

    def _on_resumed(self, event: Event) -> None:
        self._on_started(event)

    def _on_warning(self, event: Event) -> None:
        self._warn(event["text"])

    def _on_exchange(self, event: Event) -> None:
        failures = list(event["failures"].items())
        for client, reason in failures[:FAILURES_SHOWN]:
            self._warn(f"round {event['round']}: client '{client}' failed in '{event['task']}': {reason}")
        if len(failures) > FAILURES_SHOWN:
            more = plural(len(failures) - FAILURES_SHOWN, "more client")
            self._warn(f"round {event['round']}: {more} failed in '{event['task']}'")

    def _on_answer(self, event: Event) -> None:
        step = f"{event['task']} {event['done']}/{event['asked']}"
        if self._bar is not None:
            self._update_bar(f"{self.stage}  {step}")
        elif event["asked"] >= 20 and time.monotonic() - self._last >= 5.0:
            self._last = time.monotonic()
            self._line(f"{self.stage}  {step} clients")

    def _on_start(self, event: Event) -> None:
        self.stage = "round 1"

    def _on_round(self, event: Event) -> None:
        figures = f"{self.accuracy}{event['seconds']:.2f} s/round"
        self.stage = f"round {min(event['round'] + 1, self.rounds)}"
        if self._bar is not None:
            self._update_bar(self.stage, completed=event["round"], figures=figures)
        elif time.monotonic() - self._last >= 1.0 or event["round"] == self.rounds:
            self._last = time.monotonic()
            self._line(f"round {event['round']}/{self.rounds}  {figures}")

    def _on_evaluation(self, event: Event) -> None:
        test = event["test"]
        self.accuracy = f"accuracy {percent(test['accuracy'])} ± {percent(test['accuracy_std'])}  "
        if self._bar is None:
            balanced = percent(test["balanced_accuracy"])
            self._line(f"round {event['round']}/{self.rounds}  {self.accuracy}balanced {balanced}")

    def _on_newcomers(self, event: Event) -> None:
        joined = plural(len(event["clients"]), "client")
        self._line(f"round {event['round']}/{self.rounds}  {joined} joined: {listed(event['clients'])}")

    def _on_finished(self, event: Event) -> None:
        if self._bar is not None:
            self._bar.stop()
        if not self.quiet:
            self.console.print(result_table(event))
        say(self.console, f"results in {event['folder']}")


def result_table(result: Event) -> TextTable:
    """Accuracy of the final and of the chosen round, before and after local training, and the cost."""
    table = TextTable(f"{result['algorithm']}: accuracy, mean ± spread over clients")
    for heading in ("round", "model", "accuracy", "balanced accuracy"):
        table.heading(heading, "left" if heading in ("round", "model") else "right")
    for name in ("final", "chosen", "newcomers"):
        scores = result.get(name)
        if scores is None:
            continue
        for when, words in (("before", "as served"), ("after", "after local training")):
            if when in scores:
                s = scores[when]
                table.line(
                    f"{name} ({scores['round']})",
                    words,
                    f"{percent(s['accuracy'])} ± {percent(s['accuracy_std'])}",
                    f"{percent(s['balanced_accuracy'])} ± {percent(s['balanced_accuracy_std'])}",
                )
    table.note(
        f"{megabytes(result['bytes_down'])} down, {megabytes(result['bytes_up'])} up, "
        f"{result['seconds']:.1f} s in {plural(result['rounds'], 'round')}, "
        f"{plural(result['failures'], 'client failure')}"
    )
    return table
