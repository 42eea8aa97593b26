# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST: 60,000 + 10,000 grey images of 28×28 pixels, 10 classes (Xiao, Rasul and Vollgraf, 2017)."""

import gzip
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.datasets.fashion_mnist_sample import CLASSES, SCALING
from feddag.data.files.download import Download
from feddag.data.loading import Content, Layout, Samples, find, load_found

FILES = {
    "train-images-idx3-ubyte.gz": (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "train-labels-idx1-ubyte.gz": (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
    "t10k-labels-idx1-ubyte.gz": (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
}
SERVER = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
DOWNLOADS = [
    Download(url=f"{SERVER}/{name}", name=f"fashion-mnist/{name}", size=size, md5=md5)
    for name, (size, md5) in FILES.items()
]
DEBIAN = Path("/usr/share/datasets")


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes: two zeros, the type 8, the number of axes, the sizes, the values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError) as error:
        raise InvalidInput(f"{path}: damaged gzip file ({error})") from error
    if content[:3] != b"\x00\x00\x08":
        raise InvalidInput(f"{path}: not an idx file of bytes")
    axes = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=axes, offset=4))
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if len(values) != np.prod(shape):
        raise InvalidInput(f"{path}: {np.prod(shape)} values expected, got {len(values)}")
    return values.reshape(shape)


def read_published(folder: Path) -> Content:
    """The four published files."""
    train_x, train_y, test_x, test_y = (read_idx(folder / name) for name in FILES)
    return _content(train_x, train_y, test_x, test_y)


def read_npz(folder: Path) -> Content:
    """The first images of each split in one file."""
    arrays = np.load(folder / "fashion_mnist.npz")
    return _content(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"])


def _content(train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> Content:
    return Content(
        train=Samples([train_x[:, None]], train_y),
        test=Samples([test_x[:, None]], test_y),
        shape=(1, 28, 28),
        class_names=CLASSES,
        complete=(len(train_y), len(test_y)) == (60_000, 10_000),
    )


PUBLISHED = Layout("fashion-mnist", tuple(FILES), read_published)
LAYOUTS = (PUBLISHED, Layout("FashionMNIST/raw", tuple(FILES), read_published))
PART = Layout("fashion_mnist", ("fashion_mnist.npz",), read_npz, part=True)


def load(config: DataConfig) -> Dataset:
    """Fashion-MNIST from the data folder, Debian's package, its authors if allowed; else a part of it."""
    full = any(layout.missing(config.data_folder) is None for layout in LAYOUTS)
    debian = PUBLISHED.missing(DEBIAN) is None
    if not full and not debian and not config.download and PART.missing(config.data_folder) is None:
        return load_found(config, find(config, [PART]), SCALING)
    return load_found(config, find(config, LAYOUTS, [(DEBIAN, PUBLISHED)], DOWNLOADS), SCALING)
