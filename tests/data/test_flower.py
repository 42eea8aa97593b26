# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.config import PartitionConfig
from feddag.data.dataset import Tags
from feddag.data.dealing.flower import rows_from_partitioner
from tests.data.toys import even, used_rows

partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="pip install flwr-datasets")


def test_their_dirichlet_partitioner_deals_our_samples_and_ours_adds_concepts():
    partitioner = partitioners.DirichletPartitioner(num_partitions=6, partition_by="label", alpha=1.0, seed=1)
    dealt = rows_from_partitioner(partitioner, even(5, 100))
    federation = partition_dataset(even(5, 100), PartitionConfig(concept={}), None, Seed(0), dealt=dealt)
    assert sorted(used_rows(federation)) == list(range(500))
    assert len(set(federation.groups.values())) == 3


def test_a_partitioner_by_another_label_name_sees_the_label():
    partitioner = partitioners.PathologicalPartitioner(
        num_partitions=5, partition_by="fine_label", num_classes_per_partition=2
    )
    dealt = rows_from_partitioner(partitioner, even(5, 100))
    assert {len(np.unique(even(5, 100).train.y[rows])) for rows in dealt.values()} == {2}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("IidPartitioner", {"num_partitions": 6}),
        ("LinearPartitioner", {"num_partitions": 6}),
        ("SquarePartitioner", {"num_partitions": 6}),
        ("ExponentialPartitioner", {"num_partitions": 4}),
        ("SizePartitioner", {"partition_sizes": [100, 200, 200]}),
        ("InnerDirichletPartitioner", {"partition_sizes": [100] * 5, "partition_by": "label", "alpha": 0.5}),
        ("NaturalIdPartitioner", {"partition_by": "client"}),
        ("GroupedNaturalIdPartitioner", {"partition_by": "client", "group_size": 2}),
    ],
)
def test_their_other_partitioners_deal_every_sample_once(kind, settings):
    owners = Tags(("anna", "bert", "carl", "dora"), np.arange(500) % 4, np.full(15, -1))
    dataset = even(5, 100, owners=owners)
    dealt = rows_from_partitioner(getattr(partitioners, kind)(**settings), dataset)
    assert sorted(np.concatenate(list(dealt.values()))) == list(range(500))
    if kind == "NaturalIdPartitioner":
        assert all(len(np.unique(owners.train[rows])) == 1 for rows in dealt.values())
    if kind == "SizePartitioner":
        assert [len(rows) for rows in dealt.values()] == [100, 200, 200]


def test_shards_leave_out_only_what_does_not_fill_one():
    partitioner = partitioners.ShardPartitioner(
        num_partitions=6, partition_by="label", num_shards_per_partition=2, shard_size=20
    )
    dealt = rows_from_partitioner(partitioner, even(5, 100))
    assert [len(rows) for rows in dealt.values()] == [40] * 6
    assert len(np.unique(np.concatenate(list(dealt.values())))) == 240
