# SPDX-License-Identifier: Apache-2.0
"""The rows of each client: training rows from the partition kind, and the test rows that belong to them."""

from collections.abc import Sequence

import numpy as np

from feddag.core.seeds import Seed
from feddag.data.config import PartitionConfig
from feddag.data.dataset import Dataset, Tags
from feddag.data.dealing.partitions import PARTITIONS, DealingJob
from feddag.data.dealing.planting import PlantedGroups
from feddag.data.dealing.skews import Styles, label_map
from feddag.data.dealing.views import hold_out, sort_by_class, view_rows
from feddag.data.federation import Share


def training_rows(
    dataset: Dataset,
    partition: PartitionConfig,
    planted: PlantedGroups,
    styles: Styles | None,
    owners: np.ndarray | None,
    clients: int,
    seed: Seed,
) -> list[np.ndarray]:
    """Training rows of each client; with domains, each domain is dealt to its own clients."""
    split = PARTITIONS[partition.kind].split
    if split is None:
        assert owners is not None
        assert dataset.owners is not None
        return rows_by_tag(dataset.owners.train, owners)
    y = np.asarray(dataset.train.y, dtype=np.int64)
    rng = (seed / "deal").numpy()
    blocks = [(np.arange(len(y)), np.arange(clients), "")]
    if styles is not None and styles.kind == "domain":
        blocks = [
            (block, np.flatnonzero(styles.of_client == s), f" of domain '{styles.names[s]}'")
            for s, block in enumerate(_rows_of_domains(dataset.domains, styles, "train"))
        ]
    rows: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * clients
    for block, members, place in blocks:
        if len(members) == 0:
            continue
        holds_NC = None if planted.holds_NC is None else planted.holds_NC[members]
        job = DealingJob(y[block], dataset.num_classes, len(members), partition, rng, holds_NC, place)
        for member, part in zip(members, split(job), strict=True):
            rows[member] = np.sort(block[part])
    return rows


def rows_by_tag(tag_of_row: np.ndarray, wanted: np.ndarray) -> list[np.ndarray]:
    """Rows of each wanted tag, in stored order."""
    order = np.argsort(tag_of_row, kind="stable")
    starts = np.searchsorted(tag_of_row, wanted, side="left", sorter=order)
    ends = np.searchsorted(tag_of_row, wanted, side="right", sorter=order)
    return [order[a:b] for a, b in zip(starts, ends, strict=True)]


def _rows_of_domains(domains: Tags | None, styles: Styles, split: str) -> list[np.ndarray]:
    assert domains is not None
    wanted = np.array([domains.names.index(name) for name in styles.names])
    return rows_by_tag(getattr(domains, split), wanted)


def test_rows(
    dataset: Dataset,
    partition: PartitionConfig,
    rows: list[np.ndarray],
    styles: Styles | None,
    owners: np.ndarray | None,
    seed: Seed,
) -> list[np.ndarray]:
    """Test rows of each client: its own if clients are natural, else a view of the common test samples."""
    rng = (seed / "test").numpy()
    if owners is not None and dataset.owners is not None and (dataset.owners.test >= 0).all():
        own = rows_by_tag(dataset.owners.test, owners)
        limit = partition.test_samples
        return [r if limit is None or len(r) <= limit else np.sort(rng.permutation(r)[:limit]) for r in own]
    classes = dataset.num_classes
    train_y, test_y = (np.asarray(pool.y, dtype=np.int64) for pool in (dataset.train, dataset.test))
    counts_NC = np.stack([np.bincount(train_y[r], minlength=classes) for r in rows])
    if styles is not None and styles.kind == "domain":
        tests = _rows_of_domains(dataset.domains, styles, "test")
        trains = _rows_of_domains(dataset.domains, styles, "train")
        sorted_styles = [
            sort_by_class(test, test_y, train_y[train], classes)
            for test, train in zip(tests, trains, strict=True)
        ]
        return view_rows(sorted_styles, styles.of_client, counts_NC, partition, rng)
    everything = sort_by_class(np.arange(len(test_y)), test_y, train_y, classes)
    return view_rows([everything], np.zeros(len(rows), dtype=np.int64), counts_NC, partition, rng)


def make_shares(
    dataset: Dataset,
    partition: PartitionConfig,
    rows: list[np.ndarray],
    tests: list[np.ndarray],
    map_names: Sequence[str],
    concept_of_client: np.ndarray | None,
    seed: Seed,
) -> list[Share]:
    """Each client's rows with its validation part held out, and what its labels mean."""
    rng = (seed / "validation").numpy()
    train_y = np.asarray(dataset.train.y)
    maps = [label_map(name, dataset.num_classes) for name in map_names or ("identity",)]
    shares = []
    for i, (own, test) in enumerate(zip(rows, tests, strict=True)):
        held = hold_out(own, train_y, partition.validation, rng)
        relabel = maps[0 if concept_of_client is None else int(concept_of_client[i])]
        shares.append(Share(train=own[~held], validation=own[held], test=test, relabel=relabel))
    return shares
