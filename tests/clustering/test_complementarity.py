# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.clustering.angles import KeptAngles
from feddag.clustering.arrays import canonical_labels
from feddag.clustering.complementarity import (
    cluster_alignment,
    cluster_demand_and_supply,
    complementarity_graph,
    demand_and_supply,
)
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.proximity import measure
from tests.clustering import literal
from tests.clustering.toys import CLASSES, toy_items


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 7), st.booleans(), st.booleans())
def test_scores_equal_the_loops(seed, n, lacking_classes, shared_alignment):
    generator = np.random.default_rng(seed)
    items, counts = toy_items(generator, n)
    labels = canonical_labels(generator.integers(3, size=n))
    demand, supply = cluster_demand_and_supply(counts, labels, lacking_classes=lacking_classes)
    expected = literal.demand_and_supply(counts, labels, lacking_classes)
    np.testing.assert_allclose(demand, expected[0])
    np.testing.assert_allclose(supply, expected[1])
    aligned = cluster_alignment(Items.of(items, counts), labels, "pairs", shared_alignment=shared_alignment)
    np.testing.assert_allclose(
        aligned, literal.alignment(items, labels, CLASSES, shared_alignment), atol=1e-3
    )
    graph = complementarity_graph(
        counts, labels, aligned, options=GraphOptions(lacking_classes=lacking_classes)
    )
    np.testing.assert_allclose(graph.scores_ZZ, literal.complementarity(demand, supply, aligned))


@pytest.mark.parametrize("shared_alignment", [True, False])
@pytest.mark.parametrize("weighting", ["frequency", "reliability"])
def test_angles_kept_from_the_first_pass_give_the_same_alignment(shared_alignment, weighting):
    items, counts = toy_items(np.random.default_rng(1), 9)
    labels, kept = np.arange(9) % 3, KeptAngles()
    together = Items.of(items, counts)
    measure(together, ClusteringOptions(class_weighting=weighting), kept)
    again = cluster_alignment(together, labels, "subspace", shared_alignment=shared_alignment)
    known = cluster_alignment(
        together, labels, "subspace", shared_alignment=shared_alignment, known=kept.blocks
    )
    np.testing.assert_array_equal(known, again)


def test_angles_that_take_too_much_room_are_not_kept():
    items, counts = toy_items(np.random.default_rng(1), 9)
    kept = KeptAngles(limit=400)
    measure(Items.of(items, counts), ClusteringOptions(), kept)
    assert kept.blocks is None


@pytest.mark.parametrize("shared_alignment", [True, False])
def test_a_sample_of_many_items_estimates_the_alignment_of_all(shared_alignment):
    items, counts = toy_items(np.random.default_rng(2), 600)
    labels = np.arange(600) % 3
    whole = cluster_alignment(Items.of(items, counts), labels, "pairs", shared_alignment=shared_alignment)
    sampled = cluster_alignment(
        Items.of(items, counts), labels, "pairs", shared_alignment=shared_alignment, max_sampled=300, seed=4
    )
    assert not np.array_equal(sampled, whole)
    apart = ~np.eye(3, dtype=bool)  # a cluster's alignment with itself counts self-pairs, and is not used
    np.testing.assert_allclose(sampled[apart], whole[apart], atol=0.02)


def test_ranks_of_a_small_example_by_hand():
    demand, supply = demand_and_supply([[5, 0, 5, 90]])
    # three classes: two share ranks 0 and 1, the frequent one has rank 2, the absent one is wanted most
    np.testing.assert_allclose(demand, [[2.5, 4, 2.5, 1]])
    np.testing.assert_allclose(supply, [[1.5, 0, 1.5, 3]])
    demand, supply = demand_and_supply([[5, 0, 5, 90]], lacking_classes=False)
    np.testing.assert_allclose(demand, [[2.5, 0, 2.5, 1]])


def test_every_cluster_learns_from_the_one_that_has_what_it_lacks():
    counts = np.array([[50, 50, 0, 0], [0, 0, 50, 50], [50, 0, 0, 50]])
    graph = complementarity_graph(counts, np.array([0, 1, 2]), options=GraphOptions(num_sources=1))
    assert graph.sources_of(0) == [1]
    assert graph.sources_of(1) == [0]


def test_literal_rules_score_zero_between_clusters_without_a_common_class():
    counts = np.array([[50, 50, 0, 0], [0, 0, 50, 50]])
    graph = complementarity_graph(counts, np.array([0, 1]), options=GraphOptions(lacking_classes=False))
    assert graph.scores_ZZ[0, 1] == 0


@pytest.mark.parametrize("clusters", [0, 1, 2, 3])
def test_no_cluster_is_its_own_source_and_few_clusters_have_few_sources(clusters):
    counts = np.ones((clusters, 2))
    graph = complementarity_graph(counts, np.arange(clusters), options=GraphOptions(num_sources=3))
    assert len(graph.learners_E) == clusters * max(clusters - 1, 0)
    assert not (graph.learners_E == graph.sources_E).any()


def test_equal_scores_are_decided_by_distance_then_by_number():
    counts = np.ones((3, 2))
    distances = np.array([[0, 0.9, 0.1], [0.9, 0, 0.5], [0.1, 0.5, 0]])
    assert complementarity_graph(counts, np.arange(3)).sources_of(0) == [1, 2]
    assert complementarity_graph(counts, np.arange(3), distances_NN=distances).sources_of(0) == [2, 1]


def test_labels_with_gaps_are_refused():
    with pytest.raises(ValueError, match="without gaps"):
        complementarity_graph(np.ones((2, 2)), np.array([0, 2]))
