# SPDX-License-Identifier: Apache-2.0
"""The clusters in use against the plain cut: the page never contradicts itself."""

import dataclasses

import numpy as np
import pytest

from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.reporting.pages.cuts import cut_facts, plain_cut, refines
from tests.reporting.toys import full_clustering, tree_of

# Six clients on a line: a b c | d | e f. At threshold 4 the plain cut gives these three groups.
NAMES = ("a", "b", "c", "d", "e", "f")
TREE = tree_of(NAMES, np.array([0.0, 1.0, 2.0, 10.0, 30.0, 31.0]), threshold=4.0)


def facts_of(*members: tuple[str, ...]):
    facts = cut_facts(Clustering(clusters=Clusters(members=members), how="by hand", tree=TREE))
    assert facts is not None
    return facts


def test_without_a_tree_there_is_no_cut() -> None:
    assert cut_facts(Clustering(clusters=Clusters(members=(("a",),)), how="by hand")) is None


@pytest.mark.parametrize("n", [0, 1])
def test_a_tree_without_merges_has_no_difference_to_tell(n: int) -> None:
    facts = cut_facts(full_clustering(n))
    assert facts is not None
    assert (facts.plain_count, facts.sentence) == (n, "")


def test_the_plain_cut_makes_all_merges_up_to_the_threshold() -> None:
    assert [len(set(plain_cut(TREE, t).tolist())) for t in (0.5, 1.0, 1.5, 9.0, 100.0)] == [6, 4, 3, 2, 1]


def test_the_plain_cut_itself_needs_no_sentence_and_has_scores() -> None:
    facts = facts_of(("a", "b", "c"), ("d",), ("e", "f"))
    assert (facts.plain_count, facts.sentence) == (3, "")
    # thresholds 2, 4 and 8 all give this partition; 4 is nearest: the fourth of the linear scores
    assert facts.silhouette == pytest.approx(0.1 + 0.5 * 3 / 5)
    assert facts.loss == pytest.approx(0.9 - 0.8 * 3 / 5)


def test_absorbed_small_clusters_are_told() -> None:
    facts = facts_of(("a", "b", "c", "d"), ("e", "f"))
    assert facts.sentence == (
        "A plain cut of the tree at 4 gives 3 clusters, but 2 clusters are in use: "
        "small clusters joined their nearest larger one."
    )


def test_a_merge_of_equals_is_not_called_a_merge_of_small_ones() -> None:
    names = ("a", "b", "e", "f")
    tree = tree_of(names, np.array([0.0, 1.0, 30.0, 31.0]), threshold=4.0)
    facts = cut_facts(Clustering(clusters=Clusters(members=(names,)), how="by hand", tree=tree))
    assert facts is not None
    assert facts.sentence.endswith("gives 2 clusters, but 1 cluster is in use: some clusters were merged.")


def test_a_further_split_is_told() -> None:
    assert "some clusters were split further" in facts_of(("a", "b"), ("c",), ("d",), ("e", "f")).sentence


def test_other_members_in_equally_many_clusters_are_told() -> None:
    sentence = facts_of(("a", "b"), ("c", "d"), ("e", "f")).sentence
    assert sentence.startswith("The clusters in use are not exactly those of a plain cut at 4")
    assert "the method changed some clusters after the cut" in sentence


def test_a_cluster_of_newcomers_alone_is_told() -> None:
    facts = facts_of(("a", "b", "c"), ("d",), ("e", "f"), ("new",))
    assert (
        "but 4 clusters are in use: 1 cluster holds only clients that are not in the tree" in facts.sentence
    )


def test_newcomers_in_old_clusters_change_nothing() -> None:
    assert facts_of(("a", "b", "c", "new"), ("d",), ("e", "f")).sentence == ""


def test_clients_that_left_are_told_and_the_scores_no_longer_hold() -> None:
    facts = facts_of(("a", "b", "c"), ("e", "f"))
    assert "1 client of the tree left the clusters" in facts.sentence
    assert (facts.silhouette, facts.loss) == (None, None)


def test_a_partition_that_no_scored_cut_gives_has_no_scores() -> None:
    facts = facts_of(("a", "b", "c", "d"), ("e",), ("f",))
    assert (facts.silhouette, facts.loss) == (None, None)


def test_scores_that_are_not_numbers_are_not_known() -> None:
    tree = dataclasses.replace(TREE, silhouettes_T=np.full(6, np.nan), losses_T=np.zeros(0))
    members = (("a", "b", "c"), ("d",), ("e", "f"))
    facts = cut_facts(Clustering(clusters=Clusters(members=members), how="by hand", tree=tree))
    assert facts is not None
    assert (facts.silhouette, facts.loss) == (None, None)


def test_a_partition_refines_another_if_each_group_lies_inside_one() -> None:
    assert refines(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 1]))
    assert not refines(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 2]))
