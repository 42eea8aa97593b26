# SPDX-License-Identifier: Apache-2.0
"""CIFAR-100: 50,000 + 10,000 colour images of 32×32 pixels, 100 fine classes (Krizhevsky, 2009)."""

from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.datasets.cifar10 import images, records, refuse_pickles
from feddag.data.download import Download
from feddag.data.images import atlases
from feddag.data.loading import Content, Layout, Samples, find, load_found

SCALING = pixel_scaling((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
DOWNLOAD = Download(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    name="cifar-100-binary.tar.gz",
    size=168_513_733,
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    unpack=True,
)


def read_binary(folder: Path) -> Content:
    """The published binary files: coarse label, fine label and 3,072 pixel bytes per image."""
    train, test = folder / "train.bin", folder / "test.bin"
    names = (folder / "fine_label_names.txt").read_text().split()
    if len(names) != 100:
        raise InvalidInput(f"{folder / 'fine_label_names.txt'}: 100 names expected, got {len(names)}")
    train_y, test_y = records(train, 2)[:, 1], records(test, 2)[:, 1]
    return Content(
        train=Samples(images([train], 2), train_y),
        test=Samples(images([test], 2), test_y),
        shape=(3, 32, 32),
        class_names=names,
        complete=(len(train_y), len(test_y)) == (50_000, 10_000),
    )


def read_atlases(folder: Path) -> Content:
    """A tenth of the set as lossless WebP atlases; its split into training and test is another one."""
    labels = np.load(folder / "labels.npz")
    train_y, test_y = labels["y_train"], labels["y_test"]
    return Content(
        train=Samples(atlases(sorted(folder.glob("train_*.webp")), 32, len(train_y)), train_y),
        test=Samples(atlases(sorted(folder.glob("test_*.webp")), 32, len(test_y)), test_y),
        shape=(3, 32, 32),
        class_names=[str(name) for name in labels["classes"]],
        complete=False,
        notes={"test split": "not the official one: results cannot be compared with published ones"},
    )


LAYOUTS = (
    Layout("cifar-100-binary", ("train.bin", "test.bin", "fine_label_names.txt"), read_binary),
    Layout("cifar100", ("labels.npz", "train_*.webp", "test_*.webp"), read_atlases),
)


def load(config: DataConfig) -> Dataset:
    """CIFAR-100 from the data folder or, if allowed, from its authors."""
    refuse_pickles(config, "cifar-100-python", "cifar-100-binary.tar.gz", LAYOUTS)
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)
