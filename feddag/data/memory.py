# SPDX-License-Identifier: Apache-2.0
"""Data that is in memory: arrays per client, an object that has clients, or a Hugging Face dataset."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import NO_PLAN, partition_dataset
from feddag.data.config import PartitionConfig
from feddag.data.dataset import Dataset
from feddag.data.datasets.own import dataset_of
from feddag.data.federation import Federation
from feddag.data.files.hashing import sha256_of_arrays
from feddag.data.own.clients import Missing, Reading
from feddag.data.own.content import content_of
from feddag.data.own.reading import HasClients, read_clients
from feddag.data.scenario import Plan


def federation_from(
    data: Any,
    *,
    label: str = "label",
    client: str | None = "client",
    test_share: float = 0.2,
    missing: Missing = "refuse",
    partition: PartitionConfig | None = None,
    num_clients: int | None = None,
    seed: Seed | None = None,
    plan: Plan = NO_PLAN,
) -> Federation:
    """Make a federation from data in memory.

    `data` is one of:
    - a mapping client → (x, y), or client → {"train": (x, y), "test": (x, y)};
    - an object with `clients()` that returns such a mapping;
    - a Hugging Face dataset whose column `client` names the client and whose column `label` is the class
      (with `client=None` its samples are dealt to `num_clients` clients);
    - a Federation, which is returned as it is.

    Labels may be numbers or texts. If a client has no test part, `test_share` of each of its classes is held
    out, always the same samples. By default every client keeps its own samples; another `partition` deals
    all samples anew. `plan` says whose data change.
    """
    if isinstance(data, Federation):
        if plan:
            raise InvalidInput("scenario: drifts need samples to deal; the data are a Federation already")
        return data
    dataset = dataset_from(data, label, client, test_share, missing)
    return partition_dataset(dataset, partition or PartitionConfig(), num_clients, seed or Seed(1), plan=plan)


def dataset_from(
    data: Any,
    label: str = "label",
    client: str | None = "client",
    test_share: float = 0.2,
    missing: Missing = "refuse",
) -> Dataset:
    """A dataset of anything that `federation_from` takes, but a Federation."""
    if _is_hugging_face(data):
        return dataset_from_hugging_face(data, label, client, test_share, missing)
    if isinstance(data, Mapping) and data and all(_is_hugging_face(part) for part in data.values()):
        splits = ", ".join(f"data['{name}']" for name in data)
        raise InvalidInput(f"data: a Hugging Face DatasetDict has several datasets; choose one of {splits}")
    if isinstance(data, Mapping) or callable(getattr(data, "clients", None)):
        return dataset_from_clients(data, test_share, missing)
    raise InvalidInput(
        f"data: expected a mapping client → (x, y), an object with clients(), or a Hugging Face dataset, "
        f"got {type(data).__name__}"
    )


def dataset_from_clients(
    source: HasClients | Mapping[str, Any], test_share: float = 0.2, missing: Missing = "refuse"
) -> Dataset:
    """A dataset of a mapping id → (x, y), or of an object with `clients()` that returns one."""
    return _dataset(read_clients(source, missing), test_share, missing, "Python object")


def dataset_from_hugging_face(
    table: Any,
    label: str = "label",
    client: str | None = None,
    test_share: float = 0.2,
    missing: Missing = "refuse",
) -> Dataset:
    """A dataset of a Hugging Face `Dataset`: one image column or numeric columns, a label, maybe a client.

    Without a client column all samples belong to one owner, to be dealt by a partition kind.
    """
    names = list(table.column_names)
    for name in (label, *([] if client is None else [client])):
        if name not in names:
            raise InvalidInput(f"Hugging Face dataset: no column '{name}'; it has {', '.join(names)}")
    x = _inputs(table, [name for name in names if name not in (label, client)])
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
    dataset = _dataset(read_clients(parts, missing), test_share, missing, "Hugging Face Dataset")
    return replace(
        dataset,
        owners=None if client is None else dataset.owners,
        class_names=tuple(words[int(name)] for name in dataset.class_names) if words else dataset.class_names,
    )


def _is_hugging_face(data: Any) -> bool:
    return not isinstance(data, Mapping) and isinstance(getattr(data, "column_names", None), list)


def _inputs(table: Any, names: list[str]) -> np.ndarray:
    try:
        columns = [[np.asarray(value) for value in table[name]] for name in names]
    except ValueError as error:
        raise InvalidInput(f"Hugging Face dataset: a sample is not an array ({error})") from error
    if not columns:
        raise InvalidInput("Hugging Face dataset: no input columns besides label and client")
    if len(columns) == 1:
        shapes = {value.shape for value in columns[0]}
        if len(shapes) > 1:
            raise InvalidInput(f"Hugging Face dataset: column '{names[0]}' has samples of different shapes")
        if not shapes:
            raise InvalidInput("Hugging Face dataset: it has no rows")
        x = np.stack(columns[0])
        if x.dtype == np.uint8 and x.ndim in (3, 4):  # images: height, width and maybe channels
            return np.ascontiguousarray(x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1))
        return x if x.ndim > 1 else x[:, None]
    wrong = [
        f"'{name}'"
        for name, values in zip(names, columns, strict=True)
        if any(value.ndim or value.dtype.kind not in "fiub" for value in values)
    ]
    if wrong:
        raise InvalidInput(
            f"Hugging Face dataset: {', '.join(wrong)} must hold one number per row; remove other columns"
        )
    return np.stack([np.asarray(values, dtype=np.float32) for values in columns], axis=1)


def _dataset(reading: Reading, test_share: float, missing: Missing, detail: str) -> Dataset:
    content = content_of(reading, test_share, missing)
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
    return dataset_of(arrays, facts, detail, sha256)
