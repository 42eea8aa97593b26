# SPDX-License-Identifier: Apache-2.0
"""PACS: 9,991 images of 7 classes as art painting, cartoon, photo and sketch (Li et al., 2017)."""

import json
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.domains import SIZE, read_domain_atlases, read_domain_folders, split_domains
from feddag.data.files.download import Download
from feddag.data.files.images import picture
from feddag.data.loading import Content, Layout, find, load_found

COUNTS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
CLASSES = {name: (name,) for name in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")}
DOMAINS = {name: (name,) for name in COUNTS}
SCALING = pixel_scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
TABLE = "train-00000-of-00001.parquet"
# The authors publish no file. This copy is a fixed revision; several projects record the same hash for it.
DOWNLOAD = Download(
    url="https://huggingface.co/datasets/flwrlabs/pacs/resolve/394113073258ead631f617d2e13bb377c0715c4b/data/"
    + TABLE,
    name=f"PACS/{TABLE}",
    size=191_395_900,
    sha256="4fc041ee92eec6043fe6e2859e8bdd138e5f958bc621afd153879812cbe65ff5",
)


def read_table(folder: Path) -> Content:
    """All images as JPEG or PNG bytes in one table: image, domain, label; in the order of the folders."""
    path = folder / TABLE
    rows: dict[str, list[tuple[int, str, np.ndarray]]] = {domain: [] for domain in COUNTS}
    for row in _rows(path):
        if row["domain"] not in rows or not 0 <= row["label"] < len(CLASSES):
            raise InvalidInput(
                f"{path}: domain '{row['domain']}' with label {row['label']} is not one of PACS"
            )
        image = row["image"]
        pixels = picture(image["bytes"], f"{path}: an image of {row['domain']}", SIZE)
        rows[row["domain"]].append((row["label"], image["path"] or "", pixels))
    for domain, found in rows.items():
        if not found:
            raise InvalidInput(f"{path}: no images of domain '{domain}'")
        found.sort(key=lambda entry: entry[:2])
    images = [np.stack([pixels for _, _, pixels in found]) for found in rows.values()]
    y = [np.array([label for label, _, _ in found]) for found in rows.values()]
    return split_domains(images, y, list(COUNTS), list(CLASSES), COUNTS)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(path)
        stored = json.loads((table.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        names = stored.get("info", {}).get("features", {}).get("label", {}).get("names", list(CLASSES))
        if names != list(CLASSES):
            raise InvalidInput(f"{path}: expected the classes {', '.join(CLASSES)}, got {', '.join(names)}")
        for batch in table.iter_batches(batch_size=256, columns=["image", "domain", "label"]):
            yield from batch.to_pylist()
    except ArrowException as error:
        raise InvalidInput(f"{path}: not a table that can be read ({error})") from error


FILES = tuple(f"{domain}/*/*" for domain in COUNTS)
LAYOUTS = (
    *(
        Layout(name, FILES, partial(read_domain_folders, domains=DOMAINS, classes=CLASSES, counts=COUNTS))
        for name in ("PACS", "PACS/kfold", "pacs_data")
    ),
    Layout("PACS", (TABLE,), read_table),
    Layout(
        "pacs",
        ("labels.npz", *(f"{domain}.webp" for domain in COUNTS)),
        partial(read_domain_atlases, counts=COUNTS),
    ),
)


def load(config: DataConfig) -> Dataset:
    """PACS from the data folder or, if allowed, from a public copy."""
    there = next((layout for layout in LAYOUTS if layout.missing(config.data_folder) is None), None)
    if find_spec("pyarrow") is None and (config.download if there is None else TABLE in there.files):
        raise InvalidInput(
            "data.name 'pacs': the downloaded table needs pyarrow (pip install 'feddag[data]')"
        )
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)
