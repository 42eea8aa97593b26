# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from feddag.clustering import angles as angles_module
from feddag.clustering import arrays as arrays_module
from feddag.clustering.angles import class_angle_blocks, largest_singular_value
from feddag.clustering.frequency import FrequencyAngles
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.similarity import gradient_angles, gradient_angles_between, min_max, normalised
from feddag.clustering.subspaces import Subspaces
from tests.clustering import literal
from tests.clustering.toys import CLASSES, toy_items

E1, E2 = np.eye(2, dtype=np.float32)


def fitted(items, counts, angles="pairs", **options):
    """Frequency weights and data angles (Eqs. 5 and 6)."""
    chosen = ClusteringOptions(angles=angles, class_weighting="frequency", **options)
    return FrequencyAngles(options=chosen).fit(Items.of(items, counts))


def data_angles(items, counts, angles="pairs", **options):
    """Data angles alone."""
    return fitted(items, counts, angles, **options)[1]


def weights_of(counts, **options):
    """Frequency weights of items that all look alike."""
    counts = np.asarray(counts)
    vectors = np.ones((counts.shape[1], 2), dtype=np.float32)
    items = [Subspaces(vectors[row > 0], np.flatnonzero(row > 0)) for row in counts]
    return fitted(items, counts, **options)[0]


def item(vectors, classes):
    return Subspaces(np.array(vectors, dtype=np.float32).reshape(-1, 2), np.array(classes, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 7), st.booleans())
def test_data_angles_equal_the_triple_loop(seed, n, weigh_absent):
    items, counts = toy_items(np.random.default_rng(seed), n)
    fast = data_angles(items, counts, weigh_absent=weigh_absent)
    np.testing.assert_allclose(fast, literal.data_matrix(items, counts, weigh_absent=weigh_absent), atol=0.02)
    np.testing.assert_array_equal(fast, fast.T)


def test_blocks_do_not_change_the_result(monkeypatch):
    items, counts = toy_items(np.random.default_rng(0), 11)
    sketches = np.random.default_rng(1).normal(size=(11, 5))
    whole, whole_gradient = data_angles(items, counts), gradient_angles(sketches)
    monkeypatch.setattr(angles_module, "BLOCK_ITEMS", 3)
    monkeypatch.setattr(arrays_module.row_blocks, "__defaults__", (4,))
    np.testing.assert_allclose(data_angles(items, counts), whole, atol=1e-4)
    np.testing.assert_allclose(gradient_angles(sketches), whole_gradient, atol=1e-4)


def test_an_absent_class_is_ninety_degrees_away_and_one_absent_in_both_is_not_counted():
    items = [item([E1], [0]), item([E1], [1]), item([E1], [1])]
    counts = np.array([[5, 0, 0, 0], [0, 5, 0, 0], [0, 5, 0, 0]])
    expected = np.array([[0, 45, 45], [45, 0, 0], [45, 0, 0]])
    np.testing.assert_allclose(data_angles(items, counts), expected)


def test_the_sign_of_a_singular_vector_does_not_matter():
    items = [item([E1], [0]), item([-E1], [0])]
    assert data_angles(items, [[5], [5]])[0, 1] == 0


def test_a_shared_class_is_never_farther_than_an_absent_one():
    items = [item([E1], [0]), item([E2], [0]), item([E1], [0])]
    angles = data_angles(items, [[1], [1000], [1000]])
    assert angles[0, 1] == 90


def test_weights_span_one_minus_delta_to_one_plus_delta_and_equal_counts_weigh_one():
    weights = weights_of([[10], [10], [1000]], delta=0.6)
    assert weights.low == 1
    np.testing.assert_allclose(weights.weights(np.array([weights.low, weights.high])), [0.4, 1.6])
    assert weights_of([[7], [7]]).weights(np.array([1.0])) == 1


def test_weights_of_classes_without_samples_stay_finite_because_epsilon_is_e():
    items = [item([E1], [0]), item([E1], [0])]  # noisy counts can be 0 where there are vectors
    assert fitted(items, [[0], [100]])[0].high == pytest.approx(literal.raw_weight(0, 100, np.e))


def test_subspace_angles_do_not_depend_on_the_basis_but_pair_angles_do():
    turned = item([(E1 + E2) / np.sqrt(2), (E1 - E2) / np.sqrt(2)], [0, 0])
    straight = item([E1, E2], [0, 0])
    counts = [[5], [5]]
    assert data_angles([straight, turned], counts, angles="pairs")[0, 1] == pytest.approx(45, abs=1e-3)
    assert data_angles([straight, turned], counts, angles="subspace")[0, 1] == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("most", [3, 5])
def test_subspace_angles_equal_scipys_smallest_angle(most):
    items, _ = toy_items(np.random.default_rng(3), 6, width=8, most=most)
    for block in class_angle_blocks(items, num_classes=CLASSES, angles="subspace"):
        for a, i in enumerate(block.rows_I):
            for b, j in enumerate(block.columns_J):
                ours, theirs = (items[k].vectors_PD[items[k].classes_P == block.label] for k in (i, j))
                expected = np.degrees(subspace_angles(ours.T.astype(float), theirs.T.astype(float)).min())
                assert block.degrees_IJ[a, b] == pytest.approx(expected, abs=0.05)


def test_the_closed_form_of_three_by_three_singular_values_equals_lapack():
    generator = np.random.default_rng(9)
    planes = generator.normal(size=(3, 3, 500))
    planes[:, :, 0] = 0
    planes[:, :, 1] = np.eye(3)
    planes[1:, :, 2] = 0
    planes[:, :, 3] = np.linalg.qr(planes[:, :, 3])[0]
    expected = np.linalg.svd(np.moveaxis(planes, 2, 0), compute_uv=False)[:, 0]
    np.testing.assert_allclose(largest_singular_value(planes), expected, atol=1e-7)


def test_the_closed_form_in_single_precision_is_right_to_a_ten_thousandth_of_a_degree():
    generator = np.random.default_rng(10)
    left, right = (np.linalg.qr(generator.normal(size=(2000, 3, 3)))[0] for _ in range(2))
    values = np.sort(generator.uniform(0.1, 0.99, size=(2000, 3)))
    values[:500, 1] = values[:500, 2]  # two equal largest values: the cubic has a double root
    values[500:1000] = values[500:1000, 2:]
    planes = np.moveaxis((left * values[:, None, :]) @ right, 0, 2).astype(np.float32)
    found = np.degrees(np.arccos(largest_singular_value(planes)))
    np.testing.assert_allclose(found, np.degrees(np.arccos(values[:, 2])), atol=1e-4)


def test_skewed_vectors_span_the_same_as_their_orthonormal_basis():
    generator = np.random.default_rng(11)
    bases = [np.linalg.qr(generator.normal(size=(8, 3)))[0].T for _ in range(4)]
    straight = [Subspaces(b.astype(np.float32), np.zeros(3, dtype=np.int64)) for b in bases]
    doubled = [np.concatenate([generator.normal(size=(3, 3)) @ b, b[:1]]) for b in bases]
    skewed = [Subspaces(d.astype(np.float32), np.zeros(4, dtype=np.int64)) for d in doubled]
    counts = [[5]] * 4
    np.testing.assert_allclose(
        data_angles(skewed, counts, angles="subspace"),
        data_angles(straight, counts, angles="subspace"),
        atol=1e-3,
    )


def test_more_vectors_than_dimensions_span_the_whole_space():
    generator = np.random.default_rng(3)
    items = [Subspaces(generator.normal(size=(5, 3)), np.zeros(5, dtype=np.int64)) for _ in range(2)]
    (block,) = class_angle_blocks(items, num_classes=1, angles="subspace")
    assert block.degrees_IJ[0, 1] == pytest.approx(0, abs=0.1)


def test_rows_of_new_items_equal_the_rows_they_would_have_had_from_the_start():
    items, counts = toy_items(np.random.default_rng(4), 9)
    sketches = np.random.default_rng(5).normal(size=(9, 6))
    weights, whole = fitted(items, counts)
    rows = weights.between(Items.of(items[6:], counts[6:]), Items.of(items[:6], counts[:6]))
    np.testing.assert_allclose(rows, whole[6:, :6], atol=1e-3)
    rows = gradient_angles_between(sketches[6:], sketches[:6])
    np.testing.assert_allclose(rows, gradient_angles(sketches)[6:, :6], atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_gradient_angles_equal_the_loop(seed, n):
    generator = np.random.default_rng(seed)
    sketches = generator.normal(size=(n, 5)) * generator.integers(0, 2, size=(n, 1))
    np.testing.assert_allclose(gradient_angles(sketches), literal.gradient_matrix(sketches), atol=0.05)


def test_an_all_zero_update_is_at_ninety_degrees_to_every_other():
    angles = gradient_angles([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(angles, [[0, 90, 90], [90, 0, 90], [90, 90, 0]])


def test_opposite_updates_are_at_one_hundred_and_eighty_degrees_at_any_length():
    angles = gradient_angles([[1e-30, 0.0], [-1e30, 0.0]])
    assert angles[0, 1] == 180


def test_equal_updates_never_give_nan():
    sketch = np.random.default_rng(6).normal(size=50).astype(np.float32)
    angles = gradient_angles(np.tile(sketch, (20, 1)))
    assert np.isfinite(angles).all()
    assert min_max(angles).high == min_max(angles).low  # rounding noise is not structure


def test_min_max_ignores_the_diagonal_and_keeps_its_constants_for_newcomers():
    angles = np.array([[0.0, 20.0, 30.0], [20.0, 0.0, 40.0], [30.0, 40.0, 0.0]])
    constants = min_max(angles)
    assert (constants.low, constants.high) == (20, 40)
    np.testing.assert_allclose(normalised(angles, constants), [[0, 0, 0.5], [0, 0, 1], [0.5, 1, 0]])
    np.testing.assert_allclose(constants.apply(np.array([10.0, 25.0, 90.0])), [0, 0.25, 1])


@pytest.mark.parametrize("n", [0, 1])
def test_no_items_and_one_item_give_empty_and_zero_matrices(n):
    items, counts = toy_items(np.random.default_rng(7), n)
    assert data_angles(items, counts.reshape(n, CLASSES)).shape == (n, n)
    assert gradient_angles(np.ones((n, 3))).shape == (n, n)
    assert min_max(np.zeros((n, n))).apply(np.zeros((n, n))).shape == (n, n)


def test_nan_is_refused_and_the_item_is_named():
    items, counts = toy_items(np.random.default_rng(8), 4)
    items[2] = item([[np.nan, 1]], [0])
    with pytest.raises(ValueError, match="subspaces of item 2"):
        data_angles(items, counts)
    with pytest.raises(ValueError, match="sketches of item 1"):
        gradient_angles([[1.0, 2.0], [np.inf, 0.0]])
    with pytest.raises(ValueError, match="counts of item 3 are negative"):
        data_angles(toy_items(np.random.default_rng(8), 4)[0], [[1] * CLASSES] * 3 + [[-1] * CLASSES])


def test_items_that_do_not_fit_are_refused_by_number():
    good = item([E1], [0])
    with pytest.raises(ValueError, match="item 1 names a class outside 0 to 0"):
        data_angles([good, item([E1], [3])], [[1], [1]])
    with pytest.raises(ValueError, match="different lengths"):
        data_angles([good, Subspaces(np.ones((1, 3)), np.array([0]))], [[1], [1]])
    with pytest.raises(ValueError, match="2 items with subspaces, but 1 rows"):
        data_angles([good, good], [[1]])
