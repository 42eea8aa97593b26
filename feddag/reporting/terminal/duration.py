# SPDX-License-Identifier: Apache-2.0
"""How long a run will take, estimated from the clients' answers in its first round, then from its rounds."""

from collections.abc import Callable

ENOUGH = 3  # answers from which on the first round can be estimated


def duration_words(seconds: float) -> str:
    """A duration for people: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


class Duration:
    """Estimates from what has happened so far; it knows nothing before the start of the first round.

    The first answer also waits for workers to start, so the first round is estimated from the time between
    the first and the latest answer to each question.
    """

    def __init__(self, rounds: int, clock: Callable[[], float], workers: int = 1) -> None:
        self.rounds, self.workers, self._clock = rounds, workers, clock
        self.first_answer: float | None = None  # seconds from the start of round 1 to its first answer
        self._began: float | None = None  # the start of the first round that was seen
        self._asking = False  # whether the first round is under way
        self._before = 0.0  # estimated seconds of the questions before the present one
        self._done = self._asked = 0
        self._first = self._latest = 0.0  # times of the first and the latest answer to the present question
        self._first_round = self._last_round = 0  # rounds that were finished when watching began, and now
        self._last_end = 0.0

    def begin(self) -> None:
        """The first round begins."""
        self._began, self._asking = self._clock(), True

    def answer(self, done: int, asked: int) -> None:
        """`done` of `asked` clients have answered the present question."""
        now = self._clock()
        if not self._asking or self._began is None:
            return
        if self.first_answer is None:
            self.first_answer = now - self._began
        if done <= self._done:  # another question
            self._before += self._question() or 0.0
            self._done = 0
        if not self._done:
            self._first = now
        self._done, self._asked, self._latest = done, asked, now

    def finish(self, round_: int) -> None:
        """A round is done."""
        now = self._clock()
        if self._began is None:  # the run was resumed: measure from here on
            self._began, self._first_round = now, round_
        self._asking, self._last_round, self._last_end = False, round_, now

    def total(self) -> float | None:
        """Seconds for all rounds, while the first round is under way; None as long as it is unknown."""
        question = self._question() if self._asking else None
        return None if question is None else self.rounds * (self._before + question)

    def left(self) -> float | None:
        """Seconds until the last round ends; None as long as it is unknown."""
        rounds_done = self._last_round - self._first_round
        if self._began is None or not rounds_done:
            return self.total()
        per_round = (self._last_end - self._began) / rounds_done
        return max(per_round * (self.rounds - self._last_round) - (self._clock() - self._last_end), 0.0)

    def _question(self) -> float | None:
        """Seconds of the present question; None until every worker has answered and some answered twice."""
        if self._done < max(ENOUGH, self.workers + 1):
            return None
        return self._asked * (self._latest - self._first) / (self._done - 1)
