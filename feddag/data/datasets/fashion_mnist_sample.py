# SPDX-License-Identifier: Apache-2.0
"""A balanced sample of Fashion-MNIST inside the package, for demos and tests without any download."""

from importlib.resources import files

import numpy as np

from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.federation import Pool, Source
from feddag.data.files.hashing import sha256_of_arrays

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SCALING = pixel_scaling((0.2860,), (0.3530,))


def load(config: DataConfig) -> Dataset:
    """600 training and 100 test images of each class, made by tools/make_fashion_sample.py."""
    with files("feddag.data").joinpath("embedded/fashion_mnist_sample.npz").open("rb") as file:
        arrays = dict(np.load(file))
    return Dataset(
        train=Pool(arrays["x_train"], arrays["y_train"].astype(np.int64)),
        test=Pool(arrays["x_test"], arrays["y_test"].astype(np.int64)),
        num_classes=10,
        source=Source(
            dataset="fashion-mnist-sample",
            kind="embedded",
            detail="fashion_mnist_sample.npz",
            train_samples=len(arrays["y_train"]),
            test_samples=len(arrays["y_test"]),
            sha256=sha256_of_arrays(*(arrays[k] for k in ("x_train", "y_train", "x_test", "y_test"))),
            complete=False,
        ),
        scaling=SCALING,
        class_names=CLASSES,
    )
