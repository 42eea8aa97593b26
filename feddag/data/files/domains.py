# SPDX-License-Identifier: Apache-2.0
"""Several domains with one set of classes: folders `<domain>/<class>/`, or one atlas per domain."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.files.images import SUFFIXES, resized, tiles
from feddag.data.loading import Content, Samples

SIZE = 64
TEST_SHARE = 0.2
SPLIT_NOTE = "ours: 20% of each class of each domain, fixed"
SIZE_NOTE = f"resized to {SIZE}×{SIZE}: results cannot be compared digit for digit with published ones"


def read_domain_atlases(folder: Path, counts: Mapping[str, int]) -> Content:
    """One WebP atlas per domain next to labels.npz."""
    labels = np.load(folder / "labels.npz")
    names = [str(name) for name in labels["domains"]]
    y = [labels[f"y_{name}"].astype(np.int64) for name in names]
    images = [tiles(folder / f"{name}.webp", SIZE, len(of)) for name, of in zip(names, y, strict=True)]
    return split_domains(images, y, names, [str(name) for name in labels["classes"]], counts)


def read_domain_folders(
    folder: Path,
    domains: Mapping[str, Sequence[str]],
    classes: Mapping[str, Sequence[str]],
    counts: Mapping[str, int],
) -> Content:
    """Image files in `<domain>/<class>/`; domains and classes may be spelled in several ways."""
    images, y = [], []
    for domain, spellings in domains.items():
        place = _first_folder(folder, spellings)
        files: list[Path] = []
        labels: list[int] = []
        for c, names in enumerate(classes.values()):
            inside = _first_folder(place, names)
            found = sorted(p for p in inside.iterdir() if p.suffix.lower() in SUFFIXES)
            files += found
            labels += [c] * len(found)
        if not files:
            raise InvalidInput(f"{place}: no images of domain '{domain}'")
        images.append(np.concatenate(list(resized(files, SIZE))))
        y.append(np.array(labels))
    return split_domains(images, y, list(domains), list(classes), counts)


def _first_folder(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_dir():
            return folder / name
    raise InvalidInput(f"{folder}: no folder {' or '.join(names)}")


def split_domains(
    images: list[np.ndarray],
    y: list[np.ndarray],
    names: list[str],
    classes: list[str],
    counts: Mapping[str, int],
) -> Content:
    """Every domain and class gives the same share to the test part; DSLR's smallest class has 8 images."""
    tests = [held_out_mask(labels, TEST_SHARE, name) for labels, name in zip(y, names, strict=True)]

    def part(test: bool) -> Samples:
        masks = [mask if test else ~mask for mask in tests]

        def chunks() -> Iterator[np.ndarray]:
            for pictures, mask in zip(images, masks, strict=True):
                yield pictures[mask]

        domain = np.repeat(np.arange(len(names)), [int(mask.sum()) for mask in masks])
        labels = np.concatenate([of[mask] for of, mask in zip(y, masks, strict=True)])
        return Samples(chunks(), labels, domain=domain)

    found = {name: len(labels) for name, labels in zip(names, y, strict=True)}
    return Content(
        train=part(test=False),
        test=part(test=True),
        shape=(3, SIZE, SIZE),
        class_names=classes,
        domain_names=names,
        complete=found == dict(counts),
        notes={"test split": SPLIT_NOTE, "images": SIZE_NOTE},
    )
