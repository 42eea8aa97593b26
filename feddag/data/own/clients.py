# SPDX-License-Identifier: Apache-2.0
"""What was read of your own data, client by client, and every sentence there is to say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from feddag.core.text import printable, shortened

LONGEST_SENTENCE = 2000  # characters; a file may hold names of any length
Missing = Literal["refuse", "drop", "impute"]


@dataclass(frozen=True)
class OwnSettings:
    """How your own data is to be read: the settings `data.label`, `client`, `features` and `missing`."""

    label: str = "label"
    client: str = "client"
    features: tuple[str, ...] = ()  # () means all columns except label and client
    missing: Missing = "refuse"


@dataclass(frozen=True, eq=False)
class ClientArrays:
    """Samples of one client as read; labels are still what the user calls them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray | None = None
    test_y: np.ndarray | None = None
    missing: int = 0  # missing values that were found in x and x_test

    def parts(self) -> list[tuple[str, np.ndarray, str, np.ndarray]]:
        """The name and array of x and y, and of x_test and y_test if the client has both."""
        pairs = [("x", self.x, "y", self.y)]
        if self.test_x is not None and self.test_y is not None:
            pairs.append(("x_test", self.test_x, "y_test", self.test_y))
        return pairs


@dataclass(frozen=True)
class Reading:
    """Clients that could be read, and sentences about them.

    Problems prevent training. Warnings do not, but somebody should look at them. Notes go into every result.
    """

    clients: list[ClientArrays] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)  # of tables: name → its first place in a sample
    values: Mapping[str, Sequence[str] | None] = field(default_factory=dict)  # of tables: see `encoding`


def plain_labels(y: np.ndarray) -> np.ndarray:
    """Labels as texts or whole numbers."""
    return y.astype(str) if y.dtype.kind in "US" else y.astype(np.int64)


def one_line(text: str) -> str:
    """The text on one line of bearable length."""
    return printable(shortened(text, LONGEST_SENTENCE))


def in_one_line_each(reading: Reading) -> Reading:
    """The same reading; names of files, columns and classes cannot break its sentences."""
    return replace(
        reading,
        problems=[one_line(sentence) for sentence in reading.problems],
        warnings=[one_line(sentence) for sentence in reading.warnings],
        notes={key: one_line(note) for key, note in reading.notes.items()},
    )
