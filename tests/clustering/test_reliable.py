# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering import angles, evidence
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.proximity import measure
from feddag.clustering.subspaces import Subspaces, class_subspaces
from tests.clustering import literal
from tests.clustering.toys import toy_items


def fitted(items, counts, angles="pairs", weighting="reliability"):
    """The fitted strategy and the data angles."""
    options = ClusteringOptions(angles=angles, class_weighting=weighting)
    frame, views = measure(Items.of(items, counts), options)
    return frame.data_angles, views.data


def data_angles(items, counts, weighting="reliability"):
    """Data angles alone."""
    return fitted(items, counts, weighting=weighting)[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_angles_equal_the_loop_over_pairs_and_classes(seed, n):
    items, counts = toy_items(np.random.default_rng(seed), n)
    fast = data_angles(items, counts)
    np.testing.assert_allclose(fast, literal.reliable_matrix(items, counts), atol=0.05)
    np.testing.assert_array_equal(fast, fast.T)


def test_many_blocks_give_the_same_as_one(monkeypatch):
    items, counts = toy_items(np.random.default_rng(1), 9)
    whole = data_angles(items, counts)
    monkeypatch.setattr(angles, "BLOCK_ITEMS", 2)
    np.testing.assert_allclose(data_angles(items, counts), whole, atol=1e-3)


def test_old_items_measured_as_newcomers_are_where_they_were():
    items, counts = toy_items(np.random.default_rng(2), 8)
    strategy, whole = fitted(items, counts)
    together = Items.of(items, counts)
    again = strategy.between(together, together, strategy)
    apart = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(again[apart], whole[apart], atol=1e-3)


def test_levels_of_newcomers_are_those_of_their_nearest_neighbours():
    items, counts = sampled(np.random.default_rng(3), [400] * 30)
    strategy, _ = fitted(items[:25], counts[:25], angles="subspace")
    old, new = Items.of(items[:25], counts[:25]), Items.of(items[25:], counts[25:])
    levels = strategy.newcomers(new, old)
    assert np.median(levels.levels_NC) == pytest.approx(np.median(strategy.levels_NC), rel=0.3)
    # without their levels, `between` finds them by itself
    np.testing.assert_array_equal(strategy.between(new, old), strategy.between(new, old, levels))
    assert strategy.joined(levels).levels_NC.shape == (30, 2)


def sampled(generator, sizes, offset=0.0):
    """Clients with `sizes` samples per class of one distribution; every second one is shifted by `offset`."""
    centres = generator.normal(size=(2, 30)) * 2
    shift = generator.normal(size=30)
    shift /= np.linalg.norm(shift)
    items, counts = [], []
    for i, size in enumerate(sizes):
        y = np.repeat([0, 1], size)
        x = centres[y] + generator.normal(size=(len(y), 30)) + (i % 2) * offset * shift
        items.append(class_subspaces(x, y, 2, vectors=1))
        counts.append([size, size])
    return items, np.array(counts)


def test_small_classes_of_the_same_kind_are_no_farther_apart_than_large_ones():
    items, counts = sampled(np.random.default_rng(5), [20] * 15 + [500] * 15)
    angles_NN = data_angles(items, counts)
    naive_NN = data_angles(items, counts, weighting="frequency")
    upper = np.triu_indices(15, 1)
    small, large = angles_NN[:15, :15][upper], angles_NN[15:, 15:][upper]
    assert abs(np.median(small) - np.median(large)) < 2
    assert np.median(naive_NN[:15, :15][upper]) - np.median(naive_NN[15:, 15:][upper]) > 2


@pytest.mark.parametrize("seed", range(5))
def test_a_small_difference_is_found_among_clients_of_very_different_sizes(seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(15, 400, size=40)
    items, counts = sampled(generator, sizes, offset=2.5)
    result = cluster_signatures(Items.of(items, counts), ClusteringOptions())
    assert result.count == 2
    assert set(result.labels_N[::2]) == {0}
    items, counts = sampled(generator, sizes)
    assert cluster_signatures(Items.of(items, counts), ClusteringOptions()).count == 1


def test_a_single_sample_of_a_class_does_not_decide():
    shared = np.eye(4, dtype=np.float32)
    big = Subspaces(shared[[0, 1]], np.array([0, 1]))
    odd = Subspaces(shared[[0, 2]], np.array([0, 1]))  # its one sample of class 1 looks different
    counts = [[500, 500]] * 5 + [[500, 1]]
    assert data_angles([big] * 5 + [odd], counts)[0, 5] < 1
    assert data_angles([big] * 5 + [odd], counts, weighting="frequency")[0, 5] > 30


def test_clients_that_all_differ_are_not_taken_for_noise():
    unit = np.eye(6, dtype=np.float32)
    items = [Subspaces(unit[[i]], np.array([0])) for i in range(6)]
    angles_NN = data_angles(items, [[500]] * 6)
    assert angles_NN[np.triu_indices(6, 1)].min() > 85


def test_lacking_a_class_of_few_samples_counts_little_and_disjoint_classes_count_in_full():
    unit = np.eye(4, dtype=np.float32)
    both = Subspaces(unit[[0, 1]], np.array([0, 1]))
    first, second = Subspaces(unit[[0]], np.array([0])), Subspaces(unit[[1]], np.array([1]))
    few = data_angles([both, first], [[95, 5], [100, 0]])[0, 1]
    many = data_angles([both, first], [[5, 95], [100, 0]])[0, 1]
    assert few < 2
    assert 20 < many < 90
    assert data_angles([first, second], [[100, 0], [0, 100]])[0, 1] == 90


def test_the_share_of_samples_in_classes_the_other_lacks():
    u = evidence.unshared(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(u, [[0.125, 1.0], [1.0, 0.0]])
