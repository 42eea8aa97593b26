# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.config import PartitionConfig
from feddag.data.flower import rows_from_partitioner
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
