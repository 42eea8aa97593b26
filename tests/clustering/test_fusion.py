# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.fusion import (
    entropy_and_slope,
    entropy_weights,
    fuse,
    mlp_weights,
    structure_weight,
)
from feddag.clustering.options import ClusteringOptions, EntropyOptions
from tests.clustering import literal
from tests.clustering.toys import blobs


def two_views(seed, n):
    generator = np.random.default_rng(seed)
    views = []
    for _ in range(2):
        m = np.triu(generator.random((n, n)), 1)
        views.append(m + m.T)
    return views[0], views[1], generator.random(n)


rules = st.sampled_from(["symmetric", "row"])
entropies = st.builds(
    EntropyOptions,
    sign=st.sampled_from([1, -1]),
    temperature=st.sampled_from([1.0, 0.1]),
    diagonal=st.booleans(),
)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), rules, entropies)
def test_fused_matrix_and_entropy_equal_the_loops(seed, n, rule, kind):
    data, gradient, weights = two_views(seed, n)
    fused = fuse(data, gradient, weights, rule)
    np.testing.assert_allclose(fused, literal.fused(data, gradient, weights, rule), atol=1e-12)
    loss, _ = entropy_and_slope(data, gradient, weights, rule, kind)
    assert loss == pytest.approx(literal.entropy(fused, kind.sign, kind.temperature, kind.diagonal), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), rules, entropies)
def test_the_analytic_slope_equals_finite_differences(seed, n, rule, kind):
    data, gradient, weights = two_views(seed, n)
    _, slope = entropy_and_slope(data, gradient, weights, rule, kind)
    for i in range(n):
        moved = [weights.copy(), weights.copy()]
        moved[0][i] += 1e-5
        moved[1][i] -= 1e-5
        losses = [
            literal.entropy(
                literal.fused(data, gradient, w, rule), kind.sign, kind.temperature, kind.diagonal
            )
            for w in moved
        ]
        assert slope[i] == pytest.approx((losses[0] - losses[1]) / 2e-5, abs=1e-5)


def test_learned_weights_lower_the_entropy_and_stay_in_bounds():
    data, gradient, _ = two_views(1, 30)
    kind = EntropyOptions()
    weights = entropy_weights(data, gradient)
    assert weights.min() >= 0
    assert weights.max() <= 1
    before = entropy_and_slope(data, gradient, np.full(30, 0.5), "symmetric", kind)[0]
    assert entropy_and_slope(data, gradient, weights, "symmetric", kind)[0] < before


def test_with_the_row_rule_the_last_weight_is_never_used():
    data, gradient, _ = two_views(2, 8)
    _, slope = entropy_and_slope(data, gradient, np.full(8, 0.5), "row", EntropyOptions())
    assert slope[-1] == 0
    _, slope = entropy_and_slope(data, gradient, np.full(8, 0.5), "symmetric", EntropyOptions())
    assert slope[-1] != 0


def test_symmetric_weights_follow_a_permutation_of_the_items():
    data, gradient, _ = two_views(3, 12)
    order = np.random.default_rng(0).permutation(12)
    weights = entropy_weights(data, gradient)
    permuted = entropy_weights(data[np.ix_(order, order)], gradient[np.ix_(order, order)])
    np.testing.assert_allclose(permuted, weights[order], atol=1e-3)


def test_equal_views_leave_the_weights_alone():
    data, _, _ = two_views(5, 6)
    np.testing.assert_array_equal(entropy_weights(data, data), np.full(6, 0.5))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_items_have_weights(n):
    zero = np.zeros((n, n))
    assert entropy_weights(zero, zero).shape == (n,)
    assert mlp_weights(zero, zero, torch.Generator().manual_seed(0)).shape == (n,)
    assert fuse(zero, zero, np.full(n, 0.5)).shape == (n, n)


def test_the_gate_is_reproducible_and_lowers_the_entropy():
    data, gradient, _ = two_views(6, 20)
    first, second = (mlp_weights(data, gradient, torch.Generator().manual_seed(1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    untrained = mlp_weights(data, gradient, torch.Generator().manual_seed(1), steps=0)
    losses = [entropy_and_slope(data, gradient, w, "row", EntropyOptions())[0] for w in (untrained, first)]
    assert losses[1] < losses[0]


def test_a_gate_that_would_not_fit_is_refused():
    zero = np.zeros((3000, 3000), dtype=np.float32)
    with pytest.raises(ValueError, match="use direct weights"):
        mlp_weights(zero, zero, torch.Generator())


def test_the_view_with_structure_is_chosen_over_noise():
    generator = np.random.default_rng(7)
    clear, _ = blobs(generator, [10, 10, 10])
    noise = np.triu(generator.random((30, 30)), 1)
    noise = noise + noise.T

    options = ClusteringOptions()
    assert structure_weight(clear, noise, options) == 0
    assert structure_weight(noise, clear, options) == 1
    assert structure_weight(clear, clear, options) == 0.5
