# SPDX-License-Identifier: Apache-2.0
"""SVHN: 73,257 + 26,032 house-number digits, 32×32 colour (Netzer et al., 2011; non-commercial)."""

from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.download import Download
from feddag.data.images import atlases
from feddag.data.loading import Content, Layout, Samples, find, load_found

CLASSES = tuple(str(digit) for digit in range(10))
SCALING = pixel_scaling((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
SERVER = "http://ufldl.stanford.edu/housenumbers"
DOWNLOADS = [
    Download(
        url=f"{SERVER}/train_32x32.mat",
        name="svhn/train_32x32.mat",
        size=182_040_794,
        sha256="435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    Download(
        url=f"{SERVER}/test_32x32.mat",
        name="svhn/test_32x32.mat",
        size=64_275_384,
        sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
]


def read_published(folder: Path) -> Content:
    """The published cropped digits; the digit 0 has label 10 there."""
    splits = []
    for name in ("train_32x32.mat", "test_32x32.mat"):
        try:
            content = loadmat(folder / name, variable_names=["X", "y"])
            x, y = content["X"], content["y"].reshape(-1) % 10
        except (MatReadError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{folder / name}: not a file of cropped digits ({error})") from error
        splits.append(Samples([np.ascontiguousarray(x.transpose(3, 2, 0, 1))], y))
    train, test = splits
    return Content(
        train=train,
        test=test,
        shape=(3, 32, 32),
        class_names=CLASSES,
        complete=(len(train.y), len(test.y)) == (73_257, 26_032),
    )


def read_atlases(folder: Path) -> Content:
    """The first digits of each split, cut from the original photographs (close to the published crops)."""
    labels = np.load(folder / "labels.npz")
    train_y, test_y = labels["y_train"], labels["y_test"]
    return Content(
        train=Samples(atlases(sorted(folder.glob("train_*.webp")), 32, len(train_y)), train_y),
        test=Samples(atlases(sorted(folder.glob("test_*.webp")), 32, len(test_y)), test_y),
        shape=(3, 32, 32),
        class_names=CLASSES,
        complete=False,
        notes={"crops": "not the published ones: results cannot be compared with published ones"},
    )


FILES = ("train_32x32.mat", "test_32x32.mat")
LAYOUTS = (
    Layout("svhn", FILES, read_published),
    Layout(".", FILES, read_published),
    Layout("svhn", ("labels.npz", "train_*.webp", "test_*.webp"), read_atlases),
)


def load(config: DataConfig) -> Dataset:
    """SVHN from the data folder or, if allowed, from its authors."""
    return load_found(config, find(config, LAYOUTS, downloads=DOWNLOADS), SCALING)
