# SPDX-License-Identifier: Apache-2.0
"""The attacks' arithmetic against literal versions; bounds that noise keeps and its absence breaks."""

import math

import numpy as np
import pytest

from feddag.core.seeds import Seed
from feddag.privacy.attacks import (
    Curve,
    auc,
    best_epsilon_bound,
    count_advantage,
    energies,
    epsilon_bound,
    largest_advantage,
    verdict,
)
from feddag.privacy.counts import noisy_counts
from feddag.privacy.gram import noisy_vectors


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    generator = Seed(1).numpy()
    members, others = generator.integers(0, 6, 20).astype(float), generator.integers(0, 6, 30).astype(float)
    literal = np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others])
    assert auc(members, others) == pytest.approx(literal)
    assert auc(np.ones(3), np.zeros(3)) == 1.0


def test_energy_is_the_share_of_length_in_the_span() -> None:
    found = energies(
        np.array([[1.0, 0, 0], [1.0, 1.0, 0]]), np.array([[3.0, 4.0, 0], [0, 0, 2.0], [1, 0, 1]])
    )
    assert found == pytest.approx([1.0, 0.0, 0.5])


def test_bounds_by_hand() -> None:
    assert epsilon_bound(0, 100, 0, 100, 0.0) == 0
    assert epsilon_bound(50, 100, 50, 100, 0.0) == 0  # no better than guessing
    # 100 of 100 against 0 of 100: Clopper-Pearson gives 0.0250^(1/100) and its complement.
    low = 0.025**0.01
    assert epsilon_bound(100, 100, 0, 100, 0.0) == pytest.approx(math.log(low / (1 - low)), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_planted_samples_never_prove_more_than_the_epsilon_of_the_noise(seed: int) -> None:
    generator = (Seed(seed) / "canaries").numpy()
    scores = generator.normal(size=(2, 800))  # the Gaussian mechanism along the canary, σ = 2: ε = 2
    assert best_epsilon_bound(scores[0] + 1 / 1.9938, scores[1], 1e-5) <= 2.0


def test_without_noise_planted_samples_prove_a_lot() -> None:
    assert best_epsilon_bound(np.ones(800), np.zeros(800), 1e-5) > 4


def test_one_sample_in_a_count_is_seen_as_often_as_epsilon_allows() -> None:
    generator = Seed(2).numpy()
    draws = [
        np.array([int(noisy_counts(np.array([n]), 0.5, generator)[0]) for _ in range(1500)]) for n in (61, 60)
    ]
    found, error = count_advantage(*draws)
    assert found <= largest_advantage(0.5) + 3 * error
    assert count_advantage(np.full(50, 61), np.full(50, 60))[0] == 0.5


def test_noise_hides_who_was_in_a_small_class_and_its_absence_does_not() -> None:
    generator = Seed(3).numpy()
    pool = 2 + generator.normal(size=(2000, 36))
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)

    def attacked(sigma: float) -> float:
        found = []
        for _ in range(120):
            rows = generator.permutation(2000)
            members, others = pool[rows[:5]], pool[rows[5:105]]
            made = noisy_vectors(members, np.zeros(5, int), np.array([0]), np.eye(36), sigma, 1, generator)
            found.append(auc(energies(made.vectors_PD, members), energies(made.vectors_PD, others)))
        return float(np.mean(found))

    assert attacked(0.0) > 0.6
    assert attacked(1.99) < 0.55


def test_a_verdict_is_sure_or_says_that_it_is_not() -> None:
    assert verdict(0.01, 0.003, 0.02) == "within"
    assert verdict(0.025, 0.006, 0.02) == "unclear"  # two standard errors above decide nothing
    assert verdict(0.017, 0.006, 0.02) == "unclear"
    assert verdict(0.025, 0.001, 0.02) == "above"


def test_a_curve_is_as_good_as_its_worst_class_size() -> None:
    curve = Curve(goal=0.55)
    curve.add(5, [0.5] * 900, deviation=0.1)
    assert (curve.at(5), curve.verdict) == ("within", "within")
    assert curve.at(10) == "unclear", "nothing was tried there"
    curve.add(10, [0.5, 0.5], deviation=0.1)
    assert curve.verdict == "unclear", "two trials that agree are not sure, whatever their spread"
    curve.add(20, [0.7] * 900, deviation=0.1)
    assert curve.verdict == "above"
    assert curve.worst == (20, pytest.approx(0.7), pytest.approx(0.1 / 30))
