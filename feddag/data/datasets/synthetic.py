# SPDX-License-Identifier: Apache-2.0
"""Gaussian mixtures: each planted group has its own class centres, so inputs of a label differ by group."""

import numpy as np

from feddag.core.seeds import Seed
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, Tags
from feddag.data.federation import Pool, Source
from feddag.data.files.hashing import sha256_of_arrays


def load(config: DataConfig) -> Dataset:
    """Samples `centre[mixture, class] + noise`; a mixture is a domain, so a client belongs to one."""
    settings = config.synthetic
    seed = Seed(settings.seed) / "synthetic"
    centres = (
        (seed / "centres").numpy().standard_normal((settings.groups, settings.classes, settings.dimensions))
    )
    centres *= settings.spread / np.sqrt(2 * settings.dimensions)  # mean distance of two centres: spread
    pools, tags = [], []
    for split, number in (("train", settings.train), ("test", settings.test)):
        rng = (seed / split).numpy()
        cell = rng.permutation(np.arange(number) % (settings.groups * settings.classes))
        mixture, y = cell // settings.classes, cell % settings.classes
        x = centres[mixture, y] + rng.standard_normal((number, settings.dimensions))
        pools.append(Pool(x.astype(np.float32), y.astype(np.int64)))
        tags.append(mixture)
    train, test = pools
    return Dataset(
        train=train,
        test=test,
        num_classes=settings.classes,
        source=Source(
            dataset="synthetic",
            kind="generated",
            detail=settings.model_dump_json(),
            train_samples=len(train),
            test_samples=len(test),
            sha256=sha256_of_arrays(train.x, train.y, test.x, test.y),
        ),
        domains=Tags(tuple(f"mixture{g}" for g in range(settings.groups)), tags[0], tags[1]),
    )
