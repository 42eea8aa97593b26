# SPDX-License-Identifier: Apache-2.0
"""What a person sees during a run, event by event."""

import pytest
from rich.console import Console

from feddag.reporting.terminal.progress import Watcher, megabytes, percent, result_table
from tests.reporting.toys import ALL_HOSTILE, HOSTILE, recorded, recording_console

SCORES = {
    "accuracy": 0.5, "accuracy_std": 0.1, "balanced_accuracy": 0.4, "balanced_accuracy_std": 0.2, "loss": 1.0,
}  # fmt: skip


def started(**changes) -> dict:
    event = {
        "event": "started",
        "source": {"dataset": "digits", "kind": "embedded", "complete": True},
        "experiment": {
            "algorithm": {"name": "fedavg"},
            "num_rounds": 1,
            "engine": {"name": "inline"},
            "seed": 3,
        },
        "clients": 1,
        "model": "mlp",
        "folder": "runs/x",
        "clients_without_samples": [],
    }
    return {**event, **changes}


def finished(**changes) -> dict:
    event = {
        "event": "finished",
        "algorithm": "fedavg",
        "folder": "runs/x",
        "final": {"round": 2, "before": SCORES, "after": {**SCORES, "accuracy": 0.9}},
        "chosen": None,
        "newcomers": {"round": 2, "after": {**SCORES, "accuracy": None}},
        "bytes_down": 2_500_000,
        "bytes_up": 1_000_000,
        "seconds": 12.34,
        "rounds": 1,
        "failures": 1,
    }
    return {**event, **changes}


def shown(*events: dict, quiet: bool = False, rounds: int = 2, console: Console | None = None) -> str:
    console = console or recording_console()
    with Watcher(console, rounds, quiet) as watch:
        for event in events:
            watch(event)
    return recorded(console)


def test_numbers_for_people() -> None:
    assert (percent(0.12345), percent(None)) == ("12.35%", "–")
    assert megabytes(1_234_567_890) == "1,234.6 MB"


@pytest.mark.parametrize("kind", ["started", "resumed"])
def test_the_start_names_method_data_and_folder(kind: str) -> None:
    assert shown(started(event=kind)) == (
        "fedavg on digits (embedded): 1 client, 1 round, model mlp, engine inline, seed 3\nfolder runs/x\n"
    )


def test_a_part_of_a_dataset_is_called_a_part() -> None:
    source = {"dataset": "digits", "kind": "embedded", "complete": False}
    assert "(embedded, a subset or stand-in)" in shown(started(source=source))


def test_clients_without_samples_are_a_warning_that_is_shown_even_when_quiet() -> None:
    text = shown(started(clients_without_samples=[f"c{i}" for i in range(8)]), quiet=True)
    assert text == (
        "warning: clients without training samples are only evaluated: c0, c1, c2, c3, c4, c5 and 2 more\n"
    )


def test_a_warning_is_shown_even_when_quiet() -> None:
    assert shown({"event": "warning", "text": "careful"}, quiet=True) == "warning: careful\n"


def test_the_first_failures_are_named_and_the_others_are_counted() -> None:
    failures = {f"c{i}": "no disk" for i in range(5)}
    lines = shown({"event": "exchange", "round": 2, "task": "train", "failures": failures}).splitlines()
    assert lines[0] == "warning: round 2: client 'c0' failed in 'train': no disk"
    assert len(lines) == 4
    assert lines[3] == "warning: round 2: 2 more clients failed in 'train'"
    assert shown({"event": "exchange", "round": 2, "task": "train", "failures": {}}) == ""


def test_rounds_and_evaluations_are_lines_outside_a_terminal() -> None:
    text = shown(
        {"event": "start", "seconds": 1.0},
        {"event": "evaluation", "round": 1, "test": SCORES},
        {"event": "round", "round": 2, "seconds": 0.25},
    )
    assert text == (
        "round 1/2  accuracy 50.00% ± 10.00%  balanced 40.00%\n"
        "round 2/2  accuracy 50.00% ± 10.00%  0.25 s/round\n"
    )


def test_answers_of_many_clients_are_a_line_now_and_then() -> None:
    console = recording_console()
    watch = Watcher(console, 2)
    watch({"event": "start", "seconds": 1.0})
    watch._last = float("-inf")  # as if the last line were long ago
    watch({"event": "answer", "task": "train", "done": 7, "asked": 30})
    watch({"event": "answer", "task": "train", "done": 8, "asked": 30})
    assert recorded(console) == "round 1  train 7/30 clients\n"


def test_a_terminal_gets_a_bar_with_stage_and_figures() -> None:
    console = recording_console(terminal=True, width=160)
    text = shown(
        started(),
        {"event": "start", "seconds": 1.0},
        {"event": "answer", "task": "train", "done": 1, "asked": 3},
        {"event": "evaluation", "round": 1, "test": SCORES},
        {"event": "round", "round": 1, "seconds": 0.25},
        finished(),
        console=console,
    )
    assert "round 2" in text
    assert "accuracy 50.00% ± 10.00%  0.25 s/round" in text
    assert "results in runs/x" in text


def test_the_bar_shows_hostile_tasks_as_they_are() -> None:
    console = recording_console(terminal=True, width=160)
    with Watcher(console, 2) as watch:
        watch({"event": "answer", "task": "[/b]", "done": 1, "asked": 3})
        assert watch._bar is not None
        watch._bar.refresh()
    assert "start  [/b] 1/3" in recorded(console)


def test_clients_that_join_are_named() -> None:
    text = shown({"event": "newcomers", "round": 1, "clients": ["[/b]"]})
    assert text == "round 1/2  1 client joined: [/b]\n"


def test_unknown_events_are_ignored() -> None:
    assert shown({"event": "something new"}) == ""


def test_the_end_shows_the_result_and_the_cost() -> None:
    text = shown(finished())
    assert "fedavg: accuracy, mean ± spread over clients" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert rows == [
        ["final (2)", "as served", "50.00% ± 10.00%", "40.00% ± 20.00%"],
        ["final (2)", "after local training", "90.00% ± 10.00%", "40.00% ± 20.00%"],
        ["newcomers (2)", "after local training", "– ± 10.00%", "40.00% ± 20.00%"],
    ]
    assert "2.5 MB down, 1.0 MB up, 12.3 s in 1 round, 1 client failure" in text
    assert text.endswith("results in runs/x\n")


def test_quiet_shows_the_folder_alone() -> None:
    events = [started(), {"event": "round", "round": 2, "seconds": 1.0}, finished()]
    assert shown(*events, quiet=True) == "results in runs/x\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", [*HOSTILE, ALL_HOSTILE])
def test_hostile_names_in_any_event_break_nothing(name: str, terminal: bool, encoding: str) -> None:
    console = recording_console(encoding, terminal, width=300)
    text = shown(
        started(folder=name, model=name, clients_without_samples=[name]),
        {"event": "warning", "text": name},
        {"event": "exchange", "round": 1, "task": name, "failures": {name: name}},
        {"event": "answer", "task": name, "done": 1, "asked": 3},
        {"event": "evaluation", "round": 1, "test": SCORES},
        {"event": "round", "round": 1, "seconds": 0.25},
        finished(folder=name, algorithm=name),
        console=console,
    )
    visible = name.replace("\n", "\\n")
    visible = visible.replace("é", "\\xe9") if encoding == "ascii" else visible
    for sentence in (
        f"folder {visible}",
        f"warning: {visible}",
        f"client '{visible}'",
        f"{visible}: accuracy",
    ):
        assert sentence in text


def test_a_result_without_scores_is_an_empty_table_and_no_error() -> None:
    assert result_table(finished(final=None, newcomers=None)).row_count == 0


def test_clients_that_could_not_be_scored_are_counted_in_the_result() -> None:
    final = {"round": 2, "asked": 24, "before": {**SCORES, "clients": 16}}
    text = shown(
        finished(final=final, newcomers=None, unscored=["c"] * 8, evaluation_failures=9), console=wide()
    )
    text = " ".join(text.split())  # the note is as wide as the table
    assert "final: 16 of 24 clients scored, 8 failed; " in text
    assert "10 client failures, 9 of them in evaluation" in text
    everybody = {**final, "before": {**SCORES, "clients": 24}}
    assert "scored" not in shown(finished(final=everybody, newcomers=None), console=wide())


def wide() -> Console:
    return recording_console(width=200)


def test_an_evaluation_in_which_clients_failed_says_how_many_were_scored() -> None:
    event = {"event": "evaluation", "round": 1, "asked": 6, "test": {**SCORES, "clients": 4}}
    assert "accuracy 50.00% ± 10.00%  (4 of 6 clients scored)  balanced" in shown(event)


def test_an_evaluation_in_which_everybody_failed_is_a_line_of_dashes() -> None:
    test = {**dict.fromkeys(SCORES), "clients": 0}
    text = shown(
        {"event": "evaluation", "round": 1, "asked": 6, "test": test},
        finished(final={"round": 1, "asked": 6, "before": test}, newcomers=None, unscored=["c"] * 6),
        console=wide(),
    )
    assert "accuracy – ± –  (0 of 6 clients scored)" in text
    assert "final: 0 of 6 clients scored, 6 failed" in text


def test_a_resumed_run_is_not_called_start() -> None:
    console = recording_console()
    watch = Watcher(console, 2, clock=lambda: 0.0)
    watch(started(event="resumed"))
    watch._last = float("-inf")
    watch({"event": "answer", "task": "train", "done": 7, "asked": 30})
    assert "next round  train 7/30 clients" in recorded(console)
