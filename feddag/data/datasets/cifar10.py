# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10: 50,000 + 10,000 colour images of 32×32 pixels, 10 classes (Krizhevsky, 2009)."""

from functools import partial

from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.download import Download
from feddag.data.files.thumbnails import ATLAS_FILES, read_atlas_pair, read_records, refuse_pickles
from feddag.data.loading import Layout, find, load_found

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
COUNTS = (50_000, 10_000)
LAYOUTS = (
    Layout(
        "cifar-10-batches-bin",
        (*BATCHES, "test_batch.bin"),
        partial(
            read_records,
            train=BATCHES,
            test=["test_batch.bin"],
            label_bytes=1,
            class_names=CLASSES,
            counts=COUNTS,
        ),
    ),
    Layout("cifar10", ATLAS_FILES, partial(read_atlas_pair, class_names=CLASSES, counts=COUNTS)),
)


def load(config: DataConfig) -> Dataset:
    """CIFAR-10 from the data folder or, if allowed, from its authors."""
    refuse_pickles(config, "cifar-10-batches-py", "cifar-10-binary.tar.gz", LAYOUTS)
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)
