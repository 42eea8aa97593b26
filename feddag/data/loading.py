# SPDX-License-Identifier: Apache-2.0
"""Find a dataset's files, convert them once, and map the result from then on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.examples import Scaling
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, Tags
from feddag.data.federation import Pool, Source
from feddag.data.files.cache import cached, write_npy
from feddag.data.files.download import Download, fetch, receipt_notes, size_in_words
from feddag.data.files.hashing import sha256_of_files, sha256_of_text, stamp_of_files


@dataclass(frozen=True)
class Samples:
    """One split as a reader returns it: a stream of chunks, because it may not fit into memory."""

    x: Iterable[np.ndarray]
    y: np.ndarray
    owner: np.ndarray | None = None  # index into Content.owner_names
    domain: np.ndarray | None = None  # index into Content.domain_names


@dataclass(frozen=True)
class Content:
    """A whole dataset as read from files."""

    train: Samples
    test: Samples
    shape: tuple[int, ...]  # of one sample
    class_names: Sequence[str]
    dtype: Any = np.uint8
    complete: bool = True
    owner_names: Sequence[str] = ()
    domain_names: Sequence[str] = ()
    notes: dict[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of tables, see Problem


@dataclass(frozen=True)
class Present:
    """One way in which a dataset can be stored: a folder with these files."""

    folder: str
    files: tuple[str, ...]  # relative to the folder; "*" is a pattern
    part: bool = field(default=False, kw_only=True)  # holds only a part of the published set

    def missing(self, root: Path) -> str | None:
        """The first file that is not there."""
        folder = root / self.folder
        for name in self.files:
            if not (any(folder.glob(name)) if "*" in name else (folder / name).is_file()):
                return f"{self.folder}/{name}" if self.folder != "." else name
        return None


@dataclass(frozen=True)
class Layout(Present):
    """A layout with its reader."""

    read: Callable[[Path], Content]

    def paths(self, root: Path) -> list[Path]:
        """All files this layout consists of."""
        folder = root / self.folder
        found = []
        for name in self.files:
            found += sorted(p for p in folder.glob(name) if p.is_file()) if "*" in name else [folder / name]
        return found


@dataclass(frozen=True)
class Found:
    """A layout, the folder it is in, and which kind of place that is."""

    layout: Layout
    root: Path
    kind: str
    downloads: Sequence[Download] = ()

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return self.layout.paths(self.root)


def find(
    config: DataConfig,
    layouts: Sequence[Layout],
    system: Sequence[tuple[Path, Layout]] = (),
    downloads: Sequence[Download] = (),
) -> Found:
    """The first place that has the files: data folder, system folder, download (only if allowed)."""
    root = config.data_folder
    for layout in layouts:
        if layout.missing(root) is None:
            return Found(layout, root, "local", downloads)
    for place, layout in system:
        if layout.missing(place) is None:
            return Found(layout, place, "system")
    if config.download and downloads:
        try:
            for download in downloads:
                fetch(download, root, config.max_download)
        except InvalidInput as error:
            raise InvalidInput(f"{error} (by hand: put {places(layouts)} into {root})") from error
        for layout in layouts:
            if layout.missing(root) is None:
                return Found(layout, root, "download", downloads)
    raise InvalidInput(_not_found(config, layouts, system, downloads))


def _not_found(
    config: DataConfig,
    layouts: Sequence[Layout],
    system: Sequence[tuple[Path, Layout]],
    downloads: Sequence[Download],
) -> str:
    root = config.data_folder
    for layout in layouts:  # a part of the dataset is there: say which file is missing
        if layout.folder != "." and (root / layout.folder).is_dir():
            return f"data.name '{config.name}': {layout.missing(root)} is missing in {root}"
    elsewhere = "".join(f" nor in {place}" for place, _ in system)
    hint = "put it there or set FEDDAG_DATA"
    if downloads:
        hint += f", or allow the download ({size_in_words(downloads)}): feddag data get {config.name}"
    return f"data.name '{config.name}': no {places(layouts)} in {root}{elsewhere}; {hint}"


def places(layouts: Sequence[Present]) -> str:
    """The folders (or files) a dataset may be in, for a sentence."""
    return " or ".join(
        dict.fromkeys(layout.folder + "/" if layout.folder != "." else layout.files[0] for layout in layouts)
    )


def load_found(
    config: DataConfig, found: Found, scaling: Scaling | None, listed: Sequence[str] = ()
) -> Dataset:
    """Convert what was found once, and map the result; without a scaling, it is computed from the samples.

    Folders in `listed` are very large, so they are read and hashed only when they are converted. After that,
    names, sizes and modification times are compared instead of their contents.
    """
    key = sha256 = sha256_of_files(found.paths, found.root)
    inside = [found.root / found.layout.folder / name for name in listed]
    more = [p for folder in inside for p in folder.rglob("*") if p.is_file()]
    if more:
        key = sha256_of_text(sha256 + stamp_of_files(more, found.root))

    def make(folder: Path) -> dict[str, Any]:
        facts = _convert(found, folder)
        return {**facts, "sha256": sha256_of_files([*found.paths, *more], found.root)} if more else facts

    entry = cached(config.cache_folder, config.name, key, make)
    source = Source(
        dataset=config.name,
        kind=found.kind,
        detail=str(found.root / found.layout.folder),
        train_samples=len(entry.arrays["train_y"]),
        test_samples=len(entry.arrays["test_y"]),
        sha256=entry.facts.get("sha256", sha256),
        complete=entry.facts["complete"],
    )
    dataset = from_entry(entry.arrays, entry.facts, source, scaling)
    return replace(dataset, notes={**dataset.notes, **receipt_notes(found.downloads, found.root)})


def _convert(found: Found, target: Path) -> dict[str, Any]:
    place = found.root / found.layout.folder
    try:
        return write_content(target, found.layout.read(place))
    except (ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
        raise InvalidInput(f"{place}: a file is damaged or not what was expected ({error})") from error


def write_content(folder: Path, content: Content) -> dict[str, Any]:
    """Write a dataset as .npy files; what is not an array goes into the facts."""
    for split, samples in (("train", content.train), ("test", content.test)):
        y = np.asarray(samples.y, dtype=np.int64)
        if len(y) and not 0 <= y.min() <= y.max() < len(content.class_names):
            raise InvalidInput(
                f"{split} labels: expected 0 to {len(content.class_names) - 1}, got {y.min()} to {y.max()}"
            )
        write_npy(folder / f"{split}_x.npy", samples.x, (len(y), *content.shape), content.dtype)
        np.save(folder / f"{split}_y.npy", y)
        for name, tags in (("owner", samples.owner), ("domain", samples.domain)):
            if tags is not None:
                np.save(folder / f"{split}_{name}.npy", np.asarray(tags, dtype=np.int64))
    return {
        "class_names": [str(name) for name in content.class_names],
        "owner_names": [str(name) for name in content.owner_names],
        "domain_names": [str(name) for name in content.domain_names],
        "complete": content.complete,
        "notes": content.notes,
        "columns": content.columns,
    }


def from_entry(
    arrays: dict[str, np.ndarray], facts: dict[str, Any], source: Source, scaling: Scaling | None
) -> Dataset:
    """A dataset of mapped arrays."""
    train = Pool(arrays["train_x"], np.asarray(arrays["train_y"]))
    return Dataset(
        train=train,
        test=Pool(arrays["test_x"], np.asarray(arrays["test_y"])),
        num_classes=len(facts["class_names"]),
        source=source,
        scaling=standard_scaling(train.x) if scaling is None else scaling,
        class_names=tuple(facts["class_names"]),
        owners=_tags(arrays, "owner", facts["owner_names"]),
        domains=_tags(arrays, "domain", facts["domain_names"]),
        notes=facts["notes"],
        columns=tuple((name, tuple(words)) for name, words in facts.get("columns", ())),
    )


def _tags(arrays: dict[str, np.ndarray], name: str, names: list[str]) -> Tags | None:
    if not names:
        return None
    return Tags(tuple(names), np.asarray(arrays[f"train_{name}"]), np.asarray(arrays[f"test_{name}"]))


def standard_scaling(x: np.ndarray, at_most: int = 5000) -> Scaling:
    """Mean and deviation of each channel (axis 1), measured on evenly spaced samples."""
    part = np.asarray(x[:: max(1, len(x) // at_most)], dtype=np.float64)
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    axes = (0, *range(2, part.ndim))
    mean, std = part.mean(axis=axes) / unit, part.std(axis=axes) / unit
    return Scaling(
        unit=unit,
        mean=tuple(round(float(m), 6) for m in mean),
        std=tuple(round(float(s), 6) or 1.0 for s in std),
    )
