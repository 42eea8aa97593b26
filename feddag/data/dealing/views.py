# SPDX-License-Identifier: Apache-2.0
"""The samples that a client uses for validation and for testing."""

from dataclasses import dataclass

import numpy as np

from feddag.data.config import PartitionConfig

NO_ROWS = np.empty(0, dtype=np.int64)


def hold_out(rows: np.ndarray, y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mask of the rows held out for validation; one sample of every class always stays for training."""
    held = np.zeros(len(rows), dtype=bool)
    if share > 0:
        order = rng.permutation(len(rows))
        _, first_of_class = np.unique(y[rows[order]], return_index=True)
        free = np.delete(order, first_of_class)
        held[free[: round(share * len(rows))]] = True
    return held


@dataclass(frozen=True)
class Style:
    """The test rows of one style (a domain, or all), by class, and how many training samples it has."""

    rows_by_class: list[np.ndarray]
    train_counts: np.ndarray


def sort_by_class(rows: np.ndarray, test_y: np.ndarray, train_y: np.ndarray, num_classes: int) -> Style:
    """Sort the test rows of a style by class; `train_y` are the labels of the style's training samples."""
    y = test_y[rows]
    return Style([rows[y == c] for c in range(num_classes)], np.bincount(train_y, minlength=num_classes))


def view_rows(
    styles: list[Style],
    style_of_client: np.ndarray,
    counts_NC: np.ndarray,
    config: PartitionConfig,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Test rows of each client, given its training counts per class."""
    if config.test == "proportional":
        return [
            _at_most(config.test_samples, _proportional(styles[style_of_client[i]], counts, rng), rng)
            for i, counts in enumerate(counts_NC)
        ]
    # Clients with the same classes in the same style share one array: 10,000 views need little memory.
    shared: dict[tuple[int, bytes], np.ndarray] = {}
    views = []
    for i, counts in enumerate(counts_NC):
        key = (int(style_of_client[i]), (counts > 0).tobytes())
        if key not in shared:
            held = [styles[key[0]].rows_by_class[c] for c in np.flatnonzero(counts)]
            shared[key] = _at_most(config.test_samples, np.sort(np.concatenate([NO_ROWS, *held])), rng)
        views.append(shared[key])
    return views


def _proportional(style: Style, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Test rows of each class in the share that the client has of its training samples, at least one row."""
    drawn = [NO_ROWS]
    for c in np.flatnonzero(counts):
        rows = style.rows_by_class[c]
        number = min(len(rows), max(1, round(counts[c] / style.train_counts[c] * len(rows))))
        drawn.append(rng.choice(rows, size=number, replace=False))
    return np.sort(np.concatenate(drawn))


def _at_most(limit: int | None, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if limit is None or len(rows) <= limit:
        return rows
    return np.sort(rng.choice(rows, size=limit, replace=False))
