# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST split among clients with planted groups: the rows of the recovery table."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

CLASSES = 10


@dataclass(frozen=True)
class Client:
    """One client's samples (x: n x 784 bytes) and the group it was planted in."""

    x: np.ndarray
    y: np.ndarray
    group: int


def fashion_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 60,000 training images as bytes, one row each, and their labels."""
    x = np.frombuffer(
        gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16
    )
    y = np.frombuffer(
        gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8
    )
    return x.reshape(len(y), -1), y.astype(np.int64)


def dirichlet_rows(
    y: np.ndarray, held_NC: np.ndarray, alpha: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Class-wise Dirichlet over the holders of a class: full clients get no more, each gets at least one."""
    num_clients = len(held_NC)
    while True:
        parts: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
        sizes = np.zeros(num_clients)
        for label in np.flatnonzero(held_NC.any(axis=0)):
            rows = generator.permutation(np.flatnonzero(y == label))
            holders = np.flatnonzero(held_NC[:, label])
            shares = generator.dirichlet(np.full(len(holders), alpha)) * (
                sizes[holders] < len(y) / num_clients
            )
            if shares.sum() == 0:
                shares = np.ones(len(holders))
            counts = np.maximum(1, np.floor(shares / shares.sum() * (len(rows) - len(holders)))).astype(int)
            for holder, part in zip(holders, np.split(rows, np.cumsum(counts))[:-1], strict=True):
                parts[holder].append(part)
                sizes[holder] += len(part)
        if sizes.min() >= 10:
            return [np.concatenate(part) for part in parts]


def label_groups(
    num_groups: int, per_group: int, num_clients: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Groups of labels, unused labels first, no two groups equal; every client joins one at random."""
    while True:
        unused = list(generator.permutation(CLASSES))
        sets = []
        for _ in range(num_groups):
            chosen = [unused.pop() for _ in range(min(per_group, len(unused)))]
            rest = [c for c in generator.permutation(CLASSES) if c not in chosen]
            sets.append(frozenset(int(c) for c in chosen + rest[: per_group - len(chosen)]))
        groups = generator.integers(num_groups, size=num_clients)
        if len(set(sets)) == num_groups and np.bincount(groups, minlength=num_groups).min() >= 3:
            break
    held_NC = np.array([[c in sets[g] for c in range(CLASSES)] for g in groups])
    return held_NC, groups


CORRUPTIONS: tuple[Callable[[np.ndarray, np.random.Generator], np.ndarray], ...] = (
    lambda x, generator: x,
    lambda x, generator: np.clip(x + generator.normal(0, 0.1 * 255, x.shape), 0, 255),
    lambda x, generator: gaussian_filter(x.reshape(-1, 28, 28).astype(float), (0, 1, 1)).reshape(x.shape),
    lambda x, generator: np.clip(
        (x - x.mean(axis=1, keepdims=True)) * 0.4 + x.mean(axis=1, keepdims=True), 0, 255
    ),
)
"""Clean, and gaussian noise, blur and contrast at CIFAR-10-C's strengths 5, 5 and 3."""


def planted(row: str, x: np.ndarray, y: np.ndarray, seed: int, num_clients: int = 100) -> list[Client]:
    """The clients of one row of the table."""
    generator = np.random.default_rng([seed, list(ROWS).index(row)])
    everything = np.ones((num_clients, CLASSES), dtype=bool)
    thirds = generator.permutation(np.arange(num_clients) % 3)
    if row.startswith(("label", "pairs")):
        held, groups = label_groups(*ROWS[row][:2], num_clients, generator)
        rows = dirichlet_rows(y, held, ROWS[row][2], generator)
        return [Client(x[r], y[r], int(g)) for r, g in zip(rows, groups, strict=True)]
    if row == "iid":
        rows = np.array_split(generator.permutation(len(y)), num_clients)
        return [Client(x[r], y[r], 0) for r in rows]
    rows = dirichlet_rows(y, everything, 1.0, generator)
    if row == "concept shift":
        concepts = (np.arange(CLASSES), CLASSES - 1 - np.arange(CLASSES), (np.arange(CLASSES) + 1) % CLASSES)
        return [Client(x[r], concepts[g][y[r]], int(g)) for r, g in zip(rows, thirds, strict=True)]
    groups = generator.permutation(np.arange(num_clients) % len(CORRUPTIONS))
    return [
        Client(CORRUPTIONS[g](x[r], generator).astype(np.uint8), y[r], int(g))
        for r, g in zip(rows, groups, strict=True)
    ]


ROWS: dict[str, tuple] = {
    "label 20% a=0.25": (5, 2, 0.25),
    "label 20% a=1": (5, 2, 1.0),
    "label 30% a=0.25": (5, 3, 0.25),
    "label 30% a=1": (5, 3, 1.0),
    "pairs 11": (11, 2, 1.0),
    "concept shift": (),
    "feature skew": (),
    "iid": (),
}
