# SPDX-License-Identifier: Apache-2.0
"""The datasets by name."""

from collections.abc import Callable
from dataclasses import dataclass

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, part_of
from feddag.data.datasets import digits, fashion_mnist_sample, synthetic


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset: a line of help, how it is loaded, and under which terms it may be used."""

    help: str
    load: Callable[[DataConfig], Dataset]
    terms: str = ""
    url: str = ""


DATASETS: dict[str, DatasetEntry] = {
    "digits": DatasetEntry(
        "scikit-learn's 1,797 digits, 8×8 grey, 10 classes; always there", digits.load, "BSD-3-Clause"
    ),
    "fashion-mnist-sample": DatasetEntry(
        "6,000 + 1,000 Fashion-MNIST images, 28×28 grey, 10 classes; always there",
        fashion_mnist_sample.load,
        "MIT (Zalando)",
    ),
    "synthetic": DatasetEntry(
        "Gaussian mixtures, one per planted group; always there", synthetic.load, "none needed"
    ),
}


def load_dataset(config: DataConfig) -> Dataset:
    """The samples a user asked for, from the first place that has them."""
    if config.name not in DATASETS:
        raise InvalidInput(f"data.name: '{config.name}' is not one of {', '.join(sorted(DATASETS))}")
    return part_of(DATASETS[config.name].load(config), config.max_train, config.max_test)
