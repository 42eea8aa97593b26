# SPDX-License-Identifier: Apache-2.0
"""One's own data with natural clients: a folder, a table, Python objects, a Hugging Face Dataset."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.federation import Source
from feddag.data.files.cache import cached
from feddag.data.files.hashing import sha256_of_arrays, sha256_of_files, sha256_of_text
from feddag.data.loading import Content, Samples, from_entry, write_content
from feddag.data.own import ClientArrays, HasClients, Reading, plain_labels, read_clients, read_own


def load(config: DataConfig) -> Dataset:
    """The folder or table `data.path`, converted once and mapped ever after."""
    if config.path is None:
        raise InvalidInput("data.path: name = 'own' needs the folder or table with your samples")
    path = config.path.expanduser()
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path] if path.is_file() else []
    sha256 = sha256_of_files(files, path if path.is_dir() else path.parent)

    def make(folder: Path) -> dict[str, Any]:
        return write_content(folder, _content(read_own(path, config.label, config.client), config.test_share))

    settings = f"{sha256} {config.label} {config.client} {config.test_share}"
    entry = cached(config.cache_folder, "own", sha256_of_text(settings), make)
    return _dataset(entry.arrays, entry.facts, "local", str(path), sha256)


def dataset_from_clients(
    source: HasClients | Mapping[str, tuple[np.ndarray, np.ndarray]], test_share: float = 0.2
) -> Dataset:
    """A dataset of a mapping id → (x, y), or of an object with `clients()` that returns one."""
    return _in_memory(read_clients(source), test_share, "Python object")


def dataset_from_hugging_face(
    table: Any, label: str = "label", client: str | None = None, test_share: float = 0.2
) -> Dataset:
    """A dataset of a Hugging Face `Dataset`: one image column or numeric columns, a label, maybe a client.

    Without a client column all samples belong to one owner, to be dealt by a partition kind.
    """
    names = list(table.column_names)
    for name in (label, *([] if client is None else [client])):
        if name not in names:
            raise InvalidInput(f"Hugging Face dataset: no column '{name}'; it has {', '.join(names)}")
    inputs = [name for name in names if name not in (label, client)]
    x = _inputs(table, inputs)
    y = np.asarray(table[label][:] if hasattr(table[label], "__getitem__") else table[label])
    words = getattr(getattr(table, "features", {}).get(label), "names", None)  # of a ClassLabel
    if words and not 0 <= y.min(initial=0) <= y.max(initial=0) < len(words):
        raise InvalidInput(
            f"Hugging Face dataset: column '{label}' has labels {y.min()} to {y.max()}, "
            f"expected 0 to {len(words) - 1} (-1 stands for samples without a label: leave them out)"
        )
    parts = {"all": (x, y)}
    if client is not None:
        owner = np.asarray([str(value) for value in table[client]])
        parts = {str(name): (x[owner == name], y[owner == name]) for name in np.unique(owner)}
    dataset = _in_memory(read_clients(parts), test_share, "Hugging Face Dataset")
    return replace(
        dataset,
        owners=None if client is None else dataset.owners,
        class_names=tuple(words[int(name)] for name in dataset.class_names) if words else dataset.class_names,
    )


def _inputs(table: Any, names: list[str]) -> np.ndarray:
    columns = [[np.asarray(value) for value in table[name]] for name in names]
    if not columns:
        raise InvalidInput("Hugging Face dataset: no input columns besides label and client")
    if len(columns) == 1:
        shapes = {value.shape for value in columns[0]}
        if len(shapes) > 1:
            raise InvalidInput(f"Hugging Face dataset: column '{names[0]}' has samples of different shapes")
        x = np.stack(columns[0])
        if x.dtype == np.uint8 and x.ndim in (3, 4):  # images: height, width and maybe channels
            return np.ascontiguousarray(x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1))
        return x if x.ndim > 1 else x[:, None]
    for name, values in zip(names, columns, strict=True):
        if values and (values[0].ndim or values[0].dtype.kind not in "fiub"):
            raise InvalidInput(f"Hugging Face dataset: column '{name}' is not a column of numbers")
    return np.stack([np.asarray(values, dtype=np.float32) for values in columns], axis=1)


def _in_memory(reading: Reading, test_share: float, detail: str) -> Dataset:
    content = _content(reading, test_share)
    arrays: dict[str, np.ndarray] = {}
    for split, samples in (("train", content.train), ("test", content.test)):
        chunks = [np.asarray(chunk) for chunk in samples.x]
        arrays[f"{split}_x"] = np.concatenate(chunks).astype(content.dtype)
        arrays[f"{split}_y"] = np.asarray(samples.y, dtype=np.int64)
        assert samples.owner is not None
        arrays[f"{split}_owner"] = samples.owner
    facts = {
        "class_names": list(content.class_names),
        "owner_names": list(content.owner_names),
        "domain_names": [],
        "notes": content.notes,
    }
    sha256 = sha256_of_arrays(*(arrays[name] for name in ("train_x", "train_y", "test_x", "test_y")))
    return _dataset(arrays, facts, "local", detail, sha256)


def _dataset(
    arrays: dict[str, np.ndarray], facts: dict[str, Any], kind: str, detail: str, sha256: str
) -> Dataset:
    source = Source(
        dataset="own",
        kind=kind,
        detail=detail,
        train_samples=len(arrays["train_y"]),
        test_samples=len(arrays["test_y"]),
        sha256=sha256,
    )
    return from_entry(arrays, facts, source, None)


def _content(reading: Reading, test_share: float) -> Content:
    """All clients together; a client without a test part of its own gives a share of each class."""
    if reading.problems:
        more = len(reading.problems) - 1
        hint = f" (and {more} more: `feddag data check` prints all)" if more else ""
        raise InvalidInput(reading.problems[0] + hint)
    labels = [part for c in reading.clients for part in (c.y, c.test_y) if part is not None]
    values = np.unique(np.concatenate([plain_labels(y) for y in labels]))
    integer = all(c.x.dtype.kind in "iub" for c in reading.clients)
    pixels = all(c.x.dtype == np.uint8 for c in reading.clients)
    parts = [_split(c, values, test_share) for c in reading.clients]
    splits = []
    for at in (0, 1):
        owner = np.repeat(np.arange(len(parts)), [len(part[at][1]) for part in parts])
        y = np.concatenate([part[at][1] for part in parts])
        splits.append(Samples([part[at][0] for part in parts], y, owner=owner))
    own_test = all(c.test_y is not None for c in reading.clients)
    return Content(
        train=splits[0],
        test=splits[1],
        shape=reading.clients[0].x.shape[1:],
        dtype=np.uint8 if pixels else np.int64 if integer else np.float32,
        class_names=[str(value) for value in values],
        owner_names=[c.name for c in reading.clients],
        notes={} if own_test else {"test split": f"ours: {test_share:.0%} of each client's classes, fixed"},
    )


Part = tuple[np.ndarray, np.ndarray]


def _split(c: ClientArrays, values: np.ndarray, test_share: float) -> tuple[Part, Part]:
    y = np.searchsorted(values, plain_labels(c.y))
    if c.test_x is not None and c.test_y is not None:
        return (c.x, y), (c.test_x, np.searchsorted(values, plain_labels(c.test_y)))
    test = held_out_mask(y, test_share, f"own/{c.name}")
    return (c.x[~test], y[~test]), (c.x[test], y[test])
