# SPDX-License-Identifier: Apache-2.0
"""Samples to predict for: images, an .npz file, or a table, as the network was trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.problem import Problem
from feddag.core.text import listed
from feddag.data.files.guard import MemoryBudget, require_plain_file
from feddag.data.files.images import SUFFIXES, image_header, picture
from feddag.data.own.arrays import read_arrays
from feddag.data.own.clients import OwnSettings, plain_labels
from feddag.data.own.encoding import categories, samples_of
from feddag.data.own.pictures import is_hidden
from feddag.data.own.reading import labels_of
from feddag.data.own.tables import TABLES, Column, Table, read_table

EXPECTED = "an image, a folder of images, an .npz file with an array x, or a .csv or .parquet table"


@dataclass(frozen=True)
class SampleSet:
    """Samples with a name each, and their classes where the files say them."""

    names: Sequence[str]
    x: np.ndarray
    labels: np.ndarray | None = None  # texts

    def __len__(self) -> int:
        return len(self.names)


def read_samples(path: Path, problem: Problem, settings: OwnSettings) -> SampleSet:
    """The samples in a file or folder, in the shape, order and type of the samples of `problem`."""
    budget = MemoryBudget()
    suffix = path.suffix.lower()
    try:
        if path.is_dir() or suffix in SUFFIXES:
            return _images(path, problem, budget)
        if path.exists() and suffix == ".npz":
            found = read_arrays(path, budget, needed=("x",))
            return _numbered(found["x"], found.get("y"))
        if path.exists() and suffix in TABLES:
            return _rows(read_table(path, budget), problem, settings)
    except OSError as error:
        raise InvalidInput(f"{error.filename or path}: cannot be read ({error.strerror})") from error
    verb = "is not" if path.exists() else "does not exist; expected"
    raise InvalidInput(f"{path}: {verb} {EXPECTED}")


def _numbered(x: np.ndarray, y: np.ndarray | None) -> SampleSet:
    if x.ndim < 2:
        raise InvalidInput(f"x: expected one row per sample, got an array of shape {x.shape}")
    if y is not None and y.shape != (len(x),):
        raise InvalidInput(f"y: expected one class for each of the {len(x)} samples, got shape {y.shape}")
    labels = None if y is None else plain_labels(y).astype(str)
    return SampleSet([str(i) for i in range(len(x))], x, labels)


def _images(path: Path, problem: Problem, budget: MemoryBudget) -> SampleSet:
    if len(problem.input_shape) != 3 or problem.input_shape[0] not in (1, 3):
        raise InvalidInput(
            f"{path}: this run was trained on samples of shape {problem.input_shape}, not on images"
        )
    channels, *size = problem.input_shape
    files = [path]
    if path.is_dir():
        found = sorted(path.rglob("*"))
        files = [f for f in found if f.suffix.lower() in SUFFIXES and not is_hidden(f) and f.is_file()]
    if not files:
        raise InvalidInput(f"{path}: no images in this folder ({', '.join(SUFFIXES)})")
    names = [str(f.relative_to(path)) if path.is_dir() else f.name for f in files]
    for file, name in zip(files, names, strict=True):
        bytes_ = require_plain_file(file, name)
        found_size, _ = image_header(file, name)
        if list(found_size) != size:
            raise InvalidInput(
                f"{name}: {found_size[0]}×{found_size[1]} pixels; this run was trained on "
                f"{size[0]}×{size[1]}: resize it first"
            )
        budget.take(name, 3 * size[0] * size[1], bytes_)
    mode = "L" if channels == 1 else "RGB"
    x = np.stack([picture(file, name, None, mode) for file, name in zip(files, names, strict=True)])
    folders = [file.parent.name for file in files]
    in_classes = path.is_dir() and set(folders) <= set(problem.class_names)
    return SampleSet(names, x, np.array(folders) if in_classes else None)


def _rows(table: Table, problem: Problem, settings: OwnSettings) -> SampleSet:
    if not problem.columns:
        raise InvalidInput(f"{table.name}: this run was not trained on tables; give {EXPECTED}")
    lacking = [f"'{name}'" for name, _ in problem.columns if name not in table.columns]
    if lacking:
        raise InvalidInput(
            f"{table.name}: no column {listed(lacking)}, which the run was trained on; "
            f"it has {listed(list(table.columns), 20)}"
        )
    for name, words in problem.columns:
        _check_cells(table.name, name, table.columns[name], words)
    x = samples_of(table.columns, {name: words or None for name, words in problem.columns})
    if settings.missing == "impute":  # as in training: the mean, which scaling subtracts
        x = np.where(np.isnan(x), np.asarray(problem.scaling.mean, dtype=np.float32), x)
    labels = None
    if settings.label in table.columns:
        found = labels_of(table.column(settings.label, "label"))
        filled = found.dtype.kind in "US" or not np.isnan(found).any()
        labels = plain_labels(found).astype(str) if filled else None
    return SampleSet([str(i) for i in range(len(x))], x, labels)


def _check_cells(table: str, name: str, column: Column, words: Sequence[str]) -> None:
    if words:
        unknown = sorted({str(text) for text in categories(column)} - {"", *words})
        if unknown:
            raise InvalidInput(
                f"{table}: column '{name}' holds '{unknown[0]}'; in training it held {listed(words, 20)}"
            )
    elif column.strange or column.is_text.any():
        example = column.strange or str(column.texts[column.is_text][0])  # type: ignore[index]
        raise InvalidInput(f"{table}: column '{name}' holds '{example}'; expected numbers")
