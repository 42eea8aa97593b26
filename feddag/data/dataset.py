# SPDX-License-Identifier: Apache-2.0
"""Dataset: samples before they are dealt to clients, and the choice of a part of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from feddag.core.examples import Scaling
from feddag.core.seeds import Seed
from feddag.data.dealing.allocate import round_to_total
from feddag.data.federation import Pool, Source

PIXELS = Scaling(unit=255.0)


@dataclass(frozen=True)
class Tags:
    """What each sample belongs to: `names[train[i]]` is the owner or domain of training sample i."""

    names: tuple[str, ...]
    train: np.ndarray  # (n_train,) index into names
    test: np.ndarray  # (n_test,)


@dataclass(frozen=True)
class Dataset:
    """Labelled samples with their origin; `owners` are natural clients, `domains` are styles."""

    train: Pool
    test: Pool
    num_classes: int
    source: Source
    scaling: Scaling = field(default_factory=Scaling)
    class_names: tuple[str, ...] = ()
    owners: Tags | None = None
    domains: Tags | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of tables, see Problem


def pixel_scaling(mean: tuple[float, ...], std: tuple[float, ...]) -> Scaling:
    """Scaling of uint8 pixels with the mean and deviation of each channel in [0, 1]."""
    return Scaling(unit=255.0, mean=mean, std=std)


def part_of(dataset: Dataset, max_train: int | None, max_test: int | None) -> Dataset:
    """A part with at most these numbers of samples, drawn evenly over classes, owners and domains."""
    train_rows = _rows_to_keep(dataset, "train", max_train)
    test_rows = _rows_to_keep(dataset, "test", max_test)
    if train_rows is None and test_rows is None:
        return dataset
    train, test = _take(dataset.train, train_rows), _take(dataset.test, test_rows)
    source = replace(dataset.source, train_samples=len(train), test_samples=len(test), complete=False)
    return replace(
        dataset,
        train=train,
        test=test,
        source=source,
        owners=_take_tags(dataset.owners, train_rows, test_rows),
        domains=_take_tags(dataset.domains, train_rows, test_rows),
    )


def _rows_to_keep(dataset: Dataset, split: str, limit: int | None) -> np.ndarray | None:
    pool: Pool = getattr(dataset, split)
    if limit is None or limit >= len(pool):
        return None
    stratum = np.asarray(pool.y, dtype=np.int64)
    for tags in (dataset.owners, dataset.domains):
        if tags is not None:
            stratum = stratum * len(tags.names) + getattr(tags, split)
    rng = (Seed(0) / "part-of" / split).numpy()
    order = rng.permutation(len(pool))
    strata, inverse = np.unique(stratum, return_inverse=True)
    sizes = np.bincount(inverse)
    keep = round_to_total(sizes / sizes.sum(), limit, most=sizes)
    rows = [order[inverse[order] == s][: keep[s]] for s in range(len(strata))]
    return np.sort(np.concatenate(rows))


def _take(pool: Pool, rows: np.ndarray | None) -> Pool:
    return pool if rows is None else Pool(np.ascontiguousarray(pool.x[rows]), np.asarray(pool.y)[rows])


def _take_tags(tags: Tags | None, train: np.ndarray | None, test: np.ndarray | None) -> Tags | None:
    if tags is None:
        return None
    return Tags(
        tags.names,
        tags.train if train is None else tags.train[train],
        tags.test if test is None else tags.test[test],
    )
