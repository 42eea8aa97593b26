# SPDX-License-Identifier: Apache-2.0
"""From the columns of all tables together to samples: the same features, in the same order, for everyone."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from feddag.core.text import listed, plural
from feddag.data.own.tables import Column, Table

MOST_VALUES = 20  # a text column with more different values is not encoded
FEWEST_ROWS = 20  # in a smaller table all numbers of a column may differ by chance
Values = Mapping[str, Sequence[str] | None]  # column → its texts, each one feature; None: numbers
ID_NAME = re.compile(r"|.*[ _-]id|id|id[ _-].*|uuid|guid|index|row|unnamed: \d+", re.IGNORECASE)


@dataclass(frozen=True)
class Encoded:
    """Samples of each table (None for a table that does not fit), and what there is to say about them."""

    samples: list[np.ndarray | None]
    columns: dict[str, int] = field(default_factory=dict)  # name → its first place in a sample
    values: Values = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


def encode(tables: Sequence[Table], roles: Sequence[str], features: Sequence[str]) -> Encoded:
    """Features of all tables; `roles` are the label and client columns, `features` the columns to use.

    Columns are matched by name, so their order may differ from file to file. A text column becomes one
    feature per value (1 where the cell holds that value, else 0). A missing cell is NaN in all of them.
    """
    if not tables:
        return Encoded([])
    names, fits, problems = _common_columns(tables, roles, features)
    fitting = [table for table, fit in zip(tables, fits, strict=True) if fit]
    if not names or not fitting:
        return Encoded([None] * len(tables), problems=problems)
    texts = {name: [table for table in fitting if table.columns[name].texts is not None] for name in names}
    values: dict[str, list[str] | None] = {}
    refused: dict[str, list[str]] = {}
    for name in names:
        found = [table.columns[name] for table in fitting]
        values[name], reason = _values(found)
        if reason:
            where = listed([table.name for table in texts[name] or fitting], 3)
            refused.setdefault(where, []).append(f"'{name}' ({reason})")
    for where, columns in refused.items():
        noun = "column" if len(columns) == 1 else "columns"
        problems.append(
            f"{where}: {noun} {listed(columns, 20)} cannot be a feature; "
            f"choose others with data.features, or turn the texts into numbers"
        )
    if refused:
        return Encoded([None] * len(tables), problems=problems)
    places, at = {}, 0
    for name in names:
        places[name] = at
        at += 1 if values[name] is None else len(values[name] or [])
    samples = [
        samples_of(table.columns, values) if fit else None for table, fit in zip(tables, fits, strict=True)
    ]
    encoded = [
        f"{name} ({listed([_short(word) for word in words])})"
        for name, words in values.items()
        if words is not None
    ]
    notes = {"text columns": "one feature per value: " + "; ".join(encoded)} if encoded else {}
    return Encoded(samples, places, values, problems, _id_warnings(fitting, names), notes)


def _inputs(table: Table, roles: Sequence[str]) -> list[str]:
    return [name for name in table.columns if name not in roles]


def _common_columns(
    tables: Sequence[Table], roles: Sequence[str], features: Sequence[str]
) -> tuple[list[str], list[bool], list[str]]:
    """Feature columns in the order of the first usual table, which tables have them, what is wrong."""
    problems, fits = [], []
    if features:
        for table in tables:
            lacking = [f"'{name}'" for name in features if name not in table.columns]
            fits.append(not lacking)
            if lacking:
                problems.append(
                    f"{table.name}: data.features names {listed(lacking)}, "
                    f"but it has {listed(_inputs(table, roles), 20)}"
                )
        return list(features), fits, problems
    sets = Counter(frozenset(_inputs(table, roles)) for table in tables)
    usual = max(sets, key=lambda names: sets[names])
    order: list[str] = []
    for table in tables:
        names = _inputs(table, roles)
        fits.append(bool(names) and set(names) == usual)
        if not names:
            problems.append(f"{table.name}: no feature columns besides label and client")
        elif set(names) == usual:
            order = order or names
        else:
            lacking = [f"'{name}'" for name in sorted(usual.difference(names))]
            extra = [f"'{name}'" for name in names if name not in usual]
            said = [f"no column {listed(lacking)}, which others have"] if lacking else []
            said += [f"column {listed(extra)}, which others do not have"] if extra else []
            problems.append(f"{table.name}: {'; '.join(said)}")
    return order, fits, problems


def _values(columns: Sequence[Column]) -> tuple[list[str] | None, str]:
    """The values of a text column (None for a column of numbers), and why it cannot be used, if so."""
    strange = [column.strange for column in columns if column.strange]
    if strange:
        return None, f"holds {strange[0]}"
    texts = sum(int(column.is_text.sum()) for column in columns)
    if texts == 0:
        return None, ""
    filled = sum(int((~column.missing).sum()) for column in columns)
    if texts <= filled // 2:
        example = next(str(text) for c in columns if c.texts is not None for text in c.texts[c.is_text])
        return None, f"{texts:,} of {filled:,} cells are not numbers, such as '{_short(example)}'"
    values = sorted({text for column in columns for text in set(categories(column))} - {""})
    if len(values) > MOST_VALUES or 2 * len(values) > filled:
        looks = ", which looks like an id" if len(values) == filled else ""
        return None, f"{plural(len(values), 'different text')} in {plural(filled, 'row')}{looks}"
    return values, ""


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:30] + "…"


def categories(column: Column) -> np.ndarray:
    """Texts of all cells; a number is written in one way, so that 1, 1.0 and 01 are one value."""
    texts = np.full(len(column.numbers), "", dtype=object) if column.texts is None else column.texts.copy()
    for i in np.flatnonzero(~np.isnan(column.numbers)):
        texts[i] = f"{column.numbers[i]:.15g}"
    return texts


def samples_of(columns: Mapping[str, Column], values: Values) -> np.ndarray:
    """Samples of one table, (rows, features)."""
    parts = []
    for name, words in values.items():
        column = columns[name]
        if words is None:
            parts.append(column.numbers[:, None])
            continue
        cells = categories(column)
        hot = (cells[:, None] == np.array(words, dtype=object)[None, :]).astype(np.float64)
        hot[column.missing] = np.nan
        parts.append(hot)
    with np.errstate(over="ignore"):  # a number that is too large becomes infinite, which is refused later
        return np.concatenate(parts, axis=1).astype(np.float32)


def _id_warnings(tables: Sequence[Table], names: Sequence[str]) -> list[str]:
    """Columns that number the rows: a network that sees them learns the rows by heart."""
    warnings = []
    for name in names:
        columns = [table.columns[name] for table in tables]
        why = "its name" if ID_NAME.fullmatch(name) else ""
        if not why and sum(len(c.numbers) for c in columns) >= FEWEST_ROWS and all(map(_all_differ, columns)):
            why = "its values are whole numbers that all differ"
        if why:
            warnings.append(
                f"column '{name}' looks like an id ({why}); if it is one, leave it out with data.features"
            )
    return warnings


def _all_differ(column: Column) -> bool:
    numbers = column.numbers
    whole = column.texts is None and bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())
    return whole and len(np.unique(numbers)) == len(numbers)
