# SPDX-License-Identifier: Apache-2.0
"""Reading your own data: a folder with one entry per client, one table, or Python objects."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import plural
from feddag.data.files.guard import MemoryBudget
from feddag.data.own.arrays import read_npz
from feddag.data.own.checking import checked
from feddag.data.own.clients import ClientArrays, Missing, OwnSettings, Reading, in_one_line_each
from feddag.data.own.encoding import encode
from feddag.data.own.pictures import image_files, is_hidden, read_class_folders
from feddag.data.own.tables import TABLES, Column, Table, read_table

EXPECTED = "a folder with one entry per client, or a .csv or .parquet table"


class HasClients(Protocol):
    """Anything with natural clients: id → (x, y)."""

    def clients(self) -> Mapping[str, Any]:
        """Samples and labels of every client."""


def read_own(path: Path, settings: OwnSettings | None = None, budget: MemoryBudget | None = None) -> Reading:
    """Read and check a folder or a table; whatever is wrong becomes a sentence, nothing is raised."""
    return in_one_line_each(_read_own(path, settings or OwnSettings(), budget or MemoryBudget()))


def _read_own(path: Path, settings: OwnSettings, budget: MemoryBudget) -> Reading:
    if settings.label in settings.features or settings.client in settings.features:
        role = "label" if settings.label in settings.features else "client"
        return Reading(problems=[f"data.features: the {role} column cannot be a feature"])
    try:
        if path.is_dir():
            reading = _read_folder(path, settings, budget)
        elif path.exists() and path.suffix.lower() in TABLES:
            reading = _read_one_table(path, settings, budget)
        else:
            verb = "is not" if path.exists() else "does not exist; expected"
            return Reading(problems=[f"{path}: {verb} {EXPECTED}"])
        return checked(reading, settings.missing)
    except InvalidInput as error:
        return Reading(problems=[str(error)])
    except OSError as error:
        return Reading(problems=[f"{error.filename or path}: cannot be read ({error.strerror})"])
    except MemoryError:
        return Reading(problems=[f"{path}: there is not enough memory to read it"])


def own_files(path: Path) -> list[Path]:
    """The files that `read_own` reads: what the SHA-256 of your own data is made of."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    entries = [entry for entry in sorted(path.iterdir()) if not is_hidden(entry)]
    files = [entry for entry in entries if entry.is_file()]
    files += [file for entry in entries if entry.is_dir() for _, file in image_files(entry)]
    return [file for file in files if file.is_file()]


def read_clients(source: HasClients | Mapping[str, Any], missing: Missing = "refuse") -> Reading:
    """Read clients from a mapping or from an object with `clients()`.

    A client is (x, y), or a mapping with `train` and maybe `test`, each of which is (x, y).
    """
    mapping = source if isinstance(source, Mapping) else source.clients()
    clients, problems = [], []
    for name, value in mapping.items():
        try:
            clients.append(_client_from(str(name), value))
        except (ValueError, TypeError, LookupError) as error:
            problems.append(
                f"client '{name}': expected (x, y), or train=(x, y) and test=(x, y), as arrays ({error})"
            )
    if not clients and not problems:
        problems.append("there are no clients; at least one is needed")
    return in_one_line_each(checked(Reading(clients=clients, problems=problems), missing))


def _client_from(name: str, value: Any) -> ClientArrays:
    if not isinstance(value, Mapping):
        x, y = value
        return ClientArrays(name, np.asarray(x), _label_array(y))
    unknown = sorted(str(key) for key in value if key not in ("train", "test"))
    if unknown:
        raise LookupError(f"'{unknown[0]}' is neither 'train' nor 'test'")
    x, y = value["train"]
    if value.get("test") is None:
        return ClientArrays(name, np.asarray(x), _label_array(y))
    test_x, test_y = value["test"]
    return ClientArrays(name, np.asarray(x), _label_array(y), np.asarray(test_x), _label_array(test_y))


def _label_array(y: Any) -> np.ndarray:
    """Labels as an array; a list of texts may have None or NaN where a label is missing."""
    array = np.asarray(y)
    if array.dtype.kind != "O" or array.ndim != 1:
        return array
    missing = [value is None or value != value for value in array]
    if all(isinstance(value, str) or gone for value, gone in zip(array, missing, strict=True)):
        return np.array(["" if gone else value for value, gone in zip(array, missing, strict=True)])
    return np.array([np.nan if gone else value for value, gone in zip(array, missing, strict=True)])


# -- files ---------------------------------------------------------------------------------------------


def _read_folder(folder: Path, settings: OwnSettings, budget: MemoryBudget) -> Reading:
    problems: list[str] = []
    warnings: list[str] = []
    found: list[ClientArrays | Table] = []
    entries = [entry for entry in sorted(folder.iterdir()) if not is_hidden(entry)]
    for entry in entries:
        try:
            found.append(_read_entry(entry, settings, budget, warnings))
        except InvalidInput as error:
            problems.append(str(error))
    if not entries:
        problems.append(f"{folder}: the folder is empty; expected one folder or file per client")
    tables = [item for item in found if isinstance(item, Table)]
    if settings.features and len(tables) < len(found):
        problems.append("data.features: only tables have columns to choose, but there are other files")
    encoded = encode(tables, [settings.label], settings.features)
    samples = iter(encoded.samples)
    clients: list[ClientArrays] = []
    for item in found:
        if isinstance(item, ClientArrays):
            clients.append(item)
        elif (x := next(samples)) is not None:
            label = item.column(settings.label, "label")
            clients.append(ClientArrays(Path(item.name).stem, x, labels_of(label)))
    return Reading(
        clients,
        problems + encoded.problems + _equal_names([c.name for c in clients]),
        warnings + encoded.warnings,
        encoded.notes,
        encoded.columns if len(tables) == len(found) else {},
        encoded.values if len(tables) == len(found) else {},
    )


def _read_entry(
    entry: Path, settings: OwnSettings, budget: MemoryBudget, warnings: list[str]
) -> ClientArrays | Table:
    """One client; the columns of tables stay columns until all tables are known."""
    if entry.is_dir():
        return read_class_folders(entry, budget, warnings)
    if entry.suffix.lower() == ".npz":
        return read_npz(entry, budget)
    if entry.suffix.lower() in TABLES:
        only = {*settings.features, settings.label} if settings.features else None
        table = read_table(entry, budget, only=only)
        table.column(settings.label, "label")
        return table
    raise InvalidInput(f"{entry.name}: expected a folder or an .npz, .csv or .parquet file per client")


def _equal_names(names: list[str]) -> list[str]:
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    return [f"{name}: there is more than one file or folder for this client" for name in twice]


def _read_one_table(path: Path, settings: OwnSettings, budget: MemoryBudget) -> Reading:
    only = {*settings.features, settings.label, settings.client} if settings.features else None
    table = read_table(path, budget, as_text=settings.client, only=only)
    label = table.column(settings.label, "label")
    owner = table.column(settings.client, "client").texts
    assert owner is not None
    if nobody := int((owner == "").sum()):
        raise InvalidInput(f"{path.name}: {plural(nobody, 'row has', 'rows have')} no client")
    encoded = encode([table], [settings.label, settings.client], settings.features)
    (x,) = encoded.samples
    if x is None:
        return Reading(problems=encoded.problems)
    y = labels_of(label)
    names, which = np.unique(owner.astype(str), return_inverse=True)
    rows = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    clients = [ClientArrays(str(name), x[own], y[own]) for name, own in zip(names, rows, strict=True)]
    return Reading(
        clients, encoded.problems, encoded.warnings, encoded.notes, encoded.columns, encoded.values
    )


def labels_of(column: Column) -> np.ndarray:
    """Labels of a column: numbers if all cells are, else texts; NaN or "" where there is none."""
    return column.numbers if column.texts is None else column.texts.astype(str)
