# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.algorithms.feddag import FedDAG
from feddag.clustering.agglomerative import agreement
from feddag.clustering.items import Items
from feddag.clustering.newcomers import newcomer_distances, newcomer_frame, place_newcomers
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.proximity import Frame, measure, proximity_among, shown_views
from feddag.clustering.subspaces import Subspaces, class_subspaces
from feddag.clustering.tree import KeptTree
from feddag.core import codec
from tests.clustering.toys import CLASSES, toy_items

PAPER = ClusteringOptions(**FedDAG.presets["paper"]["clustering"])
ALL, DATA, GRADIENT = "data and gradient", "data", "gradient"
CASES = [
    (ClusteringOptions(), ALL),
    (ClusteringOptions(), GRADIENT),
    (PAPER, ALL),
    (ClusteringOptions(fusion="entropy"), ALL),
    (ClusteringOptions(fusion="mean"), GRADIENT),
    (ClusteringOptions(class_weighting="frequency", weigh_absent=True), DATA),
]
every_case = pytest.mark.parametrize(("options", "told"), CASES)


def items_with(subspaces, counts, sketches, told=ALL):
    """Items that tell of their data, of their updates, or of both."""
    if told == GRADIENT:
        subspaces = [Subspaces(i.vectors_PD[:0], i.classes_P[:0]) for i in subspaces]
    return Items.of(subspaces, counts, None if told == DATA else sketches)


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
@given(st.integers(0, 10_000), st.integers(0, 6), st.sampled_from(CASES))
def test_any_items_have_clusters_and_a_graph_without_nan(seed, n, case):
    options, told = case
    generator = np.random.default_rng(seed)
    items, counts = toy_items(generator, n)
    sketches = generator.normal(size=(n, 5)) * generator.integers(0, 2, size=(n, 1))
    graph_options = GraphOptions(**FedDAG.presets["paper"]["graph"] if options is PAPER else {})
    result = cluster_signatures(items_with(items, counts, sketches, told), options, graph_options)
    assert len(result.labels_N) == n
    assert np.isfinite(result.distances_NN).all()
    assert np.isfinite(result.graph.scores_E).all()
    assert ((result.frame.weights_N >= 0) & (result.frame.weights_N <= 1)).all()


@every_case
def test_planted_groups_are_found_from_any_view(options, told):
    x, y, sketches, truth = planted(0)
    items, counts = signed(x, y)
    options = replace(options, cut_rule="silhouette") if options is PAPER else options
    result = cluster_signatures(items_with(items, counts, sketches, told), options)
    assert agreement(result.labels_N, truth) == 1
    assert result.count == 3


def test_equal_items_are_one_cluster_and_all_zero_updates_do_no_harm():
    x, y, _, _ = planted(1, groups=1)
    items, counts = signed([x[0]] * 6, [y[0]] * 6)
    result = cluster_signatures(Items.of(items, counts, np.zeros((6, 4))))
    assert result.count == 1
    assert len(result.graph.learners_E) == 0


def with_newcomers(options, told):
    """Fifteen old items, three newcomers (one per group), and the clustering of the old ones."""
    x, y, sketches, truth = planted(2, per_group=6)
    subspaces, counts = signed(x, y)
    is_new = np.arange(len(truth)) % 6 == 5

    def part(chosen):
        of_part = [subspaces[i] for i in np.flatnonzero(chosen)]
        return items_with(of_part, counts[chosen], sketches[chosen], told)

    old = part(~is_new)
    return part(is_new), old, cluster_signatures(old, options), truth[~is_new]


@every_case
def test_newcomers_are_measured_with_the_old_constants_and_land_near_their_group(options, told):
    new, old, result, truth = with_newcomers(options, told)
    of_new = newcomer_frame(new, old, result.frame)
    rows, weights = newcomer_distances(new, of_new, old, result.frame)
    assert rows.shape == (3, 15)
    assert weights.shape == (3,)
    assert ((rows >= 0) & (rows <= 1)).all()
    assert truth[rows.argmin(axis=1)].tolist() == [0, 1, 2]


@every_case
def test_newcomers_join_the_cluster_of_their_group(options, told):
    new, old, result, _ = with_newcomers(options, told)
    placed = place_newcomers(new, old, result.labels_N, result.frame, result.cut.threshold)
    assert placed.labels_M.tolist() == result.labels_N[[0, 5, 10]].tolist()
    assert placed.opened_from == ()


@every_case
def test_the_frame_covers_old_and_new_items_and_travels(options, told):
    new, old, result, _ = with_newcomers(options, told)
    frame = place_newcomers(new, old, result.labels_N, result.frame, result.cut.threshold).frame
    assert frame.weights_N.shape == (18,)
    assert codec.digest(codec.decode(Frame, codec.encode(frame))) == codec.digest(frame)
    assert frame.options == options


def test_three_newcomers_of_an_unknown_kind_open_a_cluster_and_two_do_not():
    x, y, sketches, truth = planted(7)
    items, counts = signed(x, y)
    old = truth < 2

    def part(chosen):
        return Items.of([items[i] for i in np.flatnonzero(chosen)], counts[chosen], sketches[chosen])

    frame = cluster_signatures(part(old), ClusteringOptions(num_clusters=2)).frame
    three = place_newcomers(part(np.arange(15) >= 12), part(old), truth[old], frame, threshold=0.3)
    assert three.labels_M.tolist() == [2, 2, 2]
    assert len(three.opened_from) == 1
    two = place_newcomers(part(np.arange(15) >= 13), part(old), truth[old], frame, threshold=0.3)
    assert set(two.labels_M) <= {0, 1}
    assert two.opened_from == ()
    assert two.weak_M.all()


@every_case
def test_views_measured_again_by_the_kept_frame_are_those_of_the_clustering(options, told):
    x, y, sketches, _ = planted(8)
    items = items_with(*signed(x, y), sketches, told)
    result = cluster_signatures(items, options)
    shown = shown_views(items, result.frame)
    assert list(shown)[-1] == "Proximity"
    np.testing.assert_allclose(shown["Proximity"].matrix_NN, result.distances_NN, atol=2e-3)
    if options.composes:
        assert list(shown) == ["Labels", *["Pixels"] * (told == ALL), "Gradient", "Proximity"]
    else:
        _, views = measure(items, options)
        measured = {"Data angles": views.data, "Gradient angles": views.gradient}
        assert list(shown)[:-1] == [name for name, matrix in measured.items() if matrix is not None]
        for name in list(shown)[:-1]:
            np.testing.assert_allclose(shown[name].matrix_NN, measured[name], atol=2e-3)
    for view in shown.values():
        np.testing.assert_array_equal(view.matrix_NN, view.matrix_NN.T)


def test_a_kept_tree_travels_and_says_where_no_silhouette_is_defined():
    x, y, sketches, _ = planted(9)
    found = cluster_signatures(Items.of(*signed(x, y), sketches))
    kept, cut = KeptTree.of([f"c{i:02d}" for i in range(15)], found), found.cut
    tree = codec.decode(KeptTree, codec.encode(kept)).tree()
    np.testing.assert_array_equal(tree.linkage_matrix, cut.linkage_matrix)
    np.testing.assert_array_equal(tree.silhouettes_T, cut.scored.silhouettes_T)
    assert np.isnan(tree.silhouettes_T).any()
    assert len(codec.encode(kept)) < 15 * 200


def test_permuted_items_give_the_same_partition():
    x, y, sketches, _ = planted(3)
    items, counts = signed(x, y)
    order = np.random.default_rng(0).permutation(len(items))
    here = cluster_signatures(Items.of(items, counts, sketches)).labels_N
    turned = Items.of([items[k] for k in order], counts[order], sketches[order])
    there = cluster_signatures(turned).labels_N
    assert agreement(there, here[order]) == 1


def test_nan_in_a_signature_names_the_item_and_the_field():
    x, y, sketches, _ = planted(4)
    items, counts = signed(x, y)
    bad = sketches.copy()
    bad[3, 0] = np.nan
    with pytest.raises(ValueError, match="sketches of item 3"):
        Items.of(items, counts, bad)
    with pytest.raises(ValueError, match="counts of item 2"):
        Items.of(items, np.where(np.arange(15)[:, None] == 2, np.nan, counts), sketches)
    items[5] = Subspaces(items[5].vectors_PD * np.nan, items[5].classes_P)
    with pytest.raises(ValueError, match="subspaces of item 5"):
        Items.of(items, counts, sketches)


def test_old_and_new_items_must_both_have_sketches_and_one_for_each():
    x, y, sketches, _ = planted(5)
    items, counts = signed(x, y)
    found = cluster_signatures(Items.of(items, counts, sketches), ClusteringOptions(fusion="mean"))
    with pytest.raises(ValueError, match="some items sent no sketch"):
        shown_views(Items.of(items, counts), found.frame)
    with pytest.raises(ValueError, match="15 rows of counts, but 4 sketches"):
        Items.of(items, counts, sketches[:4])


@pytest.mark.parametrize("rule", ["row", "symmetric"])
@pytest.mark.parametrize("fusion", ["mlp", "entropy"])
def test_newcomers_meet_the_distances_of_old_clients_as_they_were(fusion: str, rule: str) -> None:
    generator = np.random.default_rng(0)
    subspaces, counts_NC = toy_items(generator, 12)
    items = Items(subspaces, counts_NC, generator.normal(size=(12, 9)).astype(np.float32))
    options = ClusteringOptions(
        fusion=fusion,  # type: ignore[arg-type]
        fusion_rule=rule,  # type: ignore[arg-type]
        class_weighting="frequency",
        weigh_absent=True,
        angles="pairs",
        cut_rule="loss",
    )
    found = cluster_signatures(items, options, seed=3)
    np.testing.assert_allclose(proximity_among(items, found.frame), found.distances_NN, atol=2e-3)
