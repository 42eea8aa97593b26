# SPDX-License-Identifier: Apache-2.0
"""From what was read of each client to one dataset, with a test part held out where a client has none."""

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.loading import Content, Samples
from feddag.data.own.clients import ClientArrays, Missing, Reading, plain_labels
from feddag.data.own.missing import Part, fill_with_means


def content_of(reading: Reading, test_share: float, missing: Missing = "refuse") -> Content:
    """All clients together; a client without a test part of its own gives a share of each class."""
    if reading.problems:
        more = len(reading.problems) - 1
        hint = f" (and {more} more: `feddag data check` prints all)" if more else ""
        raise InvalidInput(reading.problems[0] + hint)
    values = np.unique(np.concatenate([plain_labels(y) for c in reading.clients for _, _, _, y in c.parts()]))
    types = [x.dtype for c in reading.clients for _, x, _, _ in c.parts()]
    integer = all(dtype.kind in "iub" for dtype in types)
    pixels = all(dtype == np.uint8 for dtype in types)
    both = [_split(c, values, test_share) for c in reading.clients]
    trains, tests = [train for train, _ in both], [test for _, test in both]
    if missing == "impute" and any(c.missing for c in reading.clients):
        trains, tests = fill_with_means(trains, tests)
    notes = dict(reading.notes)
    if any(c.test_y is None for c in reading.clients):
        notes["test split"] = f"ours: {test_share:.0%} of each client's classes, fixed"
    if reading.warnings:
        notes["warnings"] = "; ".join(reading.warnings)
    return Content(
        train=_samples(trains),
        test=_samples(tests),
        shape=reading.clients[0].x.shape[1:],
        dtype=np.uint8 if pixels else np.int64 if integer else np.float32,
        class_names=[str(value) for value in values],
        owner_names=[c.name for c in reading.clients],
        notes=notes,
        columns=tuple((name, tuple(words or ())) for name, words in reading.values.items()),
    )


def _samples(parts: list[Part]) -> Samples:
    owner = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    return Samples([x for x, _ in parts], np.concatenate([y for _, y in parts]), owner=owner)


def _split(c: ClientArrays, values: np.ndarray, test_share: float) -> tuple[Part, Part]:
    y = np.searchsorted(values, plain_labels(c.y))
    if c.test_x is not None and c.test_y is not None:
        return (c.x, y), (c.test_x, np.searchsorted(values, plain_labels(c.test_y)))
    test = held_out_mask(y, test_share, f"own/{c.name}")
    return (c.x[~test], y[~test]), (c.x[test], y[test])
