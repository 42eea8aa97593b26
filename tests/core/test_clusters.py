# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddag.core import codec
from feddag.core.clusters import Clusters
from feddag.core.errors import InvalidMessage


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_labels_make_a_partition_numbered_by_smallest_member(labels):
    clients = [f"c{i:02d}" for i in range(len(labels))]
    clusters = Clusters.from_labels(clients, labels)
    assert sorted(c for members in clusters.members for c in members) == clients
    assert [members[0] for members in clusters.members] == sorted(m[0] for m in clusters.members)
    for a, b in zip(clients, labels, strict=True):
        assert clusters.of(a) == clusters.of(clients[labels.index(b)])


def test_a_client_in_two_clusters_is_refused_by_name():
    with pytest.raises(InvalidMessage, match="'b' in several"):
        Clusters(members=(("a", "b"), ("b",)))


def test_an_empty_cluster_is_refused():
    with pytest.raises(InvalidMessage, match="empty cluster"):
        Clusters(members=(("a",), ()))


def test_nested_splits_keep_a_partition_of_client_ids():
    clusters = Clusters(members=(tuple("abcdefgh"),))
    clusters = clusters.split(0, "aceg", "bdfh").split(1, "bd", "fh").split(0, "ag", "ce")
    assert clusters.members == (("a", "g"), ("b", "d"), ("f", "h"), ("c", "e"))
    assert codec.decode(Clusters, codec.encode(clusters)) == clusters


def test_a_split_into_other_clients_is_refused():
    with pytest.raises(InvalidMessage, match="make up cluster 0"):
        Clusters(members=(("a", "b"),)).split(0, "a", "c")


def test_replies_are_grouped_in_order_and_silent_clusters_left_out():
    clusters = Clusters(members=(("a", "d"), ("b",), ("c",)))
    assert clusters.group({"d": 4, "c": 3, "a": 1}) == {0: {"a": 1, "d": 4}, 2: {"c": 3}}


def test_a_newcomer_joins_a_cluster_or_opens_one():
    clusters = Clusters(members=(("a",), ("c",)))
    assert clusters.add("b", 1).members == (("a",), ("b", "c"))
    assert clusters.add("b", 2).members == (("a",), ("c",), ("b",))
    with pytest.raises(KeyError, match="no cluster"):
        clusters.of("b")
