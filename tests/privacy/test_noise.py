# SPDX-License-Identifier: Apache-2.0
"""The samplers against exact probabilities, and secrets that nobody can derive from the question's seed."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from feddag.core.seeds import Seed
from feddag.privacy.counts import noisy_counts
from feddag.privacy.noise import Noise, _bernoulli_exp, discrete_laplace

DRAWS = 6000


def chi_square(observed: dict[int, int], expected: dict[int, float]) -> float:
    """The probability of a worse fit if the draws follow `expected`; rare values are counted together."""
    total = sum(observed.values())
    kept = [k for k, p in expected.items() if p * total >= 10]
    seen = [observed.get(k, 0) for k in kept] + [total - sum(observed.get(k, 0) for k in kept)]
    wanted = [expected[k] * total for k in kept]
    wanted.append(total - sum(wanted))
    statistic = sum((o - e) ** 2 / e for o, e in zip(seen, wanted, strict=True) if e > 1e-9)
    return float(chi2.sf(statistic, len(kept)))


@pytest.mark.parametrize("epsilon", ["0.25", "0.5", "1", "2.5"])
def test_discrete_laplace_has_the_exact_probabilities(epsilon: str) -> None:
    exact = Fraction(epsilon)
    generator = (Seed(3) / "laplace" / epsilon).numpy()
    draws = Counter(discrete_laplace(exact, generator) for _ in range(DRAWS))
    ratio = math.exp(-float(exact))
    expected = {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-60, 61)}
    assert chi_square(draws, expected) > 0.01


def test_the_check_of_the_sampler_finds_a_wrong_one() -> None:
    generator = (Seed(3) / "wrong").numpy()
    draws = Counter(int(generator.laplace(scale=2.0)) for _ in range(DRAWS))  # 0 comes too often
    ratio = math.exp(-0.5)
    expected = {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-60, 61)}
    assert chi_square(draws, expected) < 0.01


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1)])
def test_coins_fall_with_probability_exp_of_minus_gamma(gamma: Fraction) -> None:
    generator = (Seed(4) / str(gamma)).numpy()
    share = np.mean([_bernoulli_exp(gamma, generator) for _ in range(DRAWS)])
    p = math.exp(-gamma)
    assert abs(share - p) <= 4 * math.sqrt(p * (1 - p) / DRAWS) + 1e-12


def test_absent_classes_stay_absent_and_large_ones_present() -> None:
    generator = Seed(5).numpy()
    noisy = np.stack([noisy_counts(np.array([0, 0, 0, 200]), 0.5, generator) for _ in range(300)])
    assert (noisy[:, :3] > 0).mean() < 0.01
    assert (noisy[:, 3] > 0).all()
    assert noisy.dtype == np.int64
    assert noisy.min() >= 0


def test_a_simulation_replays_its_noise_and_a_deployment_never_does() -> None:
    seeded, fresh = Noise(Seed(1) / "a"), Noise(None)
    assert seeded.generator("x").normal() == seeded.generator("x").normal()
    assert seeded.secret("x") == seeded.secret("x") != seeded.secret("y")
    assert fresh.generator("x").normal() != fresh.generator("x").normal()
    assert fresh.secret("x") != fresh.secret("x")
    assert len(fresh.secret("x")) == len(seeded.secret("x")) == 32
