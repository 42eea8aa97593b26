# SPDX-License-Identifier: Apache-2.0
"""The datasets by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.plugins import Table, in_one_line
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
from feddag.data.files.download import Download, size_in_words
from feddag.data.loading import Present


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset: a line of help, the function that loads it, its terms, and what can be downloaded."""

    help: str
    load: Callable[[DataConfig], Dataset]
    terms: str = ""
    downloads: Sequence[Download] = ()
    always_there: bool = False
    layouts: Sequence[Present] = ()  # how its files may be arranged in the data folder
    system: Sequence[tuple[Path, Present]] = ()
    made_from: Sequence[Present] = ()  # what it can be made from instead

    @property
    def download(self) -> str:
        """Size of the download in words; "" if there is no download."""
        return size_in_words(self.downloads).replace("about ", "~") if self.downloads else ""


_OURS: dict[str, DatasetEntry] = {
    "cifar10": DatasetEntry(
        "60,000 colour images, 32×32, 10 classes",
        cifar10.load,
        "not stated",
        [cifar10.DOWNLOAD],
        layouts=cifar10.LAYOUTS,
    ),
    "cifar100": DatasetEntry(
        "60,000 colour images, 32×32, 100 classes",
        cifar100.load,
        "not stated",
        [cifar100.DOWNLOAD],
        layouts=cifar100.LAYOUTS,
    ),
    "fashion-mnist": DatasetEntry(
        "70,000 grey images, 28×28, 10 classes",
        fashion_mnist.load,
        "MIT",
        fashion_mnist.DOWNLOADS,
        layouts=(*fashion_mnist.LAYOUTS, fashion_mnist.PART),
        system=[(fashion_mnist.DEBIAN, fashion_mnist.PUBLISHED)],
    ),
    "svhn": DatasetEntry(
        "99,289 house numbers, 32×32, 10 classes",
        svhn.load,
        "non-commercial",
        svhn.DOWNLOADS,
        layouts=svhn.LAYOUTS,
    ),
    "cifar10-c": DatasetEntry(
        "CIFAR-10's test images in 19 corruptions",
        cifar10_c.load,
        "CC BY 4.0",
        [cifar10_c.DOWNLOAD],
        layouts=cifar10_c.LAYOUTS,
        made_from=cifar10.LAYOUTS,
    ),
    "tiny-imagenet": DatasetEntry(
        "110,000 colour images, 64×64, 200 classes",
        tiny_imagenet.load,
        "non-commercial",
        [tiny_imagenet.DOWNLOAD],
        layouts=tiny_imagenet.LAYOUTS,
    ),
    "tiny-imagenet-c": DatasetEntry(
        "its validation images, 15 or 19 corruptions",
        tiny_imagenet_c.load,
        "non-commercial",
        tiny_imagenet_c.DOWNLOADS[:1],
        layouts=tiny_imagenet_c.LAYOUTS,
        made_from=tiny_imagenet.LAYOUTS,
    ),
    "pacs": DatasetEntry(
        "9,991 images, 4 domains, 7 classes",
        pacs.load,
        "not stated",
        [pacs.DOWNLOAD],
        layouts=pacs.LAYOUTS,
    ),
    "office-caltech10": DatasetEntry(
        "2,533 images, 4 domains, 10 classes",
        office_caltech10.load,
        "not stated",
        [office_caltech10.ARCHIVE],
        layouts=office_caltech10.LAYOUTS,
    ),
    "landmarks": DatasetEntry(
        "164,172 photographs by 1,262 people; the download is the split alone",
        landmarks.load,
        "CC BY",
        [landmarks.SPLIT],
        layouts=landmarks.LAYOUTS,
    ),
    "uci-har": DatasetEntry(
        "phone sensors of 30 people, 6 activities",
        uci_har.load,
        "non-commercial",
        [uci_har.DOWNLOAD],
        layouts=uci_har.LAYOUTS,
    ),
    "shakespeare": DatasetEntry(
        "next character, by speaker",
        shakespeare.load,
        "public domain",
        [shakespeare.TEXT],
        layouts=shakespeare.LAYOUTS,
    ),
    "digits": DatasetEntry(
        "1,797 grey images, 8×8, 10 classes", digits.load, "BSD-3-Clause", always_there=True
    ),
    "fashion-mnist-sample": DatasetEntry(
        "7,000 images of Fashion-MNIST",
        fashion_mnist_sample.load,
        "MIT",
        always_there=True,
    ),
    "synthetic": DatasetEntry(
        "Gaussian mixtures, one per group", synthetic.load, "none needed", always_there=True
    ),
    "own": DatasetEntry("your own: feddag data check FOLDER", own.load, "yours"),
}


def _users_own(name: str, function: Any) -> DatasetEntry:
    """The entry of a user's function: it takes nothing, or the settings, and returns samples of clients."""
    if not callable(function):
        raise InvalidInput(f"dataset '{name}': expected a function, got {type(function).__name__}")

    def load(config: DataConfig) -> Dataset:
        from feddag.data.memory import dataset_from  # it needs this module

        takes_settings = bool(signature(function).parameters)
        try:
            made = function(config) if takes_settings else function()
        except FederationError:
            raise
        except Exception as error:
            raise InvalidInput(f"dataset '{name}' failed: {in_one_line(error)}") from error
        if isinstance(made, Dataset):
            return made
        dataset = dataset_from(made, config.label, config.client, config.test_share, config.missing)
        return replace(dataset, source=replace(dataset.source, dataset=name, detail=""))

    help_ = (function.__doc__ or "").strip().splitlines() or ["a user's own"]
    return DatasetEntry(help_[0], load, "yours", always_there=True)


DATASETS: Table[DatasetEntry] = Table("dataset", _OURS, _users_own)


def how_there(config: DataConfig) -> str:
    """Whether a dataset can be loaded without a download; nothing is read or converted to find out.

    "always", "yes", "a part" (of the published set), "can be made" (from clean images), or "no".
    """
    entry = DATASETS[config.name]
    if entry.always_there:
        return "always"
    root = config.data_folder
    here = [layout for layout in entry.layouts if layout.missing(root) is None]
    here += [layout for place, layout in entry.system if layout.missing(place) is None]
    if here:
        return "a part" if all(layout.part for layout in here) else "yes"
    return "can be made" if any(layout.missing(root) is None for layout in entry.made_from) else "no"


def load_dataset(config: DataConfig) -> Dataset:
    """Load the dataset that the settings name, from the first place that has it."""
    if config.name not in DATASETS:
        known = ", ".join(DATASETS)
        raise InvalidInput(f"data.name: '{config.name}' is not one of {known}, nor your own module:function")
    try:
        dataset = DATASETS[config.name].load(config)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(
            f"data.name '{config.name}': {error.filename} cannot be read ({reason})"
        ) from error
    return part_of(dataset, config.max_train, config.max_test)
