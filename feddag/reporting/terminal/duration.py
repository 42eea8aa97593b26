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
    """Estimates from what has happened so far; it knows nothing before the start of the first round."""

    def __init__(self, rounds: int, clock: Callable[[], float]) -> None:
        self.rounds, self._clock = rounds, clock
        self.first_answer: float | None = None  # seconds from a round's start to the first answer of all
        self._began: float | None = None  # the start of the first round that was seen
        self._question: float | None = None  # the start of the question that is being answered
        self._latest = 0.0  # when the last answer came
        self._done = self._asked = 0
        self._first_round, self._last_round = 0, 0  # rounds that were finished when watching began, and now
        self._last_end: float | None = None

    def begin(self) -> None:
        """The first round begins."""
        self._began = self._question = self._clock()

    def answer(self, done: int, asked: int) -> None:
        """`done` of `asked` clients have answered the present question."""
        if self._question is None:
            return
        now = self._clock()
        if self.first_answer is None:
            self.first_answer = now - self._question
        if done <= self._done:  # another question; it began with the last answer to the one before
            self._question = self._latest
        self._done, self._asked, self._latest = done, asked, now

    def finish(self, round_: int) -> None:
        """A round is done."""
        now = self._clock()
        if self._began is None:  # the run was resumed: measure from here on
            self._began, self._first_round = now, round_
        self._question, self._latest, self._done = now, now, 0
        self._last_round, self._last_end = round_, now

    def total(self) -> float | None:
        """Seconds for all rounds, while the first round is under way; None as long as it is unknown."""
        if self._began is None or self._question is None or self._last_end is not None:
            return None
        if self._done < min(ENOUGH, self._asked) or not self._asked:
            return None
        before, answered = self._question - self._began, self._clock() - self._question
        return self.rounds * (before + answered * self._asked / self._done)

    def left(self) -> float | None:
        """Seconds until the last round ends; None as long as it is unknown."""
        if self._began is None:
            return None
        now = self._clock()
        if self._last_end is None or self._last_round == self._first_round:
            total = self.total()
            return None if total is None else max(total - (now - self._began), 0.0)
        rounds_done = self._last_round - self._first_round
        per_round = (self._last_end - self._began) / rounds_done
        return max(per_round * (self.rounds - self._last_round) - (now - self._last_end), 0.0)
