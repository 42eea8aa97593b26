# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10-C: the 10,000 test images of CIFAR-10 in 19 corruptions (Hendrycks and Dietterich, 2019)."""

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.corruptions import CORRUPTIONS
from feddag.data.corruptions.copies import generated, load_domains
from feddag.data.dataset import Dataset
from feddag.data.datasets import cifar10
from feddag.data.federation import Source
from feddag.data.files.download import Download, fetch, receipt_notes
from feddag.data.files.hashing import stamp_of_files
from feddag.data.loading import Present

DOWNLOAD = Download(
    url="https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
    name="CIFAR-10-C.tar",
    size=2_918_471_680,
    sha256="c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
    unpack=True,
)
LAYOUTS = (Present("CIFAR-10-C", ("labels.npy", "*.npy")),)


def load(config: DataConfig) -> Dataset:
    """Published files, else made from CIFAR-10; every corruption is a domain (made: and "clean")."""
    folder = config.data_folder / "CIFAR-10-C"
    clean = any(layout.missing(config.data_folder) is None for layout in cifar10.LAYOUTS)
    if not (folder / "labels.npy").is_file() and not clean and config.download:
        fetch(DOWNLOAD, config.data_folder, config.max_download)
    if (folder / "labels.npy").is_file():
        return _published(config)
    base = cifar10.load(config.model_copy(update={"name": "cifar10", "max_train": None, "max_test": None}))
    return generated(config, base.test, base.source, cifar10.CLASSES, cifar10.SCALING)


def _published(config: DataConfig) -> Dataset:
    folder = config.data_folder / "CIFAR-10-C"
    y = np.load(folder / "labels.npy").astype(np.int64)
    images = len(y) // 5
    domains = tuple(name for name in CORRUPTIONS if (folder / f"{name}.npy").is_file())
    if not domains or len(y) % 5:
        raise InvalidInput(f"{folder}: expected labels for five severities and files such as fog.npy")

    def images_of(domain: str, rows: np.ndarray) -> np.ndarray:
        stored = np.load(folder / f"{domain}.npy", mmap_mode="r")
        if stored.shape != (len(y), 32, 32, 3) or stored.dtype != np.uint8:
            raise InvalidInput(
                f"{folder}/{domain}.npy: expected uint8 {(len(y), 32, 32, 3)}, got {stored.shape}"
            )
        return stored[(config.severity - 1) * images + rows].transpose(0, 3, 1, 2)

    files = [folder / f"{name}.npy" for name in (*domains, "labels")]
    source = Source(dataset=config.name, kind="local", detail=f"{folder}, severity {config.severity}")
    complete = images == 10_000 and len(domains) == len(CORRUPTIONS)
    return load_domains(
        config,
        source,
        stamp_of_files(files, folder),
        images_of,
        domains,
        y[:images],
        cifar10.CLASSES,
        cifar10.SCALING,
        complete,
        receipt_notes([DOWNLOAD], config.data_folder),
        files,
    )
