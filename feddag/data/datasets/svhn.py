# SPDX-License-Identifier: Apache-2.0
"""SVHN: 73,257 + 26,032 house-number digits, 32×32 colour (Netzer et al., 2011; non-commercial)."""

from functools import partial
from pathlib import Path

import numpy as np
import scipy

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.download import Download
from feddag.data.files.thumbnails import ATLAS_FILES, content_of, read_atlas_pair
from feddag.data.loading import Content, Layout, Samples, find, load_found

CLASSES = tuple(str(digit) for digit in range(10))
SCALING = pixel_scaling((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
COUNTS = (73_257, 26_032)
FILES = ("train_32x32.mat", "test_32x32.mat")
OTHER_CROPS = {"crops": "not the published ones: results cannot be compared with published ones"}
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
    for name in FILES:
        try:
            content = scipy.io.loadmat(folder / name, variable_names=["X", "y"])
            x, y = content["X"], content["y"].reshape(-1) % 10
        except (scipy.io.matlab.MatReadError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{folder / name}: not a file of cropped digits ({error})") from error
        splits.append(Samples([np.ascontiguousarray(x.transpose(3, 2, 0, 1))], y))
    return content_of(splits[0], splits[1], CLASSES, COUNTS)


LAYOUTS = (
    Layout("svhn", FILES, read_published),
    Layout(".", FILES, read_published),
    Layout(
        "svhn",  # the first digits of each split, cut from the original photographs
        ATLAS_FILES,
        partial(read_atlas_pair, class_names=CLASSES, counts=COUNTS, notes=OTHER_CROPS),
        part=True,
    ),
)


def load(config: DataConfig) -> Dataset:
    """SVHN from the data folder or, if allowed, from its authors."""
    return load_found(config, find(config, LAYOUTS, downloads=DOWNLOADS), SCALING)
