# SPDX-License-Identifier: Apache-2.0
"""Tiny-ImageNet-C: Tiny-ImageNet's validation images, corrupted (Hendrycks and Dietterich, 2019)."""

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.corrupted import generated, load_domains
from feddag.data.corruptions import CORRUPTIONS
from feddag.data.dataset import Dataset
from feddag.data.datasets import tiny_imagenet
from feddag.data.federation import Source
from feddag.data.hashing import sha256_of_listing
from feddag.data.images import resized
from feddag.data.loading import Present

PUBLISHED = 15  # the published set leaves four corruptions out


LAYOUTS = (Present("Tiny-ImageNet-C", ("*/*/*/*.JPEG",)),)


def load(config: DataConfig) -> Dataset:
    """Published folders where they are, else made from Tiny-ImageNet; every corruption is a domain."""
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
        sha256_of_listing(every_file, folder),
        images_of,
        domains,
        y,
        classes,
        tiny_imagenet.SCALING,
        complete,
    )
