# SPDX-License-Identifier: Apache-2.0
"""The samples of one client that lie where its node says: a table, an .npz file, or folders of images."""

import tempfile
from dataclasses import replace
from pathlib import Path

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.datasets.own import load
from feddag.data.federation import Federation
from feddag.data.own.tables import TABLES

FILES = (".npz", *TABLES)


def own_client(
    path: Path, client: str, data: DataConfig, partition: PartitionConfig, seed: Seed
) -> Federation:
    """A federation of this one client; `path` may also be a folder with an entry for it among others."""
    entry = _entry(path, client)
    with tempfile.TemporaryDirectory(prefix="feddag-own-") as stage:
        # A folder with one entry per client is what own data look like: this one has one entry.
        suffix = "" if entry.is_dir() else entry.suffix.lower()
        link = Path(stage) / f"{client}{suffix}"
        link.symlink_to(entry.absolute(), target_is_directory=entry.is_dir())
        dataset = load(data.model_copy(update={"name": "own", "path": Path(stage)}))
        dataset = replace(dataset, source=replace(dataset.source, detail=str(entry)))
        kept = {name: getattr(partition, name) for name in ("validation", "test_samples")}
        return partition_dataset(dataset, PartitionConfig(**kept), None, seed)


def _entry(path: Path, client: str) -> Path:
    """The file or image folder that holds the client's samples."""
    if path.is_file() and path.suffix.lower() in FILES:
        return path
    if not path.is_dir():
        verb = "is not" if path.exists() else "does not exist; expected"
        raise InvalidInput(f"data = '{path}': it {verb} a .csv, .parquet or .npz file, or a folder")
    named = [path / client, *(path / f"{client}{suffix}" for suffix in FILES)]
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in FILES]
    found = [entry for entry in named if entry.exists()] or files
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:3])
        raise InvalidInput(f"data = '{path}': it has several files ({names}); name the one of this client")
    return found[0] if found else path  # a folder of images, one folder per class
