# SPDX-License-Identifier: Apache-2.0
"""Splits that one half of the classes shows are looked at in the other half."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.agglomerative import agreement
from feddag.clustering.compose import ViewMatrix, confirmed, propose, real_split
from feddag.clustering.confirm import FEW_ITEMS, MOST_ITEMS, apartness, class_halves, confirmation, surprise
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.reliable import ReliableAngles
from tests.clustering.test_compose import CLASSES, federation


def squared(points_NK):
    return np.square(points_NK[:, None] - points_NK[None]).sum(axis=2)


def literal_apartness(sines_NN, parts_N):
    """The definition with loops over all pairs of parts and items."""
    total, pairs = 0.0, 0
    for p in range(max(parts_N) + 1):
        for q in range(max(parts_N) + 1):
            if p == q:
                continue
            here, there = np.flatnonzero(parts_N == p), np.flatnonzero(parts_N == q)
            between = np.mean([sines_NN[i, j] for i in here for j in there])
            within = [np.mean([sines_NN[i, j] for i in of for j in of if i != j]) for of in (here, there)]
            total += (between - sum(within) / 2) * len(here) * len(there)
            pairs += len(here) * len(there)
    return total / pairs


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_apartness_equals_its_literal_version(seed, count):
    rng = np.random.default_rng(seed)
    parts = rng.permutation(np.repeat(np.arange(count), rng.integers(2, 5, size=count)))
    sines = squared(rng.normal(size=(len(parts), 3)))
    dealt = np.array([rng.permutation(parts) for _ in range(3)])
    assert apartness(sines, dealt) == pytest.approx([literal_apartness(sines, each) for each in dealt])


def test_apartness_is_the_squared_distance_of_means_though_one_part_is_noisier():
    """Unbiased: over many draws of noisy points the mean is 1, the squared distance of the true means."""
    rng = np.random.default_rng(0)
    parts = np.repeat([0, 1], 10)
    noise = np.where(parts == 0, 0.1, 2.0)[:, None]
    drawn = [parts[:, None] + noise * rng.normal(size=(20, 1)) for _ in range(400)]
    found = [apartness(squared(points), parts[None]) for points in drawn]
    assert np.mean(found) == pytest.approx(1, abs=3 * np.std(found) / 20)


def test_surprise_is_that_of_all_ways_to_deal_the_parts():
    sines = squared(np.array([0.0, 0.3, 0.5, 2.0, 2.2, 2.7])[:, None])
    parts = np.array([0, 0, 0, 1, 1, 1])
    every = apartness(sines, np.array(list(set(permutations(parts.tolist())))))
    expected = (apartness(sines, parts[None])[0] - every.mean()) / every.std()
    found = np.mean([surprise(sines, parts, np.random.default_rng(seed)) for seed in range(30)])
    assert found == pytest.approx(expected, rel=0.1)


def test_halves_hold_every_class_that_two_items_have_once():
    first, second = class_halves(np.array([5, 1, 9, 0, 7, 2]))
    assert sorted([*first, *second]) == [0, 2, 4, 5]
    assert (first.tolist(), second.tolist()) == ([2, 0], [4, 5])
    assert class_halves(np.array([8, 1, 0])) == ()


def test_angles_by_one_half_do_not_depend_on_the_other_half():
    items = federation([0, 1] * 10)
    fitted, _ = ReliableAngles(options=ClusteringOptions(), shared_only=True).fit(items)
    halves = fitted.halves(items, np.arange(20))
    assert [h.shape for h in halves] == [(20, 20)] * 2
    first, _ = class_halves(np.full(CLASSES, 20))
    for item in items.subspaces:  # what is not in the first half becomes another thing
        item.vectors_PD[~np.isin(item.classes_P, first)] = np.eye(item.vectors_PD.shape[1])[0]
    np.testing.assert_array_equal(fitted.halves(items, np.arange(20))[0], halves[0])
    assert np.abs(fitted.halves(items, np.arange(20))[1] - halves[1]).max() > 1


def test_groups_are_confirmed_and_alike_clients_are_not():
    def certainty(groups):
        items = federation(groups)
        fitted, _ = ReliableAngles(options=ClusteringOptions(), shared_only=True).fit(items)
        halves = fitted.halves(items, np.arange(len(groups)))
        return confirmation(halves, 3, "average", np.random.default_rng(0))

    assert certainty([0, 1, 2] * 8) > 10
    assert abs(certainty([0] * 24)) < 4


def test_what_cannot_be_asked_is_not_confirmed():
    rng, options = np.random.default_rng(0), ClusteringOptions()
    asked = []

    def halves(members):
        asked.append(len(members))
        return ()

    view = ViewMatrix("pixels", np.zeros((400, 400)), halves=halves)
    assert confirmed(view, np.arange(FEW_ITEMS - 1), 3, options, rng) is None
    assert confirmed(ViewMatrix("gradient", np.zeros((40, 40))), np.arange(40), 3, options, rng) is None
    assert confirmed(view, np.arange(400), 3, options, rng) is None
    assert asked == [MOST_ITEMS]


def test_few_clients_are_split_only_by_what_both_halves_of_the_classes_show():
    rng, options = np.random.default_rng(0), ClusteringOptions()
    groups = np.repeat([0, 1], 10)

    def view(count, *seen):
        whole = squared(4.0 * groups[:count, None] + rng.normal(size=(count, 3)))
        angles = tuple(np.degrees(np.arcsin(np.sqrt(each / each.max()))) for each in seen)
        sines, errors = whole / whole.max(), np.full(count, 1e-3)
        return ViewMatrix("pixels", sines, sines, errors, halves=lambda members: angles)

    def split(asked):
        proposal = propose(asked, np.arange(len(asked.distances_NN)), options)
        assert proposal is not None
        return real_split(proposal, options)

    chance = [squared(rng.normal(size=(20, 3))) for _ in range(2)]
    planted = [squared(4.0 * groups[:, None] + rng.normal(size=(20, 3))) for _ in range(2)]
    assert split(view(20, *chance)) is None
    assert agreement(split(view(20, *planted)).parts, groups) == 1
    assert split(view(20)) is not None  # of one class there are no halves
    assert split(view(FEW_ITEMS - 1)) is not None  # too few to ask


def test_groups_that_overlap_in_the_noise_are_found_and_oddities_of_one_half_are_not():
    """Silhouettes are below 0.5: only the other half of the classes tells both cases apart."""
    rng, groups = np.random.default_rng(3), np.repeat([0, 1], 20)
    items, means = federation([0] * 40, samples=12, seed=5), rng.normal(size=(2, 6)) * 0.008
    for i, texture in enumerate(items.textures):
        texture.vectors_PD[:] += means[groups[i]]
    found = cluster_signatures(items)
    [split] = [s for s in found.splits if s.view]
    assert (split.view, split.silhouette < 0.5) == ("texture", True)
    assert found.labels_N.tolist() == groups.tolist()
    others = rng.permutation(groups)
    for i, texture in enumerate(items.textures):  # now half of the classes show other groups
        shown = np.where(texture.classes_P % 2, others[i], groups[i])
        texture.vectors_PD[:] += means[shown] - means[groups[i]]
    assert cluster_signatures(items).count == 1
