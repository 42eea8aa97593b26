# SPDX-License-Identifier: Apache-2.0
"""What a client remembers of its data for later checks: counts, first vectors and means of its classes."""

import hashlib
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from feddag.clustering.subspaces import principal_vectors
from feddag.core.examples import Examples
from feddag.core.seeds import Seed

if TYPE_CHECKING:
    from feddag.learning.drift import DriftOptions

LEAST, MOST = 8, 200  # samples of a class that are compared: fewer say nothing, more only cost time
DIRECTIONS = 6  # first vectors of the reference data that means are looked at on
TINY = 1e-12


def fingerprint(train: Examples) -> np.ndarray:
    """Names the samples: other samples have another one."""
    sha = hashlib.blake2b(np.ascontiguousarray(train.x).data, digest_size=16)
    sha.update(np.ascontiguousarray(train.y).data)
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def describe(
    train: Examples, options: "DriftOptions", seed: Seed, basis: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """What a client remembers of its data; `basis` is that of its reference, where there is one."""
    found = {"counts": train.counts()}
    rows_of = _rows_of_classes(train, seed)
    if options.subspaces:
        found |= _subspaces(train, rows_of)
    if options.means:
        found |= _means(train, rows_of, basis)
    return found


def _flat(train: Examples) -> np.ndarray:
    """Samples as rows of numbers."""
    return train.x.reshape(len(train), prod(train.x.shape[1:])).astype(np.float32)


def _rows_of_classes(train: Examples, seed: Seed) -> dict[int, np.ndarray]:
    """Random rows of every class that has enough samples, at most `MOST`."""
    generator, found = (seed / "watched").numpy(), {}
    for label in np.unique(train.y):
        rows = generator.permutation(np.flatnonzero(train.y == label))[:MOST]
        if len(rows) >= LEAST:
            found[int(label)] = rows
    return found


def _subspaces(train: Examples, rows_of: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
    """The first vector of every class, and its noise a / n."""
    x_ND = _flat(train)
    labels, vectors, noise = [], [], []
    for label, rows in rows_of.items():
        half = len(rows) // 2
        whole, one, other = (first_vector(x_ND[part]) for part in (rows, rows[:half], rows[half : 2 * half]))
        labels.append(label)
        vectors.append(whole)
        noise.append(max(sine_squared(one, other) / 4, TINY))  # the halves have n/2 samples each
    return {
        "classes": np.array(labels, dtype=np.int64),
        "vectors": np.array(vectors, dtype=np.float32).reshape(len(labels), x_ND.shape[1]),
        "noise": np.array(noise),
    }


def first_vector(x_ND: np.ndarray) -> np.ndarray:
    """The first right singular vector; zeros for samples that are all zero."""
    found = principal_vectors(x_ND, 1)
    return found[0] if len(found) else np.zeros(x_ND.shape[1])


def sine_squared(one_D: np.ndarray, other_D: np.ndarray) -> float:
    """sin² of the angle between two unit vectors."""
    return float(max(1 - np.dot(one_D, other_D) ** 2, 0.0))


def detail(x_NCHW: np.ndarray) -> np.ndarray:
    """Logs of each image's mean squares (itself, its slopes, its bends) and of its noise, (n, 4)."""
    x = x_NCHW[:, 0].astype(np.float32) if x_NCHW.shape[1] == 1 else x_NCHW.mean(axis=1, dtype=np.float32)
    # np.diff takes twice as long for small arrays
    down, right = x[:, 1:] - x[:, :-1], x[:, :, 1:] - x[:, :, :-1]
    bends = down[:, 1:] - down[:, :-1], right[:, :, 1:] - right[:, :, :-1]
    found = np.empty((len(x), 4), dtype=np.float32)
    for k, parts in enumerate(((x,), (down, right), bends)):
        squares = [np.einsum("nhw,nhw->n", part, part) / part[0].size for part in parts]
        found[:, k] = sum(squares) / len(parts)
    # Edges are few and noise is everywhere, so the median of the mixed differences shows the noise.
    mixed = np.abs(down[:, :, 1:] - down[:, :, :-1]).reshape(len(x), -1)
    middle = mixed.shape[1] // 2
    mixed.partition(middle, axis=1)  # np.median takes ten times as long
    found[:, 3] = mixed[:, middle]
    return np.log(found + 1.0)


def _means(
    train: Examples, rows_of: dict[int, np.ndarray], basis_KD: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Mean and variance of each class in a few numbers per sample."""
    x_ND = _flat(train)
    if basis_KD is None:
        every = np.concatenate([np.zeros(0, dtype=np.int64), *rows_of.values()])
        basis_KD = principal_vectors(x_ND[every[:: max(1, len(every) // MOST)]], DIRECTIONS)
    is_image = train.x.ndim == 4 and min(train.x.shape[2:]) >= 3
    means, variances, sizes = [], [], []
    for rows in rows_of.values():
        values = x_ND[rows] @ basis_KD.T.astype(np.float32)
        if is_image:
            values = np.concatenate([values, detail(train.x[rows])], axis=1)
        means.append(values.mean(axis=0))
        variances.append(values.var(axis=0, ddof=1))
        sizes.append(len(rows))
    width = len(basis_KD) + 4 * is_image
    return {
        "basis": basis_KD.astype(np.float32),
        "mean_classes": np.array([*rows_of], dtype=np.int64),
        "means": np.array(means, dtype=np.float64).reshape(-1, width),
        "variances": np.array(variances, dtype=np.float64).reshape(-1, width),
        "sizes": np.array(sizes, dtype=np.int64),
    }
