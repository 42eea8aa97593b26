# SPDX-License-Identifier: Apache-2.0
"""Corrupted copies of clean test images: what CIFAR-10-C and Tiny-ImageNet-C are made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.examples import Scaling
from feddag.core.seeds import Seed
from feddag.data.config import DataConfig
from feddag.data.corruptions import CORRUPTIONS, corrupt
from feddag.data.dataset import Dataset, part_of
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.federation import Pool, Source
from feddag.data.files.cache import cached
from feddag.data.files.hashing import sha256_of_files, sha256_of_text
from feddag.data.files.progress import watched
from feddag.data.loading import Content, Samples, from_entry, write_content

ALL = ("clean", *CORRUPTIONS)
TEST_SHARE = 0.2
CHUNK = 1000
SEED = Seed(0) / "corrupted-images"
SPLIT = "ours: 20% of the clean images, with all their corruptions"
MADE = (
    "made here from clean images with the constants of CIFAR-10-C; contrast, pixelate, brightness, saturate "
    "and Gaussian blur equal the published files, the others only follow the description"
)

# (domain, rows of the clean images) → those images in that domain, uint8 (n, channels, height, width)
ImagesOf = Callable[[str, np.ndarray], np.ndarray]


def generated(
    config: DataConfig, clean: Pool, origin: Source, class_names: Sequence[str], scaling: Scaling
) -> Dataset:
    """All corruptions of clean images in one severity, made once and cached."""

    def images_of(domain: str, rows: np.ndarray) -> np.ndarray:
        return corrupt(np.asarray(clean.x[rows]), domain, config.severity, rows.tolist(), SEED)

    part = "" if origin.complete else ", which is only a part"
    detail = f"made from {origin.dataset} ({origin.kind}{part}), severity {config.severity}"
    source = Source(dataset=config.name, kind="generated", detail=detail)
    return load_domains(
        config,
        source,
        origin.sha256,
        images_of,
        ALL,
        np.asarray(clean.y),
        class_names,
        scaling,
        complete=False,  # a substitute: most images differ from those of the published files
        notes={"corruptions": MADE},
    )


def load_domains(
    config: DataConfig,
    source: Source,
    key: str,
    images_of: ImagesOf,
    domains: Sequence[str],
    y: np.ndarray,
    class_names: Sequence[str],
    scaling: Scaling,
    complete: bool,
    notes: Mapping[str, str] | None = None,
    files: Sequence[Path] = (),
) -> Dataset:
    """Every clean image in every domain; an image is for training in all domains or for testing in all.

    `key` identifies what the images are made from. If they come from files, the SHA-256 in the result is that
    of the files. If they are made here, it is that of the images.
    """
    train, test = _choose_images(config, y, len(domains))

    def chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
        for domain in domains:
            for start in range(0, len(rows), CHUNK):
                yield images_of(domain, rows[start : start + CHUNK])

    def samples(rows: np.ndarray) -> Samples:
        domain = np.repeat(np.arange(len(domains)), len(rows))
        number = len(rows) * len(domains)
        return Samples(
            watched(chunks(rows), number, f"making {config.name}"),
            np.tile(y[rows], len(domains)),
            domain=domain,
        )

    def make(folder: Path) -> dict[str, Any]:
        content = Content(
            train=samples(train),
            test=samples(test),
            shape=images_of(domains[0], train[:1]).shape[1:],
            class_names=class_names,
            domain_names=domains,
            complete=complete and len(train) + len(test) == len(y),
            notes={"test split": SPLIT, **(notes or {})},
        )
        facts = write_content(folder, content)
        hashed = (files, config.data_folder) if files else (folder.glob("*.npy"), folder)
        return {**facts, "sha256": sha256_of_files(*hashed)}

    settings = f"{source.kind} {key} {config.severity} {config.max_train} {config.max_test} {domains}"
    entry = cached(config.cache_folder, config.name, sha256_of_text(settings), make)
    found = Source(
        dataset=source.dataset,
        kind=source.kind,
        detail=source.detail,
        train_samples=len(entry.arrays["train_y"]),
        test_samples=len(entry.arrays["test_y"]),
        sha256=entry.facts["sha256"],
        complete=entry.facts["complete"],
    )
    return from_entry(entry.arrays, entry.facts, found, scaling)


def _choose_images(config: DataConfig, y: np.ndarray, domains: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the clean images for training and for test; no more rows than the limits require."""
    mask = held_out_mask(y, TEST_SHARE, "corrupted")
    rows = Dataset(
        train=Pool(np.flatnonzero(~mask), y[~mask]),
        test=Pool(np.flatnonzero(mask), y[mask]),
        num_classes=int(y.max()) + 1,
        source=Source(dataset="", kind=""),
    )
    limits = (
        None if limit is None else -(-limit // domains) for limit in (config.max_train, config.max_test)
    )
    chosen = part_of(rows, *limits)
    return chosen.train.x, chosen.test.x
