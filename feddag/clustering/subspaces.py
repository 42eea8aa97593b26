# SPDX-License-Identifier: Apache-2.0
"""Principal vectors of each class of a data set: a truncated SVD per class (Section 3.2 of the paper)."""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
import scipy
from numpy.typing import ArrayLike

from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.options import SvdMethod

RANK_TOLERANCE = 1e-6
"""Singular values below this share of the largest are rounding noise of a Gram matrix, not data."""

SMALL_SIDE = 96
"""Below this many rows or columns Gram + eigh is faster than Lanczos (PROPACK); measured."""


@dataclass(frozen=True)
class Subspaces:
    """Principal vectors of one item: row r of `vectors_PD` is a unit vector of class `classes_P[r]`."""

    vectors_PD: FloatArray
    classes_P: IntArray
    withheld: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Classes that are present, but too small to be sent (`min_samples_per_vector`)."""
    errors_P: FloatArray | None = None
    """Known error of each vector: expected sin² of its angle to the true one, from noise that was added."""


def class_subspaces(
    x_ND: ArrayLike,
    y_N: ArrayLike,
    num_classes: int,
    vectors: float = 3,
    *,
    svd: SvdMethod = "exact",
    subsample: int | float = 50,
    min_samples_per_vector: float = 0,
    generator: np.random.Generator | None = None,
) -> Subspaces:
    """The p leading principal vectors of every class (U_c of Eq. 4); below 1, p is a share of the class.

    A class of n samples gives min(p, n) vectors, or max(1, ceil(p n)) when p is a share, and never more than
    its rank. Inputs are used as they are: the vectors do not depend on their scale, but they do on a shift.
    """
    x_ND, y_N = _checked_samples(x_ND, y_N, num_classes)
    if svd != "exact" and generator is None:
        raise ValueError(f"svd {svd!r} draws random numbers: pass generator=")
    found, classes, withheld = [], [], []
    for label in np.unique(y_N):
        rows = np.flatnonzero(y_N == label)
        wanted = vectors_of_class(len(rows), vectors)
        if len(rows) < min_samples_per_vector * wanted:
            withheld.append(label)
            continue
        if svd == "subsampled" and generator is not None:
            size = ceil(subsample * len(rows)) if isinstance(subsample, float) else subsample
            if size < len(rows):
                rows = np.sort(generator.choice(rows, size=max(size, 1), replace=False))
        vectors_pD = principal_vectors(
            x_ND[rows], wanted, randomised_by=generator if svd == "randomised" else None
        )
        found.append(vectors_pD.astype(np.float32))
        classes.append(np.full(len(vectors_pD), label, dtype=np.int64))
    return Subspaces(
        vectors_PD=np.concatenate(found) if found else np.zeros((0, x_ND.shape[1]), np.float32),
        classes_P=np.concatenate(classes) if classes else np.zeros(0, np.int64),
        withheld=np.asarray(withheld, dtype=np.int64),
    )


def class_means(
    features_ND: FloatArray, y_N: IntArray, num_classes: int, min_samples: float = 0
) -> Subspaces:
    """The mean of every class, one row each; nothing of a class below `min_samples`, or without features."""
    counts_C = np.bincount(y_N, minlength=num_classes) * (features_ND.shape[1] > 0)
    told = np.flatnonzero((counts_C > 0) & (counts_C >= min_samples))
    means = [features_ND[y_N == label].mean(axis=0, dtype=np.float64) for label in told]
    return Subspaces(
        vectors_PD=np.array(means, dtype=np.float32).reshape(len(told), features_ND.shape[1]),
        classes_P=told.astype(np.int64),
        withheld=np.flatnonzero((counts_C > 0) & (counts_C < min_samples)).astype(np.int64),
    )


def vectors_of_class(num_samples: int, vectors: float) -> int:
    """The number of vectors of a class of `num_samples`: a count, or below 1 a share, but at least one."""
    if 0 < vectors < 1:
        # The small subtraction keeps 0.01 * 300 = 3.0000000000000004 from asking for a fourth vector.
        return min(num_samples, max(1, ceil(vectors * num_samples - 1e-9)))
    if vectors < 1 or vectors != int(vectors):
        raise ValueError(f"vectors = {vectors:g}: expected a whole number, or a share between 0 and 1")
    return min(int(vectors), num_samples)


def principal_vectors(
    x_ND: FloatArray, p: int, randomised_by: np.random.Generator | None = None
) -> FloatArray:
    """The leading right singular vectors of `x_ND` as rows: at most p, at most its rank, signs fixed."""
    # Scaling by the largest entry keeps squares in range; directions do not change.
    largest = float(np.abs(x_ND).max(initial=0))
    if largest == 0 or p < 1:
        return np.zeros((0, x_ND.shape[1]))
    x_ND = x_ND / largest
    if randomised_by is not None:
        values_p, vectors_pD = _randomised(x_ND, p, randomised_by)
    elif min(x_ND.shape) <= max(SMALL_SIDE, 4 * p):
        values_p, vectors_pD = _by_gram(x_ND, p)
    else:
        values_p, vectors_pD = _by_lanczos(x_ND, p)
    vectors_pD = vectors_pD[values_p > RANK_TOLERANCE * values_p[0]]
    # Signs are arbitrary: make the largest entry positive, so that equal data give equal bits.
    peak_p = np.abs(vectors_pD).argmax(axis=1)
    return vectors_pD * np.sign(vectors_pD[np.arange(len(vectors_pD)), peak_p])[:, None]


def _by_gram(x_ND: FloatArray, p: int) -> tuple[FloatArray, FloatArray]:
    """Singular values and right vectors from the smaller Gram matrix."""
    wide = x_ND.shape[0] <= x_ND.shape[1]
    gram = x_ND @ x_ND.T if wide else x_ND.T @ x_ND
    p = min(p, len(gram))
    squares_p, vectors = scipy.linalg.eigh(gram, subset_by_index=(len(gram) - p, len(gram) - 1))
    values_p = np.sqrt(np.maximum(squares_p[::-1], 0))
    vectors_pD = (x_ND.T @ vectors if wide else vectors).T[::-1]
    norms_p = np.linalg.norm(vectors_pD, axis=1, keepdims=True)
    return values_p, vectors_pD / np.where(norms_p > 0, norms_p, 1)


def _by_lanczos(x_ND: FloatArray, p: int) -> tuple[FloatArray, FloatArray]:
    """The same by PROPACK; the result is checked, and computed by Gram where it is wrong."""
    from scipy.sparse.linalg import svds  # takes long to import

    try:
        _, values_p, vectors_pD = svds(x_ND, k=p, v0=np.ones(x_ND.shape[0]), solver="propack")
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return _by_gram(x_ND, p)
    order = np.argsort(-values_p, kind="stable")
    values_p, vectors_pD = values_p[order], vectors_pD[order]
    residual_p = np.linalg.norm((vectors_pD @ x_ND.T) @ x_ND - (values_p**2)[:, None] * vectors_pD, axis=1)
    # Lanczos breaks down on low rank (equal samples); `not <=` also catches NaN.
    if not (residual_p <= 1e-6 * values_p[0] ** 2).all() or values_p[-1] <= RANK_TOLERANCE * values_p[0]:
        return _by_gram(x_ND, p)
    return values_p, vectors_pD


def _randomised(x_ND: FloatArray, p: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Halko's randomised SVD; with fewer than 12 power iterations it is wrong by degrees on images."""
    seed = int(generator.integers(2**31 - 1))
    from sklearn.utils.extmath import randomized_svd

    _, values_p, vectors_pD = randomized_svd(
        x_ND, min(p, *x_ND.shape), n_oversamples=10, n_iter=12, random_state=seed
    )
    return values_p, vectors_pD


def _checked_samples(x: ArrayLike, y: ArrayLike, num_classes: int) -> tuple[FloatArray, IntArray]:
    x_N = np.asarray(x)
    y_N = np.asarray(y)
    if x_N.dtype.kind not in "fiub" or x_N.ndim < 1:
        raise ValueError(f"x must hold real numbers, one row per sample, got {x_N.dtype} {x_N.shape}")
    if y_N.ndim != 1 or len(y_N) != len(x_N):
        raise ValueError(f"y must hold one label per sample: {len(x_N)} samples, labels {y_N.shape}")
    if len(y_N) and (y_N.dtype.kind not in "iu" or y_N.min() < 0 or y_N.max() >= num_classes):
        raise ValueError(f"labels must be whole numbers from 0 to {num_classes - 1}")
    width = int(np.prod(x_N.shape[1:]))
    x_ND = x_N.reshape(len(x_N), width).astype(np.float64)
    bad = ~np.isfinite(x_ND).all(axis=1)
    if bad.any():
        raise ValueError(f"sample {int(bad.argmax())} contains NaN or infinity")
    return x_ND, y_N.astype(np.int64)
