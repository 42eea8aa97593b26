# SPDX-License-Identifier: Apache-2.0
"""One's own data: what a folder or a table holds, client by client, and everything that is wrong."""

import csv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.files.images import SUFFIXES, picture
from feddag.data.names import is_allowed

TABLES = (".csv", ".parquet")


@dataclass(frozen=True)
class ClientArrays:
    """Samples of one client as read; labels are still what the user calls them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray | None = None
    test_y: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """Clients that could be read, and one sentence for each thing that is wrong."""

    clients: list[ClientArrays] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class HasClients(Protocol):
    """Anything with natural clients: id → (x, y)."""

    def clients(self) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """Samples and labels of every client."""


def read_own(path: Path, label: str, client: str) -> Reading:
    """Read a folder with an entry per client, or one table with a client column; never raises."""
    if path.is_dir():
        return _checked(_read_folder(path, label))
    if path.is_file() and path.suffix in TABLES:
        return _checked(_read_one_table(path, label, client))
    expected = "a folder with one entry per client, or a .csv or .parquet table"
    return Reading(
        problems=[f"{path}: {'is not' if path.exists() else 'does not exist; expected'} {expected}"]
    )


def read_clients(source: HasClients | Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Reading:
    """Read clients from a mapping or from an object with `clients()`."""
    mapping = source if isinstance(source, Mapping) else source.clients()
    clients = [ClientArrays(str(name), np.asarray(x), np.asarray(y)) for name, (x, y) in mapping.items()]
    return _checked(Reading(clients=clients))


# -- reading -------------------------------------------------------------------------------------------


def _read_folder(folder: Path, label: str) -> Reading:
    clients, problems = [], []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        reader: Callable[[Path, str], ClientArrays] | None = None
        if entry.is_dir():
            reader = _read_class_folders
        elif entry.suffix == ".npz":
            reader = _read_npz
        elif entry.suffix in TABLES:
            reader = _read_client_table
        if reader is None:
            problems.append(f"{entry.name}: expected a folder or an .npz, .csv or .parquet file per client")
            continue
        try:
            clients.append(reader(entry, label))
        except InvalidInput as error:
            problems.append(str(error))
    if not clients and not problems:
        problems.append(f"{folder}: the folder is empty; expected one folder or file per client")
    return Reading(clients, problems)


def _read_class_folders(folder: Path, label: str) -> ClientArrays:
    """Images in `<client>/<class>/`; grey images stay grey if all are."""
    files = [
        (c.name, file)
        for c in sorted(folder.iterdir())
        if c.is_dir()
        for file in sorted(c.iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise InvalidInput(f"{folder.name}/: no images in class folders such as {folder.name}/cat/1.png")
    from PIL import Image

    with Image.open(files[0][1]) as first:
        mode = "L" if first.mode in ("L", "1", "I;16") else "RGB"
    images = [picture(file, f"{folder.name}/{c}/{file.name}", None, mode) for c, file in files]
    shapes = sorted({image.shape[1:] for image in images})
    if len(shapes) > 1:
        raise InvalidInput(
            f"{folder.name}/: images of different sizes ({shapes[0][0]}×{shapes[0][1]} and "
            f"{shapes[-1][0]}×{shapes[-1][1]}); all must be equal"
        )
    return ClientArrays(folder.name, np.stack(images), np.array([c for c, _ in files]))


def _read_npz(path: Path, label: str) -> ClientArrays:
    """Arrays `x` and `y`, and if there are any `x_test` and `y_test`."""
    if not zipfile.is_zipfile(path):
        raise InvalidInput(f"{path.name}: not an .npz file that can be read")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except ValueError as error:
        raise InvalidInput(
            f"{path.name}: holds Python objects, which are never read; save plain arrays"
        ) from error
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path.name}: not an .npz file that can be read ({error})") from error
    missing = [name for name in ("x", "y") if name not in found]
    if missing:
        raise InvalidInput(
            f"{path.name}: no array '{missing[0]}'; it has {', '.join(sorted(found)) or 'none'}"
        )
    return ClientArrays(path.stem, found["x"], found["y"], found.get("x_test"), found.get("y_test"))


def _read_client_table(path: Path, label: str) -> ClientArrays:
    columns = read_table(path)
    if label not in columns:
        raise InvalidInput(f"{path.name}: no label column '{label}'; it has {', '.join(columns)}")
    y = columns.pop(label)
    return ClientArrays(path.stem, _features(path.name, columns), y)


def _read_one_table(path: Path, label: str, client: str) -> Reading:
    try:
        columns = read_table(path)
        for name, role in ((label, "label"), (client, "client")):
            if name not in columns:
                raise InvalidInput(f"{path.name}: no {role} column '{name}'; it has {', '.join(columns)}")
        y, owner = columns.pop(label), columns.pop(client).astype(str)
        x = _features(path.name, columns)
    except InvalidInput as error:
        return Reading(problems=[str(error)])
    clients = [ClientArrays(str(name), x[owner == name], y[owner == name]) for name in np.unique(owner)]
    return Reading(clients=clients)


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Columns of a .csv or .parquet file by name; numbers where every value is one or is missing."""
    if path.suffix == ".parquet":
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise InvalidInput(
                f"{path.name}: reading .parquet needs pyarrow (pip install 'feddag[data]')"
            ) from error
        try:
            table = parquet.read_table(path)
        except (ArrowException, OSError) as error:
            raise InvalidInput(f"{path.name}: not a .parquet file that can be read ({error})") from error
        return {name: _column(table.column(name).to_pylist()) for name in table.column_names}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path.name}: not a .csv file that can be read ({error})") from error
    if len(rows) < 2:
        raise InvalidInput(f"{path.name}: expected a line of column names and at least one row")
    header = rows[0]
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise InvalidInput(f"{path.name}, line {number}: {len(header)} values expected, got {len(row)}")
    return {name: _column([row[i] for row in rows[1:]]) for i, name in enumerate(header)}


def _column(values: Sequence[Any]) -> np.ndarray:
    """Numbers if all values are (missing ones are NaN), else texts."""
    try:
        return np.array([np.nan if value is None or value == "" else float(value) for value in values])
    except (TypeError, ValueError):
        return np.array(["" if value is None else str(value) for value in values])


def _features(name: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    texts = [column for column, values in columns.items() if values.dtype.kind not in "fiub"]
    if texts:
        raise InvalidInput(f"{name}: column '{texts[0]}' holds text; features must be numbers")
    if not columns:
        raise InvalidInput(f"{name}: no feature columns besides label and client")
    return np.stack(list(columns.values()), axis=1).astype(np.float32)


# -- checking ------------------------------------------------------------------------------------------


def _checked(reading: Reading) -> Reading:
    """Add everything that is wrong with what was read, all at once."""
    problems = list(reading.problems)
    usable = []
    for c in reading.clients:
        wrong = list(_wrong_with(c))
        problems += wrong
        if not wrong:
            usable.append(c)
    shapes: dict[tuple[Any, ...], list[str]] = {}
    for c in usable:
        shapes.setdefault((c.x.shape[1:], "text" if c.y.dtype.kind in "US" else "numbers"), []).append(c.name)
    if len(shapes) > 1:
        usual = max(shapes, key=lambda key: len(shapes[key]))
        for key, names in shapes.items():
            if key != usual:
                what = (
                    f"samples of shape {key[0]}, others have {usual[0]}"
                    if key[0] != usual[0]
                    else f"labels are {key[1]}, others have {usual[1]}"
                )
                problems += [f"{name}: {what}" for name in names]
    if usable and not problems and len(np.unique(np.concatenate([plain_labels(c.y) for c in usable]))) < 2:
        problems.append("all clients together have one class; at least two are needed")
    return Reading(reading.clients, problems)


def _wrong_with(c: ClientArrays) -> list[str]:
    problems = []
    if not is_allowed(c.name):
        problems.append(
            f"'{c.name}': a client's name may have letters, digits, dot, dash and underscore only"
        )
    pairs = [("x", c.x, "y", c.y)]
    if c.test_x is not None or c.test_y is not None:
        if c.test_x is None or c.test_y is None:
            problems.append(f"{c.name}: x_test and y_test belong together, but one is missing")
        else:
            pairs.append(("x_test", c.test_x, "y_test", c.test_y))
    for x_name, x, y_name, y in pairs:
        if x.dtype.kind not in "fiub":
            problems.append(f"{c.name}: {x_name} holds {x.dtype}; expected numbers")
            continue
        if x.ndim < 2:
            problems.append(f"{c.name}: {x_name} has shape {x.shape}; expected samples × features")
        if y.ndim != 1 or len(x) != len(y):
            problems.append(f"{c.name}: {x_name} has {len(x)} samples but {y_name} has shape {y.shape}")
        if len(x) == 0:
            problems.append(f"{c.name}: {x_name} has no samples")
        bad = int(np.count_nonzero(~np.isfinite(x))) if x.dtype.kind == "f" else 0
        if bad:
            problems.append(f"{c.name}: {bad} missing or infinite values in {x_name}")
        problems += _wrong_labels(c.name, y_name, y)
    if c.test_x is not None and c.test_x.shape[1:] != c.x.shape[1:]:
        problems.append(
            f"{c.name}: samples of x_test have shape {c.test_x.shape[1:]}, those of x {c.x.shape[1:]}"
        )
    return problems


def _wrong_labels(name: str, y_name: str, y: np.ndarray) -> list[str]:
    if y.dtype.kind in "US":
        empty = int(np.count_nonzero(y == y.dtype.type("")))
        return [f"{name}: {empty} missing labels in {y_name}"] if empty else []
    if y.dtype.kind not in "fiub":
        return [f"{name}: {y_name} holds {y.dtype}; expected class numbers or names"]
    if y.dtype.kind == "f":
        missing = int(np.count_nonzero(~np.isfinite(y)))
        if missing:
            return [f"{name}: {missing} missing labels in {y_name}"]
        if (y != np.floor(y)).any():
            return [f"{name}: {y_name} holds fractions such as {y[y != np.floor(y)][0]:g}; expected classes"]
    return []


def plain_labels(y: np.ndarray) -> np.ndarray:
    """Labels as texts or whole numbers."""
    return y.astype(str) if y.dtype.kind in "US" else y.astype(np.int64)


def client_facts(reading: Reading) -> list[tuple[str, ...]]:
    """What was found per client, as texts: name, samples, test, shape, type, classes, missing values."""
    facts: list[tuple[str, ...]] = []
    for c in reading.clients:
        missing = int(np.count_nonzero(~np.isfinite(c.x))) if c.x.dtype.kind == "f" else 0
        labels = c.y[np.isfinite(c.y)] if c.y.dtype.kind == "f" else c.y
        classes = np.unique(plain_labels(labels)) if labels.dtype.kind in "USfiub" else np.array([])
        names = ", ".join(str(value) for value in classes[:8]) + (", …" if len(classes) > 8 else "")
        tests = "" if c.test_y is None else str(len(c.test_y))
        shape = "×".join(str(size) for size in c.x.shape[1:])
        facts.append(
            (c.name, str(len(c.x)), tests, shape, str(c.x.dtype), f"{len(classes)}: {names}", str(missing))
        )
    return facts
