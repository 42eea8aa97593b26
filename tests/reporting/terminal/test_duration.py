# SPDX-License-Identifier: Apache-2.0
"""How long a run will take, from events alone: the clock is a list of times."""

import pytest

from feddag.reporting.terminal.duration import Duration, duration_words
from feddag.reporting.terminal.progress import Watcher
from tests.reporting.terminal.test_progress import started
from tests.reporting.toys import recorded, recording_console


class Clock:
    """A clock that stands still unless it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def answer(done: int, asked: int = 10, task: str = "train") -> dict:
    return {"event": "answer", "task": task, "done": done, "asked": asked}


def test_durations_for_people() -> None:
    words = [duration_words(s) for s in (4.4, 89, 90, 720, 3600, 12_000)]
    assert words == ["4 s", "89 s", "2 min", "12 min", "1 h", "3 h 20 min"]


def watched(times: list[float], rounds: int = 50, terminal: bool = False, **events) -> str:
    """What is printed when the clients of round 1 answer at these times."""
    clock, console = Clock(), recording_console(terminal=terminal, width=160)
    with Watcher(console, rounds, clock=clock) as watch:
        watch(started())
        watch({"event": "start", "seconds": 1.0})
        for done, clock.now in enumerate(times, 1):
            watch(answer(done))
        if watch._bar is not None:
            watch._bar.refresh()
    return recorded(console)


def test_the_third_answer_of_the_first_round_gives_one_estimate() -> None:
    assert "about" not in watched([2.0, 3.0])
    text = watched([2.0, 3.0, 4.0, 5.0])
    assert text.count("about 8 min for 50 rounds") == 1  # 10 clients, one second each, 50 rounds
    assert text.count("about") == 1


def test_the_start_of_the_workers_does_not_count() -> None:
    assert "about 8 min for 50 rounds" in watched([25.0, 26.0, 27.0])


def test_a_short_run_needs_no_estimate() -> None:
    assert "about" not in watched([0.01, 0.02, 0.03], rounds=2)


def test_a_bar_shows_the_time_that_is_left_in_the_first_round() -> None:
    text = watched([2.0, 3.0, 4.0], terminal=True)
    assert "8 min left" in text
    assert "about" not in text


def test_workers_that_answer_at_the_same_time_are_not_taken_for_fast_ones() -> None:
    clock = Clock()
    duration = Duration(10, clock, workers=4)
    duration.begin()
    clock.now = 8.0
    for done in (1, 2, 3, 4):
        duration.answer(done, 20)
    assert duration.total() is None
    clock.now = 16.0
    duration.answer(5, 20)
    assert duration.total() == pytest.approx(10 * 20 * 8 / 4)


def test_several_questions_of_a_round_add_up() -> None:
    clock = Clock()
    duration = Duration(2, clock)
    duration.begin()
    for done in (1, 2, 3):
        clock.now += 1.0
        duration.answer(done, 3)
    for done in (1, 2, 3):
        clock.now += 2.0
        duration.answer(done, 3)
    assert duration.total() == pytest.approx(2 * (3 + 6))


def test_after_a_round_the_rounds_themselves_are_measured() -> None:
    clock = Clock()
    duration = Duration(5, clock)
    duration.begin()
    clock.now = 10.0
    duration.finish(1)
    assert duration.total() is None
    assert duration.left() == pytest.approx(40.0)
    clock.now = 12.0
    assert duration.left() == pytest.approx(38.0)


def test_a_resumed_run_is_measured_from_its_first_round_on() -> None:
    clock = Clock()
    duration = Duration(10, clock)
    clock.now = 50.0
    duration.answer(5, 10)
    duration.finish(6)
    assert duration.left() is None
    clock.now = 53.0
    duration.finish(7)
    assert duration.left() == pytest.approx(9.0)


def test_slow_clients_are_told_once_with_what_helps() -> None:
    text = watched([45.0, 90.0, 135.0])
    assert text.count("every client needs long: the first answer came after 45 s; a smaller model") == 1
    assert "every client" not in watched([2.0, 90.0, 135.0])
