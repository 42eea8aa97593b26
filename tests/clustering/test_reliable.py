# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering import angles, reliable
from feddag.clustering.arrays import checked_counts
from feddag.clustering.pipeline import ClusteringOptions, cluster_signatures
from feddag.clustering.similarity import data_angles, data_angles_and_noise, data_angles_between
from feddag.clustering.subspaces import Subspaces, class_subspaces
from tests.clustering import literal
from tests.clustering.toys import toy_items


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_angles_equal_the_loop_over_pairs_and_classes(seed, n):
    items, counts = toy_items(np.random.default_rng(seed), n)
    fast = data_angles(items, counts, weighting="reliability")
    np.testing.assert_allclose(fast, literal.reliable_matrix(items, counts), atol=0.05)
    np.testing.assert_array_equal(fast, fast.T)


def test_many_blocks_give_the_same_as_one(monkeypatch):
    items, counts = toy_items(np.random.default_rng(1), 9)
    whole = data_angles(items, counts, weighting="reliability")
    monkeypatch.setattr(angles, "BLOCK_ITEMS", 2)
    np.testing.assert_allclose(data_angles(items, counts, weighting="reliability"), whole, atol=1e-3)


def test_old_items_measured_as_newcomers_are_where_they_were():
    items, counts = toy_items(np.random.default_rng(2), 8)
    whole, noise = data_angles_and_noise(items, counts, kind="pairs")
    again = data_angles_between(
        items, counts, items, counts, weighting="reliability", noise=noise, new_levels_MC=noise.levels_NC
    )
    apart = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(again[apart], whole[apart], atol=1e-3)


def test_levels_of_newcomers_are_those_of_their_nearest_companions():
    clients = sampled(np.random.default_rng(3), [400] * 30)
    items, counts = clients
    _, noise = data_angles_and_noise(items[:25], counts[:25], kind="subspace")
    new = reliable.newcomer_levels(
        items[25:], checked_counts(counts[25:]), items[:25], checked_counts(counts[:25]), kind="subspace"
    )
    assert np.median(new) == pytest.approx(np.median(noise.levels_NC), rel=0.3)


def test_newcomers_need_the_noise_of_the_old_ones():
    items, counts = toy_items(np.random.default_rng(4), 4)
    with pytest.raises(ValueError, match="needs the noise of the old items"):
        data_angles_between(items[:1], counts[:1], items[1:], counts[1:], weighting="reliability")


def sampled(generator, sizes, offset=0.0):
    """Clients with so many samples a class of one distribution; every second one shifted by `offset`."""
    centres = generator.normal(size=(2, 30)) * 2
    shift = generator.normal(size=30)
    shift /= np.linalg.norm(shift)
    items, counts = [], []
    for i, size in enumerate(sizes):
        y = np.repeat([0, 1], size)
        x = centres[y] + generator.normal(size=(len(y), 30)) + (i % 2) * offset * shift
        items.append(class_subspaces(x, y, 2, p=1))
        counts.append([size, size])
    return items, np.array(counts)


def test_small_classes_of_the_same_kind_are_no_farther_apart_than_large_ones():
    items, counts = sampled(np.random.default_rng(5), [20] * 15 + [500] * 15)
    angles_NN = data_angles(items, counts, weighting="reliability")
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
    result = cluster_signatures(items, counts, options=ClusteringOptions(views="data"))
    assert result.count == 2
    assert set(result.labels_N[::2]) == {0}
    items, counts = sampled(generator, sizes)
    assert cluster_signatures(items, counts, options=ClusteringOptions(views="data")).count == 1


def test_a_single_sample_of_a_class_does_not_decide():
    shared = np.eye(4, dtype=np.float32)
    big = Subspaces(shared[[0, 1]], np.array([0, 1]))
    odd = Subspaces(shared[[0, 2]], np.array([0, 1]))  # its one sample of class 1 looks different
    counts = [[500, 500]] * 5 + [[500, 1]]
    assert data_angles([big] * 5 + [odd], counts, weighting="reliability")[0, 5] < 1
    assert data_angles([big] * 5 + [odd], counts, weighting="frequency")[0, 5] > 30


def test_clients_that_all_differ_are_not_taken_for_noise():
    unit = np.eye(6, dtype=np.float32)
    items = [Subspaces(unit[[i]], np.array([0])) for i in range(6)]
    angles_NN = data_angles(items, [[500]] * 6, weighting="reliability")
    assert angles_NN[np.triu_indices(6, 1)].min() > 85


def test_lacking_a_class_of_few_samples_counts_little_and_disjoint_classes_count_in_full():
    unit = np.eye(4, dtype=np.float32)
    both = Subspaces(unit[[0, 1]], np.array([0, 1]))
    first, second = Subspaces(unit[[0]], np.array([0])), Subspaces(unit[[1]], np.array([1]))
    few = data_angles([both, first], [[95, 5], [100, 0]], weighting="reliability")[0, 1]
    many = data_angles([both, first], [[5, 95], [100, 0]], weighting="reliability")[0, 1]
    assert few < 2
    assert 20 < many < 90
    assert data_angles([first, second], [[100, 0], [0, 100]], weighting="reliability")[0, 1] == 90


def test_the_share_of_samples_in_classes_the_other_lacks():
    u = reliable.unshared(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(u, [[0.125, 1.0], [1.0, 0.0]])
