# SPDX-License-Identifier: Apache-2.0
"""The attacks of an audit, as functions of scores: a high score means "this sample was there"."""

import math
from typing import Literal

import numpy as np

ALPHA = 0.05  # bounds hold with 95% confidence


def auc(members: np.ndarray, others: np.ndarray) -> float:
    """Probability that a member scores higher than a non-member; ties count half. 0.5 is guessing."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([members, others]))
    n, m = len(members), len(others)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def energies(vectors_PD: np.ndarray, rows_ND: np.ndarray) -> np.ndarray:
    """Share of each row's squared length that lies in the span of the vectors."""
    basis_DP, _ = np.linalg.qr(np.asarray(vectors_PD, dtype=np.float64).T)
    rows_ND = np.asarray(rows_ND, dtype=np.float64)
    lengths_N = np.maximum((rows_ND**2).sum(axis=1), 1e-12)
    return ((rows_ND @ basis_DP) ** 2).sum(axis=1) / lengths_N


def epsilon_bound(hits: int, canaries: int, false_hits: int, controls: int, delta: float) -> float:
    """The ε that an attack proves with 95% confidence: TPR ≤ e^ε FPR + δ, with Clopper-Pearson bounds."""
    from scipy.stats import beta

    low = float(beta.ppf(ALPHA / 2, hits, canaries - hits + 1)) if hits else 0.0
    high = (
        float(beta.ppf(1 - ALPHA / 2, false_hits + 1, controls - false_hits))
        if false_hits < controls
        else 1.0
    )
    return max(0.0, math.log((low - delta) / high)) if low > delta and high > 0 else 0.0


def best_epsilon_bound(canaries: np.ndarray, controls: np.ndarray, delta: float) -> float:
    """The largest bound over thresholds, chosen on one half of the trials and proven on the other."""
    choose, prove = slice(0, None, 2), slice(1, None, 2)
    thresholds = np.quantile(controls[choose], [0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1.0])

    def bound(half: slice, threshold: float) -> float:
        seen, unseen = canaries[half], controls[half]
        return epsilon_bound(
            int((seen > threshold).sum()), len(seen), int((unseen > threshold).sum()), len(unseen), delta
        )

    best = max(thresholds, key=lambda threshold: bound(choose, threshold))
    return bound(prove, best)


def count_advantage(with_sample: np.ndarray, without: np.ndarray) -> tuple[float, float]:
    """How far the best guess "is the sample there?" from one count is above a coin, and its error.

    The guess is the likelihood ratio's: it is chosen on one half of the draws and scored on the other.
    """
    values = np.unique(np.concatenate([with_sample, without]))
    said = {v: (with_sample[::2] == v).sum() > (without[::2] == v).sum() for v in values}
    hits = np.mean([said[v] for v in with_sample[1::2]])
    false_hits = np.mean([said[v] for v in without[1::2]])
    return float((hits - false_hits) / 2), 0.5 / math.sqrt(len(with_sample))


def largest_advantage(epsilon: float) -> float:
    """The largest advantage over a coin that an ε-private release allows."""
    return math.exp(epsilon) / (1 + math.exp(epsilon)) - 0.5


# -- how sure an audit is ------------------------------------------------------------------------------------

Verdict = Literal["within", "unclear", "above"]
SURE = 2.6  # standard errors: 99% sure
WORDS: dict[Verdict, str] = {
    "within": "within the goal",
    "unclear": "not distinguishable from the goal with so many trials",
    "above": "above the goal",
}


def verdict(value: float, error: float, goal: float) -> Verdict:
    """Whether a mean with this standard error lies surely within a goal, surely above it, or neither."""
    if value + SURE * error <= goal:
        return "within"
    return "above" if value - SURE * error > goal else "unclear"


class Curve:
    """How well an attack does at every class size, against its goal."""

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self.points: dict[int, tuple[float, float]] = {}  # class size → mean, standard error

    def add(self, size: int, values: list[float], deviation: float) -> None:
        """The trials of one class size; `deviation`: that of one value when the attack only guesses.

        A few trials can agree by chance, so a value never counts as less uncertain than a guess.
        """
        if values:
            spread = max(float(np.std(values)), deviation)
            self.points[size] = float(np.mean(values)), spread / math.sqrt(len(values))

    def at(self, size: int) -> Verdict:
        """The verdict at one class size; without trials it is unclear."""
        return verdict(*self.points[size], self.goal) if size in self.points else "unclear"

    @property
    def verdict(self) -> Verdict:
        """Above the goal if it is so at any size, within it if it is so at all sizes."""
        found = {self.at(size) for size in self.points}
        return next((v for v in ("above", "unclear") if v in found), "within")

    @property
    def worst(self) -> tuple[int, float, float]:
        """The class size at which the attack does best, how well, and the standard error."""
        size = max(self.points, key=lambda n: self.points[n][0])
        return size, *self.points[size]
