# SPDX-License-Identifier: Apache-2.0
"""Noisy principal vectors: sensitivity, the size of the noise, the public basis, the known error."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from feddag.core.seeds import Seed
from feddag.privacy.gram import (
    NoisyVectors,
    cosines,
    expected_error,
    noisy_gram,
    noisy_vectors,
    public_basis,
    unit_rows,
)


def svec(matrix_dd: np.ndarray) -> np.ndarray:
    """The diagonal, and √2 times the entries above it: its norm is that of the whole matrix."""
    d = len(matrix_dd)
    return np.concatenate([np.diag(matrix_dd), math.sqrt(2) * matrix_dd[np.triu_indices(d, 1)]])


@settings(max_examples=80, deadline=None)
@given(
    arrays(np.float64, (5, 4), elements=st.floats(-1e6, 1e6)),
    arrays(np.float64, (1, 4), elements=st.floats(-1e6, 1e6)),
)
def test_one_sample_moves_the_gram_matrix_by_at_most_one(x_ND: np.ndarray, extra_1D: np.ndarray) -> None:
    without, with_it = unit_rows(x_ND), unit_rows(np.concatenate([x_ND, extra_1D]))
    moved = svec(with_it.T @ with_it) - svec(without.T @ without)
    assert np.linalg.norm(moved) <= 1 + 1e-9


def test_noise_on_svec_has_the_standard_deviation_it_should_have() -> None:
    generator = Seed(1).numpy()
    draws = np.stack([svec(noisy_gram(np.zeros((0, 5)), 2.0, generator)) for _ in range(4000)])
    assert np.allclose(draws.std(axis=0), 2.0, atol=0.12)
    assert np.allclose(draws.mean(axis=0), 0.0, atol=0.15)


def test_the_noisy_matrix_is_symmetric() -> None:
    gram = noisy_gram(np.eye(4), 1.0, Seed(2).numpy())
    assert np.array_equal(gram, gram.T)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 4, 3), (50,), (5,), (9, 128)])
def test_the_public_basis_is_orthonormal_and_the_same_for_everybody(shape: tuple[int, ...]) -> None:
    basis = public_basis(shape, 36)
    assert basis.shape == (min(36, math.prod(shape)), math.prod(shape))
    assert np.allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-9)
    public_basis.cache_clear()
    assert np.array_equal(basis, public_basis(shape, 36))


def test_grey_images_use_the_six_lowest_frequencies_in_both_directions() -> None:
    wanted = np.einsum("uh,vw->uvhw", cosines(28)[:6], cosines(28)[:6]).reshape(36, 784)
    basis = public_basis((1, 28, 28), 36)
    assert np.allclose(basis.T @ basis, wanted.T @ wanted, atol=1e-9)


def samples(n: int, d: int = 36) -> np.ndarray:
    """Samples with one strong direction, about as image classes have."""
    generator = Seed(7).numpy()
    return 3 * np.ones(d) / math.sqrt(d) + 0.25 * generator.normal(size=(n, d))


@settings(max_examples=80, deadline=None)
@given(
    arrays(np.float64, (5, 4), elements=st.floats(-1e6, 1e6)),
    arrays(np.float64, (1, 4), elements=st.floats(-1e6, 1e6)),
)
def test_one_sample_moves_the_sum_by_at_most_one(x_ND: np.ndarray, extra_1D: np.ndarray) -> None:
    moved = unit_rows(np.concatenate([x_ND, extra_1D])).sum(axis=0) - unit_rows(x_ND).sum(axis=0)
    assert np.linalg.norm(moved) <= 1 + 1e-9


def directions(x: np.ndarray, sigma: float, number: int = 1, sums: bool = True) -> list[NoisyVectors]:
    y, d = np.zeros(len(x), int), x.shape[1]
    return [
        noisy_vectors(x, y, np.array([0]), np.eye(d), sigma, 1, (Seed(4) / k).numpy(), sums)
        for k in range(number)
    ]


def test_without_noise_the_direction_is_that_of_the_sum() -> None:
    x = samples(60)
    (found,) = directions(x, 0.0)
    total = unit_rows(x).sum(axis=0)
    np.testing.assert_allclose(found.vectors_PD[0], total / np.linalg.norm(total), atol=1e-6)
    assert found.errors_P[0] == 0


def test_the_known_error_of_a_direction_is_what_the_noise_does() -> None:
    x = samples(60)
    (exact,) = directions(x, 0.0)
    drawn = directions(x, 2.0, 300)
    turned = [1 - float(found.vectors_PD[0] @ exact.vectors_PD[0]) ** 2 for found in drawn]
    told = [float(found.errors_P[0]) for found in drawn]
    assert np.mean(turned) == pytest.approx(np.mean(told), rel=0.1)


def test_where_samples_point_to_all_sides_the_sum_survives_noise_better_than_the_first_vector() -> None:
    generator = Seed(9).numpy()
    x = 0.35 * np.eye(16)[0] + generator.normal(size=(100, 16)) / 4  # hardly one direction

    def error(sums: bool) -> float:
        (exact,) = directions(x, 0.0, sums=sums)
        drawn = directions(x, 3.5, 60, sums)
        return float(np.mean([1 - float(f.vectors_PD[0] @ exact.vectors_PD[0]) ** 2 for f in drawn]))

    assert error(sums=True) < error(sums=False) / 2


def test_without_noise_the_vector_is_the_exact_one() -> None:
    x = samples(60)
    found = noisy_vectors(x, np.zeros(60, int), np.array([0]), np.eye(36), 0.0, 1, Seed(0).numpy())
    exact = np.linalg.svd(unit_rows(x))[2][0]
    assert abs(abs(float(found.vectors_PD[0] @ exact)) - 1) < 1e-5
    assert found.errors_P[0] == 0


def test_the_known_error_is_the_error_that_is_seen() -> None:
    x, y, sigma = samples(100), np.zeros(100, int), 2.0
    exact = np.linalg.svd(unit_rows(x))[2][0]
    generator = Seed(8).numpy()
    found = [noisy_vectors(x, y, np.array([0]), np.eye(36), sigma, 1, generator) for _ in range(150)]
    seen = np.mean([1 - float(f.vectors_PD[0] @ exact) ** 2 for f in found])
    told = np.mean([float(f.errors_P[0]) for f in found])
    assert 0.6 * seen < told < 1.8 * seen
    assert told < 0.05


def test_a_class_without_samples_is_known_to_be_noise() -> None:
    found = noisy_vectors(
        np.zeros((0, 36)), np.zeros(0, int), np.array([2]), np.eye(36), 2.0, 1, Seed(0).numpy()
    )
    assert found.classes_P.tolist() == [2]
    assert found.errors_P[0] > 0.5
    assert expected_error(2.0, 36, 80) == pytest.approx(4 * 35 / (2 * 6400))


@pytest.mark.parametrize("value", [5e-324, 1e-310, 1e-200, 0.0])
def test_rows_too_short_to_be_scaled_are_zeros_and_never_longer_than_one(value: float) -> None:
    assert not unit_rows(np.full((1, 4), value)).any()
