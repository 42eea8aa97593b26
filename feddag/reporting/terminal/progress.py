# SPDX-License-Identifier: Apache-2.0
"""What a person sees during a run: a progress bar in a terminal, plain lines elsewhere, or nothing."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from feddag.core.host import num_cores
from feddag.core.text import listed, plural, printable
from feddag.reporting.terminal.console import TextTable, safe_console, say
from feddag.reporting.terminal.duration import Duration, duration_words
from feddag.reporting.text import ascii_only

Event = dict[str, Any]
FAILURES_SHOWN = 3  # per question to the clients
LEAST_ESTIMATE = 10.0  # seconds; a shorter run needs no estimate
SLOW = 30.0  # seconds until the first answer; then every client is slow


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.2f}%"


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.1f} MB"


class Watcher:
    """Shows the events of a run. With `quiet` it shows only warnings and the folder of the results."""

    def __init__(
        self,
        console: Console,
        rounds: int,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.rounds, self.quiet = safe_console(console), rounds, quiet
        self.accuracy = ""
        self.stage = "start"
        self.duration = Duration(rounds, clock)
        self._clock = clock
        self._estimated = self._called_slow = False  # each is said once
        self._bar: Progress | None = None
        self._last = clock()

    def __enter__(self) -> "Watcher":
        if self.console.is_terminal and not self.quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
                TextColumn("{task.fields[left]}", markup=False),
            )
            self._bar = Progress(*columns, console=self.console)
            self._task = self._bar.add_task("starting", total=self.rounds, figures="", left="")
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
        for line in event.get("privacy", {}).get("lines", ()):
            self._line(line)
        for text in event.get("privacy", {}).get("warnings", ()):
            self._warn(text)
        engine = experiment["engine"]
        self.duration.workers = 1 if engine["name"] == "inline" else engine.get("workers") or num_cores()
        if event["clients_without_samples"]:
            names = listed(event["clients_without_samples"])
            self._warn(f"clients without training samples are only evaluated: {names}")

    def _on_resumed(self, event: Event) -> None:
        self.stage = "next round"
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
        done, asked = event["done"], event["asked"]
        step = f"{event['task']} {done}/{asked}"
        self.duration.answer(done, asked)
        self._say_if_slow()
        if self._bar is not None:
            self._update_bar(f"{self.stage}  {step}", left=self._left())
            return
        estimate = self.duration.total()
        if estimate is not None and estimate >= LEAST_ESTIMATE and not self._estimated:
            self._estimated = True
            self._line(f"about {duration_words(estimate)} for {plural(self.rounds, 'round')}")
        if asked >= 20 and self._clock() - self._last >= 5.0:
            self._last = self._clock()
            self._line(f"{self.stage}  {step} clients")

    def _say_if_slow(self) -> None:
        first = self.duration.first_answer
        if first is not None and first >= SLOW and not self._called_slow:
            self._called_slow = True
            self._line(
                f"every client needs long: the first answer came after {duration_words(first)}; "
                "a smaller model or fewer training.local_epochs make rounds shorter"
            )

    def _left(self) -> str:
        left = self.duration.left()
        return "" if left is None else f"{duration_words(left)} left"

    def _on_start(self, event: Event) -> None:
        self.stage = "round 1"
        self.duration.begin()

    def _on_round(self, event: Event) -> None:
        figures = f"{self.accuracy}{event['seconds']:.2f} s/round"
        self.stage = f"round {min(event['round'] + 1, self.rounds)}"
        self.duration.finish(event["round"])
        if self._bar is not None:
            self._update_bar(self.stage, completed=event["round"], figures=figures, left=self._left())
        elif self._clock() - self._last >= 1.0 or event["round"] == self.rounds:
            self._last = self._clock()
            self._line(f"round {event['round']}/{self.rounds}  {figures}")

    def _on_evaluation(self, event: Event) -> None:
        test = event["test"]
        self.accuracy = f"accuracy {percent(test['accuracy'])} ± {percent(test['accuracy_std'])}  "
        if words := unscored_words(test, event.get("asked")):
            self.accuracy += f"({words})  "
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
            say(self.console, f"a page about it: feddag report {event['folder']}")
        say(self.console, f"results in {event['folder']}")


def result_table(result: Event) -> TextTable:
    """Accuracy of the final and of the chosen round, before and after local training, and the cost."""
    table = TextTable(f"{result['algorithm']}: accuracy, mean ± spread over clients")
    for heading in ("round", "model", "accuracy", "balanced accuracy"):
        table.heading(heading, "left" if heading in ("round", "model") else "right")
    missing: list[str] = []
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
        if (words := unscored_words(scores.get("before", {}), scores.get("asked"))) and name != "chosen":
            failed = len(result.get("unscored", ())) if name == "final" else 0
            missing.append(f"{name}: {words}" + (f", {failed:,} failed" if failed else ""))
    in_evaluation = result.get("evaluation_failures", 0)
    failures = plural(result["failures"] + in_evaluation, "client failure")
    table.note(
        "".join(f"{sentence}; " for sentence in missing)
        + f"{megabytes(result['bytes_down'])} down, {megabytes(result['bytes_up'])} up, "
        + (f"{result['client_epochs']:,.0f} client-epochs, " if "client_epochs" in result else "")
        + f"{result['seconds']:.1f} s in {plural(result['rounds'], 'round')}, {failures}"
        + (f", {in_evaluation:,} of them in evaluation" if in_evaluation else "")
    )
    return table


def unscored_words(scores: Mapping[str, Any], asked: int | None) -> str:
    """How many clients a mean is over, if that is not everybody: "16 of 24 clients scored"."""
    scored = scores.get("clients")
    if scored is None or asked is None or scored >= asked:
        return ""
    return f"{scored:,} of {plural(asked, 'client')} scored"
