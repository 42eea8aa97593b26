# SPDX-License-Identifier: Apache-2.0
"""Your own folder or table as a dataset, converted once and mapped from then on."""

from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.federation import Source
from feddag.data.files.cache import cached
from feddag.data.files.hashing import sha256_of_files, sha256_of_text
from feddag.data.loading import from_entry, write_content
from feddag.data.own.clients import OwnSettings, Reading
from feddag.data.own.content import content_of
from feddag.data.own.reading import own_files, read_own


def own_settings(config: DataConfig) -> OwnSettings:
    """The settings that say how your own data is read."""
    return OwnSettings(config.label, config.client, config.features, config.missing)


def own_path(config: DataConfig) -> Path:
    """The folder or table; it is an error if the settings name none."""
    if config.path is None:
        raise InvalidInput("data.path: name = 'own' needs the folder or table with your samples")
    return config.path.expanduser()


def load(config: DataConfig) -> Dataset:
    """The folder or table `data.path`."""
    return load_read(config, None)


def load_read(config: DataConfig, reading: Reading | None) -> Dataset:
    """The folder or table `data.path`; if the caller has read it already, that reading is used."""
    path = own_path(config)
    root = path if path.is_dir() else path.parent
    sha256 = sha256_of_files(own_files(path), root)

    def make(folder: Path) -> dict[str, Any]:
        read = reading or read_own(path, own_settings(config))
        facts = write_content(folder, content_of(read, config.test_share, config.missing))
        if sha256_of_files(own_files(path), root) != sha256:
            raise InvalidInput(f"{path}: its files changed while they were read; start again")
        return facts

    settings = f"{sha256} {config.label} {config.client} {config.test_share}"
    settings += f" {list(config.features)} {config.missing} with columns"
    entry = cached(config.cache_folder, "own", sha256_of_text(settings), make)
    return dataset_of(entry.arrays, entry.facts, str(path), sha256)


def dataset_of(arrays: dict[str, np.ndarray], facts: dict[str, Any], detail: str, sha256: str) -> Dataset:
    """A dataset of arrays by name, such as those of a cache entry."""
    source = Source(
        dataset="own",
        kind="local",
        detail=detail,
        train_samples=len(arrays["train_y"]),
        test_samples=len(arrays["test_y"]),
        sha256=sha256,
    )
    return from_entry(arrays, facts, source, None)
