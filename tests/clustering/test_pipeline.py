# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.agglomerative import agreement
from feddag.clustering.choice import Rule
from feddag.clustering.estimators import SignatureClustering
from feddag.clustering.pipeline import PAPER, ClusteringOptions, cluster_signatures, newcomer_distances
from feddag.clustering.subspaces import Subspaces, class_subspaces
from tests.clustering.toys import CLASSES, toy_items

OPTIONS = [
    ClusteringOptions(),
    PAPER,
    ClusteringOptions(fusion="entropy"),
    ClusteringOptions(fusion="mean", views="gradient"),
    ClusteringOptions(views="data", weighting="frequency", weigh_absent=True, sources=2),
]


def planted(seed, groups=3, per_group=5):
    """Data sets of three label groups with an update direction each."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(CLASSES, 12)) * 4
    directions = generator.normal(size=(groups, 20))
    x, y, sketches, truth = [], [], [], []
    for group in range(groups):
        for _ in range(per_group):
            labels = np.repeat([group, group + 1], [30, 20])
            x.append(centres[labels] + generator.normal(size=(50, 12)))
            y.append(labels)
            sketches.append(directions[group] + 0.3 * generator.normal(size=20))
            truth.append(group)
    return x, y, np.array(sketches), np.array(truth)


def signed(x, y):
    subspaces = [class_subspaces(a, b, CLASSES) for a, b in zip(x, y, strict=True)]
    return subspaces, np.array([np.bincount(b, minlength=CLASSES) for b in y])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 6), st.sampled_from(OPTIONS))
def test_any_items_have_clusters_and_a_graph_without_nan(seed, n, options):
    generator = np.random.default_rng(seed)
    items, counts = toy_items(generator, n)
    sketches = generator.normal(size=(n, 5)) * generator.integers(0, 2, size=(n, 1))
    result = cluster_signatures(items, counts, sketches, options)
    assert len(result.labels_N) == n
    assert np.isfinite(result.distances_NN).all()
    assert np.isfinite(result.graph.scores_E).all()
    assert ((result.weights_N >= 0) & (result.weights_N <= 1)).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_planted_groups_are_found_from_any_view(options):
    x, y, sketches, truth = planted(0)
    items, counts = signed(x, y)
    rule = Rule(name="silhouette") if options is PAPER else options.rule
    result = cluster_signatures(items, counts, sketches, replace(options, rule=rule))
    assert agreement(result.labels_N, truth) == 1
    assert result.count == 3


def test_equal_items_are_one_cluster_and_all_zero_updates_do_no_harm():
    x, y, _, _ = planted(1, groups=1)
    items, counts = signed([x[0]] * 6, [y[0]] * 6)
    result = cluster_signatures(items, counts, np.zeros((6, 4)))
    assert result.count == 1
    assert len(result.graph.learners_E) == 0


@pytest.mark.parametrize("options", OPTIONS)
def test_newcomers_are_measured_with_the_old_constants_and_land_near_their_group(options):
    x, y, sketches, truth = planted(2, per_group=6)
    items, counts = signed(x, y)
    old = np.arange(len(truth)) % 6 < 5
    old_items = [i for i, keep in zip(items, old, strict=True) if keep]
    new_items = [i for i, keep in zip(items, old, strict=True) if not keep]
    result = cluster_signatures(old_items, counts[old], sketches[old], options)
    rows, weights = newcomer_distances(
        result, new_items, counts[~old], sketches[~old], old_items, counts[old], sketches[old]
    )
    assert rows.shape == (3, 15)
    assert weights.shape == (3,)
    assert ((rows >= 0) & (rows <= 1)).all()
    np.testing.assert_array_equal(truth[old][rows.argmin(axis=1)], truth[~old])


def test_permuted_items_give_the_same_partition():
    x, y, sketches, _ = planted(3)
    items, counts = signed(x, y)
    order = np.random.default_rng(0).permutation(len(items))
    here = cluster_signatures(items, counts, sketches).labels_N
    there = cluster_signatures([items[k] for k in order], counts[order], sketches[order]).labels_N
    assert agreement(there, here[order]) == 1


def test_nan_in_a_signature_names_the_item_and_the_field():
    x, y, sketches, _ = planted(4)
    items, counts = signed(x, y)
    bad = sketches.copy()
    bad[3, 0] = np.nan
    with pytest.raises(ValueError, match="sketches of item 3"):
        cluster_signatures(items, counts, bad)
    with pytest.raises(ValueError, match="counts of item 2"):
        cluster_signatures(items, np.where(np.arange(15)[:, None] == 2, np.nan, counts), sketches)
    items[5] = Subspaces(items[5].vectors_PD * np.nan, items[5].classes_P)
    with pytest.raises(ValueError, match="subspaces of item 5"):
        cluster_signatures(items, counts, sketches)


def test_missing_or_short_sketches_are_refused():
    x, y, sketches, _ = planted(5)
    items, counts = signed(x, y)
    with pytest.raises(ValueError, match="need sketches"):
        cluster_signatures(items, counts)
    with pytest.raises(ValueError, match="15 rows of counts, but 4 sketches"):
        cluster_signatures(items, counts, sketches[:4])
    with pytest.raises(ValueError, match="views"):
        ClusteringOptions(views="both")


def test_the_estimator_clusters_data_sets_without_any_other_preparation():
    x, y, sketches, truth = planted(6)
    estimator = SignatureClustering(num_classes=CLASSES)
    assert estimator.get_params()["p"] == 3
    assert agreement(estimator.fit(x, y).labels_, truth) == 1
    assert estimator.set_params(views="fused").fit(x, y, sketches).n_clusters_ == 3
