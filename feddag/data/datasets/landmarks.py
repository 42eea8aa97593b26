# SPDX-License-Identifier: Apache-2.0
"""Landmarks-Users-160K: 164,172 photographs of 2,028 landmarks by 1,262 people (Weyand et al., 2020)."""

import csv
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.download import Download
from feddag.data.files.images import resized
from feddag.data.loading import Content, Layout, Samples, find, load_found
from feddag.data.names import allowed_names

SIZE = 64
SCALING = pixel_scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
IMAGES = "https://s3.amazonaws.com/google-landmark/train/images_000.tar to images_499.tar"
SPLIT = Download(
    url="http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip",
    name="landmarks-user-160k.zip",
    about=2,
    md5="53c36bd7d5fc12f927af2820b7e4a57c",
    unpack=True,
)


def read_published(folder: Path) -> Content:
    """federated_train.csv (user_id, image_id, class), test.csv (image_id, class), and the images."""
    train, test = (_rows(folder / name) for name in ("federated_train.csv", "test.csv"))
    classes = sorted({row["class"] for row in train + test}, key=lambda c: (len(c), c))
    users = sorted({row["user_id"] for row in train}, key=lambda u: (len(u), u))
    missing = 0
    samples = []
    for rows in (train, test):
        files = [_image(folder, row["image_id"]) for row in rows]
        missing += sum(file is None for file in files)
        there = [(row, file) for row, file in zip(rows, files, strict=True) if file is not None]
        if not there:
            raise InvalidInput(
                f"{folder}: the split is there, its images are not; unpack {IMAGES} (500 archives of 1 GB) "
                f"as {folder}/train/a/b/c/<image_id>.jpg, or put them there as images/<image_id>.jpg"
            )
        user = {name: u for u, name in enumerate(users)}
        index = {name: c for c, name in enumerate(classes)}
        samples.append(
            Samples(
                resized([file for _, file in there], SIZE),
                np.array([index[row["class"]] for row, _ in there]),
                # Test photographs belong to nobody: clients are tested on those of their classes.
                owner=np.array([user[row["user_id"]] if rows is train else -1 for row, _ in there]),
            )
        )
    return Content(
        train=samples[0],
        test=samples[1],
        shape=(3, SIZE, SIZE),
        class_names=classes,
        owner_names=allowed_names(f"user{name}" for name in users),
        complete=missing == 0 and len(train) == 164_172,
        notes={
            "images": f"resized to {SIZE}×{SIZE}; {missing} of {len(train) + len(test)} are not there",
        },
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    needed = {"image_id", "class"} | ({"user_id"} if path.name.startswith("federated") else set())
    if not rows or not needed <= rows[0].keys():
        raise InvalidInput(f"{path}: expected the columns {', '.join(sorted(needed))} and at least one row")
    return rows


def _image(folder: Path, image: str) -> Path | None:
    """Where an image is: all in one folder, or in three levels by the first letters of its id."""
    if not image.isalnum():
        raise InvalidInput(f"{folder}: image_id '{image}' is not a name of letters and digits")
    for place in (folder / "images" / f"{image}.jpg", folder.joinpath("train", *image[:3], f"{image}.jpg")):
        if place.is_file():
            return place
    return None


LAYOUTS = tuple(
    Layout(name, ("federated_train.csv", "test.csv"), read_published)
    for name in ("landmarks-user-160k", "landmarks")
)


def load(config: DataConfig) -> Dataset:
    """The published split and images; only the split is downloaded, the images are 500 archives of 1 GB."""
    return load_found(config, find(config, LAYOUTS, downloads=[SPLIT]), SCALING, ("images", "train"))
