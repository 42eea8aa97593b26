# SPDX-License-Identifier: Apache-2.0
"""Landmarks: the same call for more items than can be compared with each other."""

from dataclasses import replace

import numpy as np
import pytest

from feddag.clustering.agglomerative import agreement
from feddag.clustering.landmarks import InMemory, cluster_with_landmarks
from feddag.clustering.newcomers import newcomer_distances, newcomer_frame
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.outliers import unlike_anyone
from feddag.clustering.pipeline import cluster_signatures, cluster_whole
from feddag.clustering.placing import LEAST_ANCHORS, choose_anchors
from tests.clustering.test_compose import federation

FEW = ClusteringOptions(landmarks=30)
GROUPS = np.arange(80) % 3


class Watched(InMemory):
    """Items that note who was asked for what."""

    def __init__(self, items, silent=()):
        super().__init__(items)
        object.__setattr__(self, "asked", [])
        object.__setattr__(self, "silent", silent)

    def read(self, rows, views):
        self.asked.append((rows, views))
        answered = np.setdiff1d(rows, self.silent)
        return super().read(answered, views)


def same(a, b):
    """Whether two results are equal to the last bit."""
    return (
        np.array_equal(a.labels_N, b.labels_N)
        and np.array_equal(a.distances_NN, b.distances_NN)
        and np.array_equal(a.graph.scores_ZZ, b.graph.scores_ZZ)
        and np.array_equal(a.unlike_N, b.unlike_N)
    )


def test_up_to_the_limit_everybody_is_compared_with_everybody():
    items = federation(GROUPS[:30])
    whole = cluster_whole(items, FEW, GraphOptions())
    assert same(cluster_signatures(items, FEW), whole)
    assert same(cluster_signatures(InMemory(items), FEW), whole)
    assert cluster_signatures(items, FEW).everyone is None


def test_beyond_the_limit_the_planted_groups_are_found_and_equal_those_of_everybody():
    items = federation(GROUPS, styles=np.arange(80) // 3 % 2)
    found = cluster_signatures(items, FEW)
    whole = cluster_whole(items, FEW, GraphOptions())
    assert found.everyone is not None
    assert np.array_equal(found.labels_N, whole.labels_N)  # also in number and in order
    assert found.count == 6
    assert len(found.distances_NN) == 30


def test_every_other_item_is_in_the_cluster_whose_anchors_are_nearest_on_average():
    items = federation(GROUPS, samples=8)
    everyone = cluster_signatures(items, FEW).everyone
    anchors = everyone.anchors
    others = np.setdiff1d(np.arange(80), everyone.landmarks)
    for i in others:
        alone = items.take([i])
        distances_A = newcomer_distances(
            alone, newcomer_frame(alone, anchors.items, anchors.frame), anchors.items, anchors.frame
        )[0][0]
        means = [
            np.mean([float(d) for d, z in zip(distances_A, anchors.labels_A, strict=True) if z == cluster])
            for cluster in range(anchors.count)
        ]
        assert everyone.labels_N[i] == int(np.argmin(means))
        a, b = sorted(means)[:2]
        assert everyone.sure_N[i] == pytest.approx((b - a) / b, abs=1e-5)
        assert everyone.second_N[i] == int(np.argsort(means)[1])


def test_who_is_far_from_all_anchors_is_told_by_the_rule_of_the_whole_clustering():
    items = federation(GROUPS, odd=(5, 44))
    everyone = cluster_signatures(items, FEW).everyone
    whole = cluster_whole(items, FEW, GraphOptions())
    assert np.flatnonzero(everyone.unlike_N).tolist() == np.flatnonzero(whole.unlike_N).tolist() == [5, 44]
    assert unlike_anyone([], everyone.labels_N).sum() == 0


def test_a_group_too_small_for_the_landmarks_is_found_among_the_strays():
    groups = np.zeros(200, dtype=int)
    groups[100:] = 1
    groups[[20, 60, 110, 150, 180]] = 3
    items = federation(groups)
    options = ClusteringOptions(landmarks=40)
    found = cluster_signatures(items, options, seed=3)
    assert (groups[found.everyone.landmarks] == 3).sum() < 3  # too few for a cluster
    assert agreement(found.labels_N, groups) == 1.0
    fresh = found.labels_N[20]
    assert list(found.everyone.opened_from) == [fresh]
    assert fresh in found.everyone.anchors.labels_A
    assert not found.unlike_N.any()
    assert all(found.sources())


def test_the_same_seed_gives_the_same_clusters_and_another_one_other_landmarks():
    items = federation(GROUPS, samples=6)
    first, again, other = (cluster_signatures(items, FEW, seed=seed) for seed in (1, 1, 2))
    assert same(first, again)
    assert np.array_equal(first.everyone.landmarks, again.everyone.landmarks)
    assert not np.array_equal(first.everyone.landmarks, other.everyone.landmarks)


def test_items_that_cannot_be_read_are_left_out():
    items = federation(GROUPS)
    silent = np.array([0, 7, 33])
    reader = Watched(items, silent)
    found = cluster_with_landmarks(reader, FEW, GraphOptions(), seed=0)
    everyone = found.everyone
    assert np.array_equal(everyone.rows_N, np.setdiff1d(np.arange(80), silent))
    assert agreement(everyone.labels_N, GROUPS[everyone.rows_N]) == 1.0
    assert not np.isin(silent, everyone.anchors.rows_A).any()


def test_others_are_read_once_in_blocks_and_not_asked_for_updates_that_do_not_count(monkeypatch):
    monkeypatch.setattr("feddag.clustering.landmarks.READ_AT_ONCE", 16)
    items = federation(GROUPS)
    sketches = np.random.default_rng(0).normal(size=(80, 40))
    reader = Watched(replace(items, sketches_NK=sketches))
    found = cluster_with_landmarks(reader, FEW, GraphOptions(), seed=0)
    (landmarks, everything), *blocks = reader.asked
    assert len(landmarks) == 30
    assert everything is None
    assert max(len(rows) for rows, _ in blocks) == 16
    assert sorted(np.concatenate([landmarks, *(rows for rows, _ in blocks)])) == list(range(80))
    assert all("gradient" not in views for _, views in blocks)
    assert agreement(found.labels_N, GROUPS) == 1.0


@pytest.mark.parametrize("fusion", ["structure", "entropy", "mean"])
def test_other_fusions_have_landmarks_too(fusion):
    sketches = np.eye(3)[GROUPS] * 3 + np.random.default_rng(0).normal(size=(80, 3)) / 4
    items = replace(federation(GROUPS), sketches_NK=sketches)
    options = ClusteringOptions(landmarks=30, fusion=fusion, num_clusters=3)
    assert agreement(cluster_signatures(items, options).labels_N, GROUPS) == 1.0


def test_one_cluster_stays_one_cluster():
    found = cluster_signatures(federation(np.zeros(80, dtype=int)), FEW)
    assert found.count == 1
    assert found.sources() == ((0,),)
    assert set(found.everyone.second_N) == {-1}


def test_anchors_are_equally_many_of_every_cluster_and_resemble_somebody():
    labels_N = np.repeat([0, 1, 2], [300, 20, 3])
    unlike_N = np.zeros(323, dtype=bool)
    unlike_N[[0, 301, 320]] = True
    rows = choose_anchors(labels_N, unlike_N, np.random.default_rng(0), most=60)
    assert np.bincount(labels_N[rows]).tolist() == [20, 19, 2]
    assert not unlike_N[rows].any()
    few = choose_anchors(labels_N, unlike_N | (labels_N == 2), np.random.default_rng(0), most=3)
    assert np.bincount(labels_N[few]).tolist() == [LEAST_ANCHORS, LEAST_ANCHORS, 3]
