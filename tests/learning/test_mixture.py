# SPDX-License-Identifier: Apache-2.0
"""Mixtures of clusters' models: the weights against a literal oracle, and what odd clients answer."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from feddag.core.deployment import Deployment
from feddag.learning.mixture import STEPS, Explained, cluster_weights, likeliest


def slowly(log_likelihood: list[list[float]], own: float) -> list[float]:
    """Expectation and maximisation, sample by sample."""
    n, k = len(log_likelihood), len(log_likelihood[0])
    weights = [1 / k] * k
    for _ in range(STEPS):
        total = [own] + [0.0] * (k - 1)
        for row in log_likelihood:
            joint = [w * math.exp(value) for w, value in zip(weights, row, strict=True)]
            for model, value in enumerate(joint):
                total[model] += value / sum(joint)
        weights = [value / (n + own) for value in total]
    return weights


@given(arrays(np.float64, (7, 3), elements=st.floats(-9, 0)), st.floats(0, 5))
def test_weights_are_those_of_expectation_and_maximisation(fit_NK: np.ndarray, own: float) -> None:
    assert likeliest(fit_NK, own) == pytest.approx(slowly(fit_NK.tolist(), own), abs=1e-9)


@given(arrays(np.float64, (6, 3), elements=st.floats(allow_nan=True, allow_infinity=True)), st.floats(0, 5))
def test_weights_are_shares_whatever_the_models_say(fit_NK: np.ndarray, own: float) -> None:
    weights_K = likeliest(fit_NK, own)
    assert np.isfinite(weights_K).all()
    assert (weights_K >= 0).all()
    assert weights_K.sum() == pytest.approx(1)


def test_the_likelihood_never_falls_below_that_of_the_own_model_alone() -> None:
    fit_NK = np.log(np.random.default_rng(1).random((40, 4)))
    mixed = np.log(np.exp(fit_NK) @ likeliest(fit_NK, own=0)).sum()
    assert mixed >= fit_NK[:, 0].sum()


def test_without_validation_samples_the_own_model_is_used() -> None:
    assert likeliest(np.empty((0, 3)), 0.5).tolist() == [1, 0, 0]


def test_a_model_that_explains_every_sample_better_takes_nearly_all_of_the_weight() -> None:
    fit_NK = np.log(np.tile([0.1, 0.9], (50, 1)))
    assert likeliest(fit_NK, 0.5)[1] > 0.95


def explained(*weights: float, samples: int) -> Explained:
    return Explained(weights=np.array(weights), samples=samples)


def test_members_count_by_their_samples_and_small_weights_are_dropped() -> None:
    heard = [explained(0.5, 0.5, 0, samples=3), explained(1, 0, 0, samples=1), explained(0, 0, 1, samples=0)]
    assert cluster_weights(heard, least=0.05).tolist() == [0.625, 0.375, 0]
    few = [explained(0.96, 0.04, samples=5)]
    assert cluster_weights(few, least=0.05).tolist() == [1, 0]


def test_the_own_model_stays_even_with_little_weight() -> None:
    weights = cluster_weights([explained(0.01, 0.99, samples=5)], least=0.05)
    assert weights.tolist() == pytest.approx([0.01, 0.99])
    assert cluster_weights([explained(0, 0.02, samples=5)], least=0.05).tolist() == [1, 0]
    assert replace(Deployment(models=()), weights=tuple(weights)).weights[0] > 0
