# SPDX-License-Identifier: Apache-2.0
"""flwr-datasets partitioners, accepted as they are: they deal row numbers, everything else stays here."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.dataset import Dataset


class Partitioner(Protocol):
    """What flwr-datasets calls a partitioner."""

    dataset: Any

    @property
    def num_partitions(self) -> int:
        """Number of clients."""

    def load_partition(self, partition_id: int) -> Any:
        """The part of the dataset that one client holds."""


def rows_from_partitioner(partitioner: Partitioner, dataset: Dataset) -> Mapping[str, np.ndarray]:
    """Training rows of each client; the partitioner sees the columns `label` and maybe `client`.

    Use the result as `partition_dataset(..., dealt=rows)`.
    """
    try:
        from datasets import Dataset as Table
    except ImportError as error:
        raise InvalidInput("flwr-datasets partitioners need the package flwr-datasets") from error
    y = np.asarray(dataset.train.y)
    columns: dict[str, Any] = {"row": np.arange(len(y)), "label": y}
    if dataset.owners is not None:
        columns["client"] = [dataset.owners.names[o] for o in dataset.owners.train]
    wanted = getattr(partitioner, "_partition_by", None)
    if isinstance(wanted, str) and wanted not in columns:  # some sets call their label 'fine_label' or 'y'
        columns[wanted] = y
    partitioner.dataset = Table.from_dict(columns)
    number = partitioner.num_partitions
    width = max(3, len(str(number - 1)))
    return {
        f"c{i:0{width}d}": np.sort(np.asarray(partitioner.load_partition(i)["row"][:], dtype=np.int64))
        for i in range(number)
    }
