# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.subspaces import class_subspaces, principal_vectors, vectors_of_class


def spread_samples(generator, n, width, scale=0.8):
    """Samples with a falling spectrum, like images."""
    return generator.normal(size=(n, width)) * scale ** np.arange(width) + 0.5


def degrees_apart(ours, theirs):
    return np.degrees(np.arccos(np.clip(np.abs((ours * theirs).sum(axis=1)), 0, 1)))


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (60, 300), (300, 60), (250, 200), (130, 400)])
def test_principal_vectors_equal_those_of_a_full_svd(shape):
    x = spread_samples(np.random.default_rng(1), *shape)
    full = np.linalg.svd(x, full_matrices=False)[2][:3]
    assert degrees_apart(principal_vectors(x, 3), full).max() < 1e-4


def test_the_randomised_variant_agrees_with_the_exact_one():
    x = spread_samples(np.random.default_rng(2), 200, 300, scale=0.9)
    exact = principal_vectors(x, 3)
    randomised = principal_vectors(x, 3, randomised_by=np.random.default_rng(0))
    assert degrees_apart(exact, randomised).max() < 0.05


def test_equal_samples_have_one_vector_however_many_are_asked_for():
    for rows in (4, 200):
        x = np.tile(np.arange(1.0, 201.0), (rows, 1))
        vectors = principal_vectors(x, 3)
        assert vectors.shape == (1, 200)
        np.testing.assert_allclose(vectors[0], x[0] / np.linalg.norm(x[0]), atol=1e-12)


def test_a_rank_two_class_gives_two_vectors():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(150, 2)) @ generator.normal(size=(2, 180))
    assert len(principal_vectors(x, 3)) == 2


def test_all_zero_samples_have_no_vector():
    assert len(class_subspaces(np.zeros((5, 7)), np.zeros(5, int), 2).vectors_PD) == 0


def test_one_sample_gives_the_sample_itself():
    x = np.array([[3.0, 4.0], [0.0, 2.0]])
    subspaces = class_subspaces(x, np.array([1, 0]), 3)
    assert subspaces.classes_P.tolist() == [0, 1]
    np.testing.assert_allclose(subspaces.vectors_PD, [[0, 1], [0.6, 0.8]], atol=1e-7)


def test_vectors_do_not_depend_on_the_scale_of_the_samples_even_at_the_ends_of_float_range():
    x = spread_samples(np.random.default_rng(4), 20, 30)
    for scale in (1e-200, 255.0, 1e200):
        np.testing.assert_allclose(principal_vectors(x * scale, 3), principal_vectors(x, 3), atol=1e-9)


def test_a_whole_number_is_a_count_and_below_one_is_a_share_of_the_class():
    assert [vectors_of_class(n, 3) for n in (1, 2, 3, 300)] == [1, 2, 3, 3]
    assert [vectors_of_class(n, 3.0) for n in (1, 2, 3, 300)] == [1, 2, 3, 3]
    assert [vectors_of_class(n, 0.01) for n in (1, 50, 100, 101, 300)] == [1, 1, 1, 2, 3]
    for wrong in (1.5, 0, -1):
        with pytest.raises(ValueError, match="expected a whole number, or a share between 0 and 1"):
            vectors_of_class(10, wrong)


def test_a_class_below_the_privacy_limit_is_withheld_and_named():
    x = spread_samples(np.random.default_rng(5), 30, 10)
    y = np.array([0] * 25 + [1] * 5)
    subspaces = class_subspaces(x, y, 2, vectors=2, min_samples_per_vector=10)
    assert set(subspaces.classes_P) == {0}
    assert subspaces.withheld.tolist() == [1]


def test_subsampling_sees_only_a_part_of_each_class_and_is_reproducible():
    x = spread_samples(np.random.default_rng(6), 100, 20)
    y = np.repeat([0, 1], 50)

    def sample(seed):
        generator = np.random.default_rng(seed)
        return class_subspaces(x, y, 2, svd="subsampled", subsample=10, generator=generator).vectors_PD

    np.testing.assert_array_equal(sample(0), sample(0))
    assert np.abs(sample(0) - sample(1)).max() > 1e-3
    whole = class_subspaces(x, y, 2, svd="subsampled", subsample=1.0, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(whole.vectors_PD, class_subspaces(x, y, 2).vectors_PD)


def test_random_variants_ask_for_a_generator():
    with pytest.raises(ValueError, match="generator"):
        class_subspaces(np.ones((3, 3)), np.zeros(3, int), 1, svd="randomised")


def test_the_same_data_give_the_same_bits():
    x = spread_samples(np.random.default_rng(7), 300, 250)
    np.testing.assert_array_equal(principal_vectors(x, 3), principal_vectors(x.copy(), 3))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1.0, np.nan]], [0], "sample 0"),
        ([[1.0, 2.0]], [2], "from 0 to 1"),
        ([[1.0, 2.0]], [0, 1], "one label per sample"),
        ([["a", "b"]], [0], "real numbers"),
    ],
)
def test_bad_samples_are_refused_in_one_sentence(x, y, message):
    with pytest.raises(ValueError, match=message):
        class_subspaces(np.array(x), np.array(y), 2)


def test_an_item_without_samples_has_no_vectors():
    subspaces = class_subspaces(np.zeros((0, 4)), np.zeros(0, int), 3)
    assert subspaces.vectors_PD.shape == (0, 4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 5), st.booleans())
def test_vectors_are_orthonormal_and_never_more_than_rank_or_p(seed, n, p, repeated):
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 3, size=(n, 6)).astype(float)
    x = np.repeat(x, 2, axis=0) if repeated else x
    subspaces = class_subspaces(x, np.zeros(len(x), int), 1, p)
    vectors = subspaces.vectors_PD.astype(float)
    assert len(vectors) == min(p, np.linalg.matrix_rank(x))
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(vectors)), atol=1e-5)
