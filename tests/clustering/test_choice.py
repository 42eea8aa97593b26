# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from feddag.clustering.agglomerative import agreement, cut, link, merge_thresholds
from feddag.clustering.choice import Rule, choose, separating_threshold
from feddag.clustering.estimators import AgglomerativeByScore
from feddag.clustering.silhouette import absorb_small, best_cut, mean_silhouette
from tests.clustering.toys import blobs, distance_matrices, seeds

ALL_RULES = [
    Rule(name="structure", clouds=3),
    Rule(name="silhouette"),
    Rule(name="loss"),
    Rule(name="plateau"),
    Rule(name="count", count=2),
    Rule(name="threshold", threshold=0.4),
]


@settings(max_examples=80, deadline=None)
@given(distance_matrices(), st.sampled_from(ALL_RULES))
def test_every_rule_gives_a_partition_of_any_matrix(distances, rule):
    choice = choose(distances, rule)
    assert choice.labels_N.shape == (len(distances),)
    assert set(choice.labels_N) == set(range(choice.count))
    assert np.isfinite(choice.threshold)
    seen = []
    for label in choice.labels_N:
        if label not in seen:
            seen.append(label)
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", ["structure", "silhouette", "loss", "plateau"])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_identical_items_are_one_cluster(name, n):
    assert choose(np.zeros((n, n)), Rule(name=name)).count == 1


@pytest.mark.parametrize("name", ["structure", "silhouette"])
def test_well_separated_groups_are_found_with_their_number(name):
    for seed in range(5):
        distances, truth = blobs(np.random.default_rng(seed), [8, 12, 9, 15])
        choice = choose(distances, Rule(name=name))
        assert agreement(choice.labels_N, truth) == 1


def test_one_normal_cloud_is_one_cluster_in_any_dimension():
    for seed, width in enumerate((2, 3, 5, 10, 50)):
        distances, _ = blobs(np.random.default_rng(seed), [60], width=width)
        assert choose(distances).count == 1


def test_nested_groups_are_found_where_one_silhouette_stops_at_the_coarse_ones():
    generator = np.random.default_rng(1)
    centres = np.array([[0, 0], [9, 0], [60, 0]])
    truth = np.repeat([0, 1, 2], 20)
    points = centres[truth] + generator.normal(size=(60, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    distances /= distances.max()
    assert choose(distances, Rule(name="silhouette")).count == 2
    # the two near groups lie within a fifth of the range: whether that is tight is the caller's scale
    assert agreement(choose(distances, Rule(tight=0.05)).labels_N, truth) == 1
    assert choose(distances, Rule(tight=0.2)).count == 2


def test_an_outlier_joins_the_nearest_group_instead_of_deciding_the_cut():
    distances, truth = blobs(np.random.default_rng(2), [15, 15])
    n = len(distances)
    far = np.ones((n + 1, n + 1)) * 3
    far[:n, :n] = distances
    nearer = np.append(truth == 1, False)
    far[n, nearer] = far[nearer, n] = 2.5
    far[n, n] = 0
    choice = choose(far / 3)
    assert choice.labels_N.tolist() == [*truth, 1]


def test_two_pairs_are_two_clusters_and_three_items_are_one():
    pairs = np.where(np.repeat([0, 1], 2)[:, None] == np.repeat([0, 1], 2)[None], 0.01, 1.0) - 0.01 * np.eye(
        4
    )
    assert choose(pairs).labels_N.tolist() == [0, 0, 1, 1]
    assert choose(pairs[:3, :3]).count == 1


def test_a_permutation_of_the_items_permutes_the_labels():
    distances, _ = blobs(np.random.default_rng(3), [6, 9, 7], apart=3)
    order = np.random.default_rng(4).permutation(22)
    for rule in ALL_RULES:
        here = choose(distances, rule).labels_N
        there = choose(distances[np.ix_(order, order)], rule).labels_N
        assert agreement(there, here[order]) == 1


def test_the_same_matrix_gives_the_same_choice():
    distances, _ = blobs(np.random.default_rng(5), [6, 9, 7], apart=2)
    first, second = choose(distances), choose(distances.copy())
    np.testing.assert_array_equal(first.labels_N, second.labels_N)
    for a, b in zip(first.tests, second.tests, strict=True):
        np.testing.assert_array_equal(a.clouds, b.clouds)


def test_the_separating_threshold_lies_below_the_first_merge_of_two_clusters():
    distances, truth = blobs(np.random.default_rng(6), [8, 8, 8])
    linked = link(distances)
    threshold = separating_threshold(linked, truth)
    within = max(distances[np.ix_(truth == z, truth == z)].max() for z in range(3))
    between = min(distances[truth == a][:, truth == b].min() for a in range(3) for b in range(3) if a != b)
    assert within * 0.5 < threshold < between * 1.5
    assert separating_threshold(linked, np.zeros(24, dtype=int)) == linked[-1, 2]


def test_small_clusters_are_absorbed_and_if_all_are_small_there_is_one():
    distances = np.array([[0, 1, 9, 8], [1, 0, 9, 7], [9, 9, 0, 5], [8, 7, 5, 0]], dtype=float)
    assert absorb_small(distances, np.array([0, 0, 1, 2]), 2).tolist() == [0, 0, 0, 0]
    assert absorb_small(distances, np.array([0, 0, 1, 1]), 2).tolist() == [0, 0, 1, 1]
    assert absorb_small(distances, np.array([0, 1, 2, 3]), 2).tolist() == [0, 0, 0, 0]


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(2, 30), st.integers(1, 4), st.booleans())
def test_the_best_cut_equals_scoring_every_cut_by_itself(seed, n, min_size, rounded):
    distances, _ = blobs(np.random.default_rng(seed), [n, n // 2 + 1], apart=1.5, width=2)
    distances = np.round(distances, 1) if rounded else distances
    linked = link(distances)
    score, labels = best_cut(distances, linked, min_size)
    trials = [absorb_small(distances, cut(linked, t), min_size) for t in merge_thresholds(linked, 64)]
    scores = [mean_silhouette(distances, trial) for trial in trials if trial.max() > 0]
    if not scores:
        assert score == -np.inf
        assert labels.max() == 0
    else:
        assert score == pytest.approx(max(scores), abs=1e-12)
        assert mean_silhouette(distances, labels) == pytest.approx(score, abs=1e-12)


def test_the_mean_silhouette_equals_scikit_learns():
    distances, truth = blobs(np.random.default_rng(7), [9, 1, 14], apart=2)
    expected = silhouette_score(distances, truth, metric="precomputed")
    assert mean_silhouette(distances, truth) == pytest.approx(expected, abs=1e-12)


def test_the_loss_rule_takes_few_clusters_among_low_losses():
    truth = np.repeat([0, 1, 2], 4)
    distances = np.where(truth[:, None] == truth[None], 0.02, 0.9) - 0.02 * np.eye(12)
    choice = choose(distances, Rule(name="loss"))
    assert choice.labels_N.tolist() == truth.tolist()
    assert choice.threshold == 0.85  # the largest threshold of its plateau


def test_silhouette_of_one_cluster_is_zero():
    distances, truth = blobs(np.random.default_rng(8), [5, 5])
    assert mean_silhouette(distances, np.zeros(10, dtype=int)) == 0
    assert mean_silhouette(distances, truth) > 0.5


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0, 1, 2], [1, 0, 1]], "square"),
        ([[0, 1], [2, 0]], "symmetric"),
        ([[0, -1], [-1, 0]], "item 0 are negative"),
        ([[0, 1], [1, np.nan]], "item 1"),
        ([[1, 1], [1, 0]], "zero diagonal"),
    ],
)
def test_a_matrix_that_is_no_distance_matrix_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        choose(np.array(matrix, dtype=float))


def test_a_rule_without_what_it_needs_is_refused():
    for arguments in ({"name": "count"}, {"name": "threshold"}, {"name": "elbow"}, {"thresholds": ()}):
        with pytest.raises(ValueError):
            Rule(**arguments)


def test_the_estimator_has_the_manners_of_scikit_learn():
    distances, truth = blobs(np.random.default_rng(9), [8, 9])
    estimator = AgglomerativeByScore().set_params(rule="count", n_clusters=2)
    assert estimator.get_params()["n_clusters"] == 2
    assert agreement(estimator.fit_predict(distances), truth) == 1
    assert estimator.n_clusters_ == 2
    assert 0 < estimator.threshold_ < 1


def far_and_near(generator, near_apart):
    """One group far away, and a part of three groups whose centres lie `near_apart` from each other."""
    centres = np.array([[100.0, 0.0], [0.0, 0.0], [near_apart, 0.0], [near_apart / 2, near_apart * 0.87]])
    truth = np.repeat(np.arange(4), 12)
    points = centres[truth] + 2.5 * generator.normal(size=(48, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    return distances / distances.max(), truth


@pytest.mark.parametrize("seed", range(5))
def test_groups_close_together_are_split_only_if_they_are_clear(seed):
    distances, truth = far_and_near(np.random.default_rng(seed), near_apart=18.0)
    found = choose(distances)
    part = next(t for t in found.tests if len(t.members) == 36)
    inner = distances[np.ix_(part.members, part.members)]
    rule = found.rule
    assert rule.tight < inner.sum() / (36 * 35) < rule.close
    assert agreement(found.labels_N, truth) == 1
    distances, truth = far_and_near(np.random.default_rng(seed), near_apart=5.0)  # tight: not asked again
    assert choose(distances).count == 2
