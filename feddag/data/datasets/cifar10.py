# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10: 50,000 + 10,000 colour images of 32×32 pixels, 10 classes (Krizhevsky, 2009)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.download import Download
from feddag.data.images import atlases
from feddag.data.loading import Content, Layout, Samples, find, load_found

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SCALING = pixel_scaling((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
DOWNLOAD = Download(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    name="cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    unpack=True,
)


def read_binary(folder: Path) -> Content:
    """The published binary batches: a label byte and 3,072 pixel bytes per image, channel by channel."""
    train = [folder / name for name in BATCHES]
    test = [folder / "test_batch.bin"]
    train_y, test_y = (np.concatenate([records(p, 1)[:, 0] for p in paths]) for paths in (train, test))
    return Content(
        train=Samples(images(train, 1), train_y),
        test=Samples(images(test, 1), test_y),
        shape=(3, 32, 32),
        class_names=CLASSES,
        complete=(len(train_y), len(test_y)) == (50_000, 10_000),
    )


def records(path: Path, label_bytes: int) -> np.ndarray:
    """Rows of label bytes and pixel bytes, mapped."""
    record = label_bytes + 3072
    if path.stat().st_size % record:
        raise InvalidInput(f"{path}: its size is not a multiple of {record} bytes")
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, record)


def images(paths: Sequence[Path], label_bytes: int) -> Iterator[np.ndarray]:
    """The pixels of each file."""
    for path in paths:
        yield records(path, label_bytes)[:, label_bytes:].reshape(-1, 3, 32, 32)


def read_atlases(folder: Path) -> Content:
    """Lossless WebP atlases next to labels.npz, in the official order."""
    labels = np.load(folder / "labels.npz")
    train_y, test_y = labels["y_train"], labels["y_test"]
    return Content(
        train=Samples(atlases(sorted(folder.glob("train_*.webp")), 32, len(train_y)), train_y),
        test=Samples(atlases(sorted(folder.glob("test_*.webp")), 32, len(test_y)), test_y),
        shape=(3, 32, 32),
        class_names=CLASSES,
        complete=(len(train_y), len(test_y)) == (50_000, 10_000),
    )


LAYOUTS = (
    Layout("cifar-10-batches-bin", (*BATCHES, "test_batch.bin"), read_binary),
    Layout("cifar10", ("labels.npz", "train_*.webp", "test_*.webp"), read_atlases),
)


def load(config: DataConfig) -> Dataset:
    """CIFAR-10 from the data folder or, if allowed, from its authors."""
    refuse_pickles(config, "cifar-10-batches-py", "cifar-10-binary.tar.gz", LAYOUTS)
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)


def refuse_pickles(config: DataConfig, folder: str, instead: str, layouts: Sequence[Layout]) -> None:
    """The Python version is a pickle, which can run any code when it is read: say so, and what to use."""
    there = any(layout.missing(config.data_folder) is None for layout in layouts)
    if not there and not config.download and (config.data_folder / folder).is_dir():
        raise InvalidInput(
            f"data.name '{config.name}': {config.data_folder / folder} holds pickles, which are never read; "
            f"use the binary version ({instead})"
        )
