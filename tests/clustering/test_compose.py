# SPDX-License-Identifier: Apache-2.0
"""Fusion over any number of views: which view splits what, against literal versions and planted groups."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.agglomerative import agreement, cut
from feddag.clustering.compose import ViewMatrix, compose, labels_of, separation
from feddag.clustering.cut import cut_as
from feddag.clustering.items import Items
from feddag.clustering.levels import MAX_NOISE, MEDIAN_PER_QUANTILE
from feddag.clustering.newcomers import place_newcomers
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.outliers import confidence, nearer_half, unlike_anyone
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.proximity import shown_views
from feddag.clustering.reliable import LARGEST_LEVEL, ReliableAngles
from feddag.clustering.silhouette import settled
from feddag.clustering.subspaces import Subspaces, class_means, class_subspaces

CLASSES, WIDTH, BANDS = 4, 12, 6


def federation(groups, *, styles=None, labels=None, samples=60, seed=0, odd=()):
    """Clients with a concept (group), a style of texture and a set of labels each; `odd` ones are alone."""
    rng = np.random.default_rng(seed)
    base = np.random.default_rng(99).normal(size=(8, CLASSES, WIDTH)) * 3
    looks = np.random.default_rng(98).uniform(0.2, 0.8, size=(8, BANDS))
    pixels, textures, counts = [], [], []
    for i, group in enumerate(groups):
        held = range(CLASSES) if labels is None else labels[i]
        y = np.concatenate([np.full(samples, c) for c in held])
        which = 7 if i in odd else group
        x = base[which][y] + rng.normal(size=(len(y), WIDTH))
        style = looks[0 if styles is None else styles[i]]
        texture = np.clip(style + 0.03 * y[:, None] + 0.05 * rng.normal(size=(len(y), BANDS)), 0, 1)
        pixels.append(class_subspaces(x, y, CLASSES, 2))
        textures.append(class_means(texture, y, CLASSES))
        counts.append(np.bincount(y, minlength=CLASSES))
    return Items.of(pixels, np.array(counts), textures=textures)


def part_of(items, chosen):
    return Items.of(
        [items.subspaces[i] for i in chosen],
        items.counts_NC[chosen],
        textures=[items.textures[i] for i in chosen],
    )


def literal_texture_angles(items):
    """D_ij + σ̄ as an angle: class means compared on shared classes, cleared of noise; loops throughout."""
    n, counts = len(items), np.maximum(items.counts_NC, 1)
    means = [dict(zip(t.classes_P.tolist(), t.vectors_PD.astype(float), strict=True)) for t in items.textures]
    squares = {
        (i, j, c): float(np.mean((means[i][c] - means[j][c]) ** 2))
        for i in range(n)
        for j in range(n)
        for c in means[i].keys() & means[j].keys()
        if i != j
    }
    level = np.full((n, CLASSES), MAX_NOISE)
    for c in range(CLASSES):
        for i in range(n):
            ratios = [
                squares[i, j, c] / (1 / counts[i, c] + 1 / counts[j, c])
                for j in range(n)
                if (i, j, c) in squares
            ]
            if ratios:
                level[i, c] = min(np.quantile(ratios, 0.1), MAX_NOISE)
        known = level[:, c][level[:, c] < MAX_NOISE]
        if len(known):
            level[:, c] = np.minimum(level[:, c], LARGEST_LEVEL * np.quantile(known, 0.8))
    total, evidence = np.zeros((n, n)), np.zeros((n, n))
    for (i, j, c), square in squares.items():
        noise = max(level[i, c] / counts[i, c] + level[j, c] / counts[j, c], 1e-9)
        total[i, j] += (square - MEDIAN_PER_QUANTILE * noise) / noise**2
        evidence[i, j] += 1 / noise**2
    shared = evidence > 0
    typical = np.median(1 / np.sqrt(evidence[shared]))
    sines = np.clip(np.where(shared, total / np.where(shared, evidence, 1), 0) + typical, 0, 1)
    angles = np.degrees(np.arcsin(np.sqrt(sines)))
    angles[~shared] = np.median(angles[shared])
    np.fill_diagonal(angles, 0)
    return angles


def test_the_texture_view_equals_its_literal_version():
    labels = [(0, 1, 2, 3), (0, 1), (2, 3), (1, 2, 3)] * 3
    items = federation([0] * 12, styles=[0, 0, 0, 1, 1, 1] * 2, labels=labels)
    fitted, angles_NN = ReliableAngles(options=ClusteringOptions(), view="texture", shared_only=True).fit(
        items
    )
    expected = literal_texture_angles(items)
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(angles_NN[off], expected[off], rtol=1e-3, atol=2e-3)
    assert fitted.unknown == pytest.approx(np.median(expected[off]), rel=0.5)


def test_separation_is_the_difference_of_means_over_the_error_of_moved_pairs():
    rng = np.random.default_rng(0)
    sines = rng.uniform(size=(7, 7))
    sines = (sines + sines.T) / 2
    np.fill_diagonal(sines, 0)
    errors = rng.uniform(0.1, 0.2, size=7).astype(np.float32)
    members, parts = np.array([0, 2, 3, 5, 6]), np.array([0, 0, 1, 1, 1])
    inside, outside, moved = [], [], []
    for a in range(5):
        for b in range(5):
            if a != b:
                i, j = members[a], members[b]
                (inside if parts[a] == parts[b] else outside).append(sines[i, j])
                if parts[a] != parts[b]:
                    moved.append((errors[i] + errors[j]) / 2)
    view = ViewMatrix("pixels", sines, sines, errors, typical_error=0.01)
    expected = (np.mean(outside) - np.mean(inside)) / np.mean(moved)
    assert separation(view, members, parts) == pytest.approx(expected, rel=1e-6)


def test_items_settle_in_the_nearest_cluster():
    points = np.array([0.0, 0.1, 0.2, 0.3, 1.0, 1.1, 1.2, 1.3])
    distances = np.abs(points[:, None] - points[None])
    score, labels = settled(distances, np.array([0, 0, 0, 1, 1, 1, 1, 1]), min_size=2)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert score > 0.8


def test_a_view_without_structure_splits_nothing_and_has_no_weight():
    groups = [0, 1, 2] * 8
    result = cluster_signatures(federation(groups))
    assert agreement(result.labels_N, groups) == 1
    assert {fit.name: fit.weight for fit in result.frame.fits} == {"labels": 0, "pixels": 1, "texture": 0}
    assert [(split.view, split.sizes) for split in result.splits if split.view] == [("pixels", [8, 8, 8])]


def test_alike_clients_are_one_cluster():
    result = cluster_signatures(federation([0] * 24))
    assert result.count == 1
    assert not [split for split in result.splits if split.view]
    assert not result.unlike_N.any()


def test_views_that_show_different_groups_compose():
    labels = [((0, 1), (2, 3))[i % 2] for i in range(32)]
    styles = [i // 2 % 2 for i in range(32)]
    result = cluster_signatures(federation([0] * 32, styles=styles, labels=labels))
    planted = [2 * (i % 2) + styles[i] for i in range(32)]
    assert agreement(result.labels_N, planted) == 1
    assert {split.view for split in result.splits if split.view} == {"labels", "texture"}
    assert {f.name for f in result.frame.fits if f.weight} == {"labels", "texture"}


def test_tones_split_what_no_other_view_tells_apart():
    items = federation([0] * 24)
    lit = federation([0] * 24, styles=[i % 2 for i in range(24)], seed=1)
    result = cluster_signatures(replace(items, tones=lit.textures))
    assert agreement(result.labels_N, [i % 2 for i in range(24)]) == 1
    assert [split.view for split in result.splits if split.view] == ["tones"]
    assert cluster_signatures(items).count == 1, "without it they are alike"


def test_tones_stay_with_their_items():
    items = replace(federation([0] * 6), tones=federation([0] * 6, seed=1).textures)
    some = Items.joined([items.take([4, 1]), items.take([0])])
    assert [id(told) for told in some.tones] == [id(items.tones[i]) for i in (4, 1, 0)]
    assert some.views() == ("pixels", "texture", "tones")
    with pytest.raises(ValueError, match="5 items with tones, but 6 rows"):
        Items.of(items.subspaces, items.counts_NC, tones=items.tones[:5])


def test_absent_classes_do_not_hide_styles():
    rng = np.random.default_rng(5)
    labels = [tuple(sorted(rng.choice(CLASSES, size=3 + i % 2, replace=False))) for i in range(40)]
    styles = [i % 3 for i in range(40)]
    result = cluster_signatures(federation([0] * 40, styles=styles, labels=labels))
    assert agreement(result.labels_N, styles) == 1
    assert {split.view for split in result.splits if split.view} == {"texture"}


def test_parts_below_the_least_size_are_not_split_off():
    styles = [0] * 22 + [1] * 2
    result = cluster_signatures(federation([0] * 24, styles=styles))
    assert result.count == 1


def test_the_tree_agrees_with_the_clusters_in_use():
    labels = [((0, 1), (2, 3))[i % 2] for i in range(24)]
    styles = [i // 2 % 2 for i in range(24)]
    result = cluster_signatures(federation([0] * 24, styles=styles, labels=labels))
    plain = cut(result.cut.linkage_matrix, result.cut.threshold)
    np.testing.assert_array_equal(plain, result.labels_N)
    assert (np.diff(result.cut.linkage_matrix[:, 2]) >= 0).all()
    near = np.flatnonzero(np.isclose(result.cut.scored.thresholds_T, result.cut.threshold))
    np.testing.assert_array_equal(result.cut.scored.partitions_TN[near[0]], result.labels_N)


@pytest.mark.parametrize("labels", [[0], [0, 0], [0, 1], [0, 0, 1], [0, 1, 2, 0, 1, 2]])
def test_a_tree_of_given_clusters_is_cut_into_them(labels):
    distances = np.random.default_rng(0).uniform(0.2, 1, size=(len(labels),) * 2)
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    found = cut_as(distances, np.array(labels), ClusteringOptions())
    if len(labels) > 1:
        np.testing.assert_array_equal(cut(found.linkage_matrix, found.threshold), labels)


def test_clients_that_resemble_nobody_are_named():
    items = federation([0, 1] * 12, odd=(5,))
    result = cluster_signatures(items)
    assert np.flatnonzero(result.unlike_N).tolist() == [5]
    assert agreement(np.delete(result.labels_N, 5), np.delete([0, 1] * 12, 5)) == 1
    assert result.notes([f"c{i}" for i in range(24)])["unlike"] == ["c5"]


def test_a_client_that_fits_one_cluster_by_labels_and_no_cluster_by_looks_is_named():
    """Each cluster is far in some view; in no single view is the client far from all of them."""
    labels = [((0, 1), (2, 3))[i % 2] for i in range(24)]
    styles = [3 if i == 5 else 0 for i in range(24)]
    result = cluster_signatures(federation([0] * 24, styles=styles, labels=labels))
    assert result.count == 2
    assert np.flatnonzero(result.unlike_N).tolist() == [5]


@pytest.mark.parametrize("members", [True, False])
def test_the_nearer_half_of_a_cluster_equals_its_literal_version(members):
    rng = np.random.default_rng(0)
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    distances = rng.uniform(size=(8, 8) if members else (3, 8))
    np.fill_diagonal(distances, 0 if members else distances.diagonal())
    found = nearer_half(distances, labels, members=members)
    for z in range(3):
        for i in range(len(distances)):
            others = sorted(distances[i, j] for j in range(8) if labels[j] == z and not (members and i == j))
            size = (labels == z).sum() - members
            expected = np.mean(others[: max((size + 1) // 2, 1)]) if others else 0.0
            assert found[z, i] == pytest.approx(expected)


def test_nobody_is_odd_among_few_clients():
    views = [ViewMatrix("labels", np.ones((4, 4)) - np.eye(4))]
    assert not unlike_anyone(views, np.zeros(4, dtype=np.int64)).any()


def test_confidence_is_the_silhouette_and_the_second_nearest_cluster():
    points = np.array([0.0, 0.1, 1.0, 1.1, 3.0, 3.1])
    distances = np.abs(points[:, None] - points[None])
    sure, second = confidence(distances, np.array([0, 0, 1, 1, 2, 2]))
    assert sure[0] == pytest.approx(1 - 0.1 / 1.05)
    assert second.tolist() == [1, 1, 0, 0, 1, 1]
    alone, nobody = confidence(distances, np.zeros(6, dtype=np.int64))
    assert (alone.tolist(), nobody.tolist()) == ([0.0] * 6, [-1] * 6)


def test_newcomers_are_placed_by_all_views_and_nobody_else_moves():
    labels = [((0, 1), (2, 3))[i % 2] for i in range(40)]
    styles = [i // 2 % 2 for i in range(40)]
    items = federation([0] * 40, styles=styles, labels=labels)
    planted = np.array([2 * (i % 2) + styles[i] for i in range(40)])
    old, new = part_of(items, np.arange(32)), part_of(items, np.arange(32, 40))
    result = cluster_signatures(old)
    placed = place_newcomers(new, old, result.labels_N, result.frame, result.cut.threshold)
    assert agreement(np.concatenate([result.labels_N, placed.labels_M]), planted) == 1
    assert not placed.opened_from
    for name, view in shown_views(items, placed.frame).items():
        assert view.matrix_NN.shape == (40, 40), name
    for fit in placed.frame.fits:
        assert fit.angles is None or len(fit.angles.levels_NC) == len(fit.angles.errors_N) == 40


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_odd_federations_are_clustered_without_complaint(data):
    n = data.draw(st.integers(1, 7))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    pixels, textures, counts = [], [], []
    for _ in range(n):
        held = sorted(data.draw(st.sets(st.integers(0, CLASSES - 1), max_size=CLASSES)))
        y = np.repeat(held, data.draw(st.integers(1, 3))).astype(np.int64)
        constant = data.draw(st.booleans())
        x = np.zeros((len(y), WIDTH)) if constant else rng.normal(size=(len(y), WIDTH))
        pixels.append(class_subspaces(x, y, CLASSES, 2))
        textures.append(class_means(np.clip(np.abs(x[:, :BANDS]), 0, 1), y, CLASSES))
        counts.append(np.bincount(y, minlength=CLASSES))
    sketches = None if data.draw(st.booleans()) else rng.normal(size=(n, 5))
    result = cluster_signatures(Items.of(pixels, np.array(counts), sketches, textures=textures))
    assert len(result.labels_N) == n
    assert np.isfinite(result.distances_NN).all()
    assert 0 <= result.distances_NN.min() <= result.distances_NN.max() <= 1 + 1e-6
    everyone = np.concatenate([split.members for split in result.splits if not split.view])
    assert sorted(everyone.tolist()) == list(range(n))


def test_no_views_at_all_give_one_cluster():
    nothing = Subspaces(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    result = cluster_signatures(Items.of([nothing] * 4, np.ones((4, 2))))
    assert result.count == 1
    assert labels_of(compose([], 3, ClusteringOptions()), 3).tolist() == [0, 0, 0]


def test_shapes_that_always_meet_are_no_view():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2), 20)
    wide, narrow = ([class_subspaces(rng.normal(size=(40, d)), y, 2, 3) for _ in range(4)] for d in (9, 6))
    counts = np.full((4, 2), 20)
    assert Items.of(wide, counts, shapes=wide).views() == ("pixels", "shape")
    assert Items.of(narrow, counts, shapes=narrow).views() == ("pixels",)
