# SPDX-License-Identifier: Apache-2.0
"""Tiny-ImageNet-C: Tiny-ImageNet's validation images, corrupted (Hendrycks and Dietterich, 2019)."""

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.corruptions import CORRUPTIONS
from feddag.data.corruptions.copies import generated, load_domains
from feddag.data.dataset import Dataset
from feddag.data.datasets import tiny_imagenet
from feddag.data.federation import Source
from feddag.data.files.download import Download, fetch_first, receipt_notes
from feddag.data.files.hashing import stamp_of_files
from feddag.data.files.images import resized
from feddag.data.loading import Present

PUBLISHED = 15  # the published set leaves four corruptions out
# Two copies with different hashes are in use; either is right, and the receipt says which one it was.
DOWNLOADS = (
    Download(
        url="https://zenodo.org/records/8206060/files/Tiny-ImageNet-C.tar",
        name="Tiny-ImageNet-C.tar",
        size=1_794_775_040,
        md5="f9c9a9dbdc11469f0b850190f7ad8be1",
        unpack=True,
    ),
    Download(
        url="https://zenodo.org/records/2469796/files/TinyImageNet-C.tar",
        name="TinyImageNet-C.tar",  # an archive in an archive
        about=1800,
        md5="3d9c6e89c2609aeb4198f84c8edd1ff0",
        unpack=True,
    ),
)
LAYOUTS = (Present("Tiny-ImageNet-C", ("*/*/*/*.JPEG",)),)


def load(config: DataConfig) -> Dataset:
    """Published folders where they are, else made from Tiny-ImageNet; every corruption is a domain."""
    clean = any(layout.missing(config.data_folder) is None for layout in tiny_imagenet.LAYOUTS)
    if LAYOUTS[0].missing(config.data_folder) is not None and not clean and config.download:
        fetch_first(DOWNLOADS, config.data_folder, config.max_download)
    if (config.data_folder / "Tiny-ImageNet-C").is_dir():
        return _published(config)
    base = tiny_imagenet.load(
        config.model_copy(update={"name": "tiny-imagenet", "max_train": None, "max_test": None})
    )
    return generated(config, base.test, base.source, base.class_names, tiny_imagenet.SCALING)


def _published(config: DataConfig) -> Dataset:
    """`<corruption>/<severity>/<class>/<image>.JPEG`: an image has the same name in every corruption."""
    folder = config.data_folder / "Tiny-ImageNet-C"
    domains = tuple(name for name in CORRUPTIONS if (folder / name / str(config.severity)).is_dir())
    if not domains:
        raise InvalidInput(f"{folder}: expected folders such as fog/{config.severity}/<class>/")
    listings = [
        sorted(
            p.relative_to(folder / name / str(config.severity))
            for p in (folder / name / str(config.severity)).glob("*/*.JPEG")
        )
        for name in domains
    ]
    for name, listing in zip(domains, listings, strict=True):
        if listing != listings[0] or not listing:
            raise InvalidInput(f"{folder}/{name}: its images differ from those of {domains[0]}")
    images = listings[0]
    classes = sorted({path.parts[0] for path in images})
    y = np.array([classes.index(path.parts[0]) for path in images])

    def images_of(domain: str, rows: np.ndarray) -> np.ndarray:
        files = [folder / domain / str(config.severity) / images[i] for i in rows]
        return np.concatenate(list(resized(files, tiny_imagenet.SIZE)))

    every_file = [folder / d / str(config.severity) / image for d in domains for image in images]
    source = Source(dataset=config.name, kind="local", detail=f"{folder}, severity {config.severity}")
    complete = len(images) == 10_000 and len(domains) >= PUBLISHED
    return load_domains(
        config,
        source,
        stamp_of_files(every_file, folder),
        images_of,
        domains,
        y,
        classes,
        tiny_imagenet.SCALING,
        complete,
        receipt_notes(DOWNLOADS, config.data_folder),
        every_file,
    )
