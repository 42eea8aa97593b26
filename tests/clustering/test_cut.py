# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from feddag.clustering.agglomerative import agreement, cut, link, merge_thresholds
from feddag.clustering.cut import choose_cut, separating_threshold
from feddag.clustering.options import ClusteringOptions, StructureRule
from feddag.clustering.silhouette import best_cut
from tests.clustering import literal
from tests.clustering.toys import blobs, distance_matrices, seeds

ALL_RULES = [
    ClusteringOptions(structure=StructureRule(clouds=3)),
    ClusteringOptions(cut_rule="silhouette"),
    ClusteringOptions(cut_rule="loss"),
    ClusteringOptions(cut_rule="plateau"),
    ClusteringOptions(num_clusters=2),
    ClusteringOptions(threshold=0.4),
]


@settings(max_examples=80, deadline=None)
@given(distance_matrices(), st.sampled_from(ALL_RULES))
def test_every_rule_gives_a_partition_of_any_matrix(distances, rule):
    chosen = choose_cut(distances, rule)
    assert chosen.labels_N.shape == (len(distances),)
    assert set(chosen.labels_N) == set(range(chosen.count))
    assert np.isfinite(chosen.threshold)
    seen = []
    for label in chosen.labels_N:
        if label not in seen:
            seen.append(label)
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", ["structure", "silhouette", "loss", "plateau"])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_identical_items_are_one_cluster(name, n):
    assert choose_cut(np.zeros((n, n)), ClusteringOptions(cut_rule=name)).count == 1


@pytest.mark.parametrize("name", ["structure", "silhouette"])
def test_well_separated_groups_are_found_with_their_number(name):
    for seed in range(5):
        distances, truth = blobs(np.random.default_rng(seed), [8, 12, 9, 15])
        chosen = choose_cut(distances, ClusteringOptions(cut_rule=name))
        assert agreement(chosen.labels_N, truth) == 1


def test_one_normal_cloud_is_one_cluster_in_any_dimension():
    for seed, width in enumerate((2, 3, 5, 10, 50)):
        distances, _ = blobs(np.random.default_rng(seed), [60], width=width)
        assert choose_cut(distances).count == 1


def test_nested_groups_are_found_where_one_silhouette_stops_at_the_coarse_ones():
    generator = np.random.default_rng(1)
    centres = np.array([[0, 0], [9, 0], [60, 0]])
    truth = np.repeat([0, 1, 2], 20)
    points = centres[truth] + generator.normal(size=(60, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    distances /= distances.max()
    assert choose_cut(distances, ClusteringOptions(cut_rule="silhouette")).count == 2
    # the two near groups lie within a fifth of the range: whether that is tight is the caller's scale
    assert (
        agreement(
            choose_cut(distances, ClusteringOptions(structure=StructureRule(tight=0.05))).labels_N, truth
        )
        == 1
    )
    assert choose_cut(distances, ClusteringOptions(structure=StructureRule(tight=0.2))).count == 2


def test_an_outlier_joins_the_nearest_group_instead_of_deciding_the_cut():
    distances, truth = blobs(np.random.default_rng(2), [15, 15])
    n = len(distances)
    far = np.ones((n + 1, n + 1)) * 3
    far[:n, :n] = distances
    nearer = np.append(truth == 1, False)
    far[n, nearer] = far[nearer, n] = 2.5
    far[n, n] = 0
    chosen = choose_cut(far / 3)
    assert chosen.labels_N.tolist() == [*truth, 1]


def test_two_pairs_are_two_clusters_and_three_items_are_one():
    pairs = np.where(np.repeat([0, 1], 2)[:, None] == np.repeat([0, 1], 2)[None], 0.01, 1.0) - 0.01 * np.eye(
        4
    )
    assert choose_cut(pairs).labels_N.tolist() == [0, 0, 1, 1]
    assert choose_cut(pairs[:3, :3]).count == 1


def test_a_permutation_of_the_items_permutes_the_labels():
    distances, _ = blobs(np.random.default_rng(3), [6, 9, 7], apart=3)
    order = np.random.default_rng(4).permutation(22)
    for rule in ALL_RULES:
        here = choose_cut(distances, rule).labels_N
        there = choose_cut(distances[np.ix_(order, order)], rule).labels_N
        assert agreement(there, here[order]) == 1


def test_the_same_matrix_gives_the_same_cut():
    distances, _ = blobs(np.random.default_rng(5), [6, 9, 7], apart=2)
    first, second = choose_cut(distances), choose_cut(distances.copy())
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


def test_an_item_between_two_clusters_joins_the_one_with_the_first_member():
    # items 0, 1 and 3, 4 are pairs; item 2 is equally far from both
    points = np.array([4.0, 4.0, 2.0, 0.0, 0.0])
    distances = np.abs(points[:, None] - points[None]) / 4
    assert best_cut(distances, link(distances), 2)[1].tolist() == [0, 0, 0, 1, 1]
    order = [4, 2, 1, 3, 0]
    turned = distances[np.ix_(order, order)]
    assert best_cut(turned, link(turned), 2)[1].tolist() == [0, 0, 1, 0, 1]


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(2, 30), st.integers(1, 4), st.booleans())
@example(seed=18, n=18, min_size=2, rounded=True)
def test_the_best_cut_equals_scoring_every_cut_by_itself(seed, n, min_size, rounded):
    distances, _ = blobs(np.random.default_rng(seed), [n, n // 2 + 1], apart=1.5, width=2)
    distances = np.round(distances, 1) if rounded else distances
    linked = link(distances)
    score, labels = best_cut(distances, linked, min_size)
    trials = [literal.absorbed(distances, cut(linked, t), min_size) for t in merge_thresholds(linked, 64)]
    scores = [silhouette(distances, trial) for trial in trials if max(trial) > 0]
    if not scores:
        assert score == -np.inf
        assert labels.max() == 0
    else:
        assert score == pytest.approx(max(scores), abs=1e-12)
        assert silhouette(distances, labels) == pytest.approx(score, abs=1e-12)


def silhouette(distances, labels):
    """scikit-learn's, which refuses all singletons: there it is 0."""
    if len(set(labels)) == len(labels):
        return 0.0
    return silhouette_score(distances, labels, metric="precomputed")


def test_the_loss_rule_takes_few_clusters_among_low_losses():
    truth = np.repeat([0, 1, 2], 4)
    distances = np.where(truth[:, None] == truth[None], 0.02, 0.9) - 0.02 * np.eye(12)
    chosen = choose_cut(distances, ClusteringOptions(cut_rule="loss"))
    assert chosen.labels_N.tolist() == truth.tolist()
    assert chosen.threshold == 0.85  # the largest threshold of its plateau


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
        choose_cut(np.array(matrix, dtype=float))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"cut_rule": "elbow"}, "cut_rule = 'elbow': expected one of structure, silhouette, loss, plateau"),
        ({"linkage": "ward"}, "linkage = 'ward': expected one of average, single, complete, weighted"),
        ({"fusion": "both"}, "fusion = 'both': expected one of views, structure, entropy, mlp, mean"),
        ({"thresholds": ()}, "at least one"),
        ({"num_clusters": -1}, "must not be negative"),
        ({"epsilon": 1.0}, "epsilon = 1.0: expected more than 1"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        ClusteringOptions(**wrong)


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
    found = choose_cut(distances)
    part = next(t for t in found.tests if len(t.members) == 36)
    inner = distances[np.ix_(part.members, part.members)]
    rule = StructureRule()
    assert rule.tight < inner.sum() / (36 * 35) < rule.close
    assert agreement(found.labels_N, truth) == 1
    distances, truth = far_and_near(np.random.default_rng(seed), near_apart=5.0)  # tight: not asked again
    assert choose_cut(distances).count == 2
