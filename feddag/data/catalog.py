# SPDX-License-Identifier: Apache-2.0
"""The datasets by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, part_of
from feddag.data.datasets import (
    cifar10,
    cifar10_c,
    cifar100,
    digits,
    fashion_mnist,
    fashion_mnist_sample,
    landmarks,
    office_caltech10,
    own,
    pacs,
    shakespeare,
    svhn,
    synthetic,
    tiny_imagenet,
    tiny_imagenet_c,
    uci_har,
)
from feddag.data.loading import Present


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset: a line of help, how it is loaded, under which terms, and what can be downloaded."""

    help: str
    load: Callable[[DataConfig], Dataset]
    terms: str = ""
    megabytes: int = 0  # of the download; 0: none
    always_there: bool = False
    layouts: Sequence[Present] = ()  # how it may lie in the data folder
    system: Sequence[tuple[Path, Present]] = ()


DATASETS: dict[str, DatasetEntry] = {
    "cifar10": DatasetEntry(
        "50,000 + 10,000 colour images, 32×32, 10 classes",
        cifar10.load,
        "none stated; cite",
        170,
        layouts=cifar10.LAYOUTS,
    ),
    "cifar100": DatasetEntry(
        "50,000 + 10,000 colour images, 32×32, 100 classes",
        cifar100.load,
        "none stated; cite",
        169,
        layouts=cifar100.LAYOUTS,
    ),
    "fashion-mnist": DatasetEntry(
        "60,000 + 10,000 grey images, 28×28, 10 classes",
        fashion_mnist.load,
        "MIT (Zalando)",
        31,
        layouts=(*fashion_mnist.LAYOUTS, fashion_mnist.PART),
        system=[(fashion_mnist.DEBIAN, fashion_mnist.PUBLISHED)],
    ),
    "svhn": DatasetEntry(
        "73,257 + 26,032 digits, 32×32 colour", svhn.load, "non-commercial", 246, layouts=svhn.LAYOUTS
    ),
    "cifar10-c": DatasetEntry(
        "CIFAR-10's test images in 19 corruptions and clean; made from CIFAR-10 if need be",
        cifar10_c.load,
        "CC BY 4.0",
        2918,
        layouts=(*cifar10_c.LAYOUTS, *cifar10.LAYOUTS),
    ),
    "tiny-imagenet": DatasetEntry(
        "100,000 + 10,000 colour images, 64×64, 200 classes",
        tiny_imagenet.load,
        "non-commercial",
        248,
        layouts=tiny_imagenet.LAYOUTS,
    ),
    "tiny-imagenet-c": DatasetEntry(
        "Tiny-ImageNet's validation images in up to 19 corruptions and clean; made if need be",
        tiny_imagenet_c.load,
        "non-commercial",
        layouts=(*tiny_imagenet_c.LAYOUTS, *tiny_imagenet.LAYOUTS),
    ),
    "pacs": DatasetEntry(
        "9,991 images in 4 domains, 7 classes, read as 64×64",
        pacs.load,
        "none stated; cite",
        layouts=pacs.LAYOUTS,
    ),
    "office-caltech10": DatasetEntry(
        "2,533 images in 4 domains, 10 classes, read as 64×64",
        office_caltech10.load,
        "none stated; cite",
        layouts=office_caltech10.LAYOUTS,
    ),
    "landmarks": DatasetEntry(
        "Landmarks-Users-160K: 164,172 photographs by 1,262 people, read as 64×64",
        landmarks.load,
        "CC BY",
        1,
        layouts=landmarks.LAYOUTS,
    ),
    "uci-har": DatasetEntry(
        "10,299 windows of 9 sensors from 30 people (natural clients), 6 activities",
        uci_har.load,
        "non-commercial",
        61,
        layouts=uci_har.LAYOUTS,
    ),
    "shakespeare": DatasetEntry(
        "next character, by speaker (natural clients)",
        shakespeare.load,
        "public domain",
        layouts=shakespeare.LAYOUTS,
    ),
    "digits": DatasetEntry(
        "scikit-learn's 1,797 digits, 8×8 grey, 10 classes", digits.load, "BSD-3-Clause", always_there=True
    ),
    "fashion-mnist-sample": DatasetEntry(
        "6,000 + 1,000 Fashion-MNIST images, 28×28 grey, 10 classes",
        fashion_mnist_sample.load,
        "MIT (Zalando)",
        always_there=True,
    ),
    "synthetic": DatasetEntry(
        "Gaussian mixtures, one per planted group", synthetic.load, "none needed", always_there=True
    ),
    "own": DatasetEntry("your own folder or table; data.path says where", own.load, "yours"),
}


def is_there(config: DataConfig) -> bool:
    """Whether a dataset can be loaded without a download; nothing is converted to find out."""
    entry = DATASETS[config.name]
    if entry.always_there:
        return True
    return any(layout.missing(config.data_folder) is None for layout in entry.layouts) or any(
        layout.missing(place) is None for place, layout in entry.system
    )


def load_dataset(config: DataConfig) -> Dataset:
    """The samples a user asked for, from the first place that has them."""
    if config.name not in DATASETS:
        raise InvalidInput(f"data.name: '{config.name}' is not one of {', '.join(DATASETS)}")
    return part_of(DATASETS[config.name].load(config), config.max_train, config.max_test)
