# SPDX-License-Identifier: Apache-2.0
"""Missing values: refused with their counts, dropped with their rows, or filled with the training mean."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import listed, plural
from feddag.data.own.clients import ClientArrays, Missing, Reading

Part = tuple[np.ndarray, np.ndarray]


def handle_missing(reading: Reading, how: Missing) -> Reading:
    """Count what is missing, and refuse it or drop its rows; "impute" is left to `fill_with_means`."""
    clients = [
        replace(c, missing=sum(int(holes(x).sum()) for _, x, _, _ in c.parts())) for c in reading.clients
    ]
    reading = replace(reading, clients=clients)
    problems, notes = list(reading.problems), dict(reading.notes)
    values = _values_sentence(reading)
    if values and how == "refuse":
        choose = ", or choose columns with data.features" if reading.columns else ""
        problems.append(f"{values}; set data.missing to 'drop' or 'impute'{choose}")
    elif how == "drop":
        clients, dropped = _drop(clients)
        for c in clients:
            if len(c.x) == 0:
                problems.append(
                    f"{c.name}: every row has a missing value, so data.missing 'drop' leaves none"
                )
        if dropped:
            notes["missing values"] = f"{plural(dropped, 'row')} dropped ({values or 'missing labels'})"
    elif values and how == "impute":
        problems += _empty_features(clients, reading.columns)
        notes["missing values"] = f"filled with the mean of the training samples ({values})"
    if how != "drop":
        hint = (
            "data.missing = 'drop' leaves their rows out" if how == "refuse" else "labels cannot be imputed"
        )
        for c in clients:
            for _, _, y_name, y in c.parts():
                if number := int(no_label(y).sum()):
                    problems.append(f"{c.name}: {plural(number, 'missing label')} in {y_name}; {hint}")
    return replace(reading, clients=clients, problems=problems, notes=notes)


def holes(x: np.ndarray) -> np.ndarray:
    """Mask of the missing values."""
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, dtype=bool)


def no_label(y: np.ndarray) -> np.ndarray:
    """Mask of the samples without a label."""
    if y.dtype.kind == "f":
        return np.isnan(y)
    return y == y.dtype.type("") if y.dtype.kind in "US" else np.zeros(y.shape, dtype=bool)


def _values_sentence(reading: Reading) -> str:
    """How many values are missing, by column and where; "" if none."""
    affected = [c for c in reading.clients if c.missing]
    if not affected:
        return ""
    by_column: Counter[str] = Counter()
    total = 0
    for c in affected:
        for _, x, _, _ in c.parts():
            missing = holes(x)
            if reading.columns:
                found = {name: int(missing[:, place].sum()) for name, place in reading.columns.items()}
            elif missing.ndim == 2:
                found = {f"feature {i}": int(n) for i, n in enumerate(missing.sum(axis=0))}
            else:
                found = {"x": int(missing.sum())}
            by_column.update({name: number for name, number in found.items() if number})
            total += sum(found.values())
    words = listed([f"{name} {number:,}" for name, number in by_column.items()], 20)
    where = listed([c.name for c in affected], 4)
    return f"{plural(total, 'missing value')}: {words} (in {where})"


def _drop(clients: list[ClientArrays]) -> tuple[list[ClientArrays], int]:
    kept, dropped = [], 0
    for c in clients:
        parts = []
        for _, x, _, y in c.parts():
            bad = holes(x).reshape(len(x), -1).any(axis=1) | no_label(y)
            dropped += int(bad.sum())
            parts.append((x[~bad], y[~bad]) if bad.any() else (x, y))
        tests = parts[1] if len(parts) > 1 else (c.test_x, c.test_y)
        kept.append(replace(c, x=parts[0][0], y=parts[0][1], test_x=tests[0], test_y=tests[1]))
    return kept, dropped


def _empty_features(clients: list[ClientArrays], columns: Mapping[str, int]) -> list[str]:
    """A sentence if a feature has no value anywhere, so that it has no mean."""
    shapes = {c.x.shape[1:] for c in clients}
    if len(shapes) != 1:
        return []  # said elsewhere
    empty = np.logical_and.reduce([holes(c.x).all(axis=0) for c in clients]).reshape(-1)
    names = {place: f"'{name}'" for name, place in columns.items()}
    found = [names.get(int(i), f"feature {i}") for i in np.flatnonzero(empty)]
    return [f"{listed(found)}: all values are missing, so there is no mean to impute"] if found else []


def fill_with_means(trains: list[Part], tests: list[Part]) -> tuple[list[Part], list[Part]]:
    """Fill missing values with the mean over all training samples; test samples have no part in the mean."""
    shape = trains[0][0].shape[1:]
    total, number = np.zeros(shape), np.zeros(shape)
    for x, _ in trains:
        present = ~holes(x)
        total += np.where(present, x, 0).sum(axis=0, dtype=np.float64)
        number += present.sum(axis=0)
    if (number == 0).any():
        raise InvalidInput(
            "data.missing 'impute': a feature has values in test samples only, so it has no mean"
        )
    means = total / number

    def fill(parts: list[Part]) -> list[Part]:
        return [
            (np.where(holes(x), means.astype(x.dtype), x), y) if holes(x).any() else (x, y) for x, y in parts
        ]

    return fill(trains), fill(tests)
