# SPDX-License-Identifier: Apache-2.0
"""CIFAR-100: 50,000 + 10,000 colour images of 32×32 pixels, 100 fine classes (Krizhevsky, 2009)."""

from functools import partial
from pathlib import Path

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.download import Download
from feddag.data.files.thumbnails import ATLAS_FILES, read_atlas_pair, read_records, refuse_pickles
from feddag.data.loading import Content, Layout, find, load_found

SCALING = pixel_scaling((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
DOWNLOAD = Download(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    name="cifar-100-binary.tar.gz",
    size=168_513_733,
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    unpack=True,
)
COUNTS = (50_000, 10_000)
OTHER_SPLIT = {"test split": "not the official one: results cannot be compared with published ones"}


def read_binary(folder: Path) -> Content:
    """The published binary files: coarse label, fine label and pixels."""
    names = (folder / "fine_label_names.txt").read_text().split()
    if len(names) != 100:
        raise InvalidInput(f"{folder / 'fine_label_names.txt'}: 100 names expected, got {len(names)}")
    return read_records(folder, ["train.bin"], ["test.bin"], 2, names, COUNTS)


LAYOUTS = (
    Layout("cifar-100-binary", ("train.bin", "test.bin", "fine_label_names.txt"), read_binary),
    Layout(
        "cifar100",  # a tenth of the set
        ATLAS_FILES,
        partial(read_atlas_pair, class_names=None, counts=COUNTS, notes=OTHER_SPLIT),
        part=True,
    ),
)


def load(config: DataConfig) -> Dataset:
    """CIFAR-100 from the data folder or, if allowed, from its authors."""
    refuse_pickles(config, "cifar-100-python", "cifar-100-binary.tar.gz", LAYOUTS)
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)
