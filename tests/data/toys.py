# SPDX-License-Identifier: Apache-2.0
"""Datasets whose samples are their own row numbers."""

import numpy as np

from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.config import PartitionConfig
from feddag.data.dataset import Dataset
from feddag.data.federation import Federation, Pool, Source


def toy(train_y, classes=None, test_per_class=3, owners=None, domains=None) -> Dataset:
    """A dataset whose samples are their own row numbers."""
    y = np.asarray(train_y, dtype=np.int64)
    classes = int(y.max()) + 1 if classes is None else classes
    test_y = np.repeat(np.arange(classes), test_per_class)
    return Dataset(
        train=Pool(np.arange(len(y), dtype=np.float32)[:, None], y),
        test=Pool(np.arange(len(test_y), dtype=np.float32)[:, None], test_y),
        num_classes=classes,
        source=Source(dataset="toy", kind="generated"),
        owners=owners,
        domains=domains,
    )


def even(classes: int, per_class: int, **more) -> Dataset:
    return toy(np.tile(np.arange(classes), per_class), classes, **more)


def split(dataset: Dataset, clients: int | None, seed: int = 0, **settings) -> Federation:
    return partition_dataset(dataset, PartitionConfig(**{"validation": 0.0, **settings}), clients, Seed(seed))


def used_rows(federation: Federation) -> np.ndarray:
    return np.concatenate([np.concatenate([s.train, s.validation]) for s in federation.clients.values()])
