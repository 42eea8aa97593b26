# SPDX-License-Identifier: Apache-2.0
"""Colour images of 32×32 pixels: CIFAR's binary records, and lossless atlases of tiles."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.files.images import atlases
from feddag.data.loading import Content, Layout, Samples

SIZE = 32
PIXELS = 3 * SIZE * SIZE
ATLAS_FILES = ("labels.npz", "train_*.webp", "test_*.webp")


def read_records(
    folder: Path,
    train: Sequence[str],
    test: Sequence[str],
    label_bytes: int,
    class_names: Sequence[str],
    counts: tuple[int, int],
) -> Content:
    """Files of records: label bytes (the last one is used), then 3,072 pixel bytes, channel by channel."""

    def split(names: Sequence[str]) -> Samples:
        rows = [_mapped(folder / name, label_bytes + PIXELS) for name in names]
        images = (part[:, label_bytes:].reshape(-1, 3, SIZE, SIZE) for part in rows)
        return Samples(images, np.concatenate([part[:, label_bytes - 1] for part in rows]))

    return content_of(split(train), split(test), class_names, counts)


def _mapped(path: Path, record: int) -> np.ndarray:
    if path.stat().st_size % record:
        raise InvalidInput(f"{path}: its size is not a multiple of {record} bytes")
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, record)


def read_atlas_pair(
    folder: Path,
    class_names: Sequence[str] | None,
    counts: tuple[int, int],
    notes: Mapping[str, str] | None = None,
) -> Content:
    """Lossless WebP atlases next to labels.npz, which holds the class names where none are given."""
    labels = np.load(folder / "labels.npz")

    def split(name: str) -> Samples:
        y = labels[f"y_{name}"]
        return Samples(atlases(sorted(folder.glob(f"{name}_*.webp")), SIZE, len(y)), y)

    names = [str(name) for name in labels["classes"]] if class_names is None else class_names
    return content_of(split("train"), split("test"), names, counts, notes)


def content_of(
    train: Samples,
    test: Samples,
    class_names: Sequence[str],
    counts: tuple[int, int],
    notes: Mapping[str, str] | None = None,
) -> Content:
    """Both splits; complete if there are as many images as were published."""
    complete = (len(train.y), len(test.y)) == counts
    return Content(train, test, (3, SIZE, SIZE), class_names, complete=complete, notes=dict(notes or {}))


def refuse_pickles(config: DataConfig, folder: str, instead: str, layouts: Sequence[Layout]) -> None:
    """Refuse the Python version: it is a pickle, and reading a pickle can run any code."""
    there = any(layout.missing(config.data_folder) is None for layout in layouts)
    if not there and not config.download and (config.data_folder / folder).is_dir():
        raise InvalidInput(
            f"data.name '{config.name}': {config.data_folder / folder} holds pickles, which are never read; "
            f"use the binary version ({instead})"
        )
