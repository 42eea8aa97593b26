# SPDX-License-Identifier: Apache-2.0
"""Tiny-ImageNet: 100,000 + 10,000 colour images of 64×64 pixels, 200 classes (ImageNet's terms)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.download import Download
from feddag.data.files.images import CHUNK, picture, resized
from feddag.data.loading import Content, Layout, Samples, find, load_found

SIZE = 64
SCALING = pixel_scaling((0.480, 0.448, 0.398), (0.277, 0.269, 0.282))
DOWNLOAD = Download(
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    name="tiny-imagenet-200.zip",
    size=248_100_043,
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    unpack=True,
)


def read_published(folder: Path) -> Content:
    """The published folders; the validation images are the test part, because the real one has no labels."""
    classes = sorted((folder / "wnids.txt").read_text().split())
    index = {name: c for c, name in enumerate(classes)}
    train, train_y = [], []
    for name in classes:
        files = sorted((folder / "train" / name / "images").glob("*.JPEG"))
        train += files
        train_y += [index[name]] * len(files)
    test, test_y = [], []
    for line in (folder / "val" / "val_annotations.txt").read_text().splitlines():
        file, name = line.split("\t")[:2]
        if name not in index:
            raise InvalidInput(f"{folder}/val/val_annotations.txt: '{name}' is not a class of wnids.txt")
        test.append(folder / "val" / "images" / file)
        test_y.append(index[name])
    return Content(
        train=Samples(resized(train, SIZE), np.array(train_y)),
        test=Samples(resized(test, SIZE), np.array(test_y)),
        shape=(3, SIZE, SIZE),
        class_names=classes,
        complete=(len(train), len(test)) == (100_000, 10_000),
    )


def read_npz(folder: Path) -> Content:
    """Some classes as JPEG bytes in one file: `jpeg[offset[i]:offset[i+1]]`; split 0 is training."""
    arrays = np.load(folder / "tiny_imagenet20.npz")
    data, offset, y, split = (arrays[name] for name in ("jpeg", "offset", "y", "split"))

    def chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            yield np.stack(
                [picture(data[offset[i] : offset[i + 1]].tobytes(), f"image {i}", SIZE) for i in part]
            )

    train, test = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    return Content(
        train=Samples(chunks(train), y[train]),
        test=Samples(chunks(test), y[test]),
        shape=(3, SIZE, SIZE),
        class_names=[str(name) for name in arrays["wnid"]],
        complete=False,
    )


LAYOUTS = (
    Layout(
        "tiny-imagenet-200",
        ("wnids.txt", "val/val_annotations.txt", "train/*/images/*.JPEG", "val/images/*.JPEG"),
        read_published,
    ),
    Layout("tiny_imagenet20", ("tiny_imagenet20.npz",), read_npz, part=True),
)


def load(config: DataConfig) -> Dataset:
    """Tiny-ImageNet from the data folder or, if allowed, from its authors."""
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), SCALING)
