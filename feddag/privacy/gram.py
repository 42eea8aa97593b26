# SPDX-License-Identifier: Apache-2.0
"""Noisy principal vectors of each class: Analyze-Gauss (Dwork et al., 2014) in a small public basis.

A sample is projected to d public coordinates and scaled to length 1. One sample more or less then changes the
Gram matrix G = Σ x xᵀ of its class by a matrix of norm 1, so noise of standard deviation σ on svec(G) (the
diagonal, and √2 times the rest) is the Gaussian mechanism with sensitivity 1. The classes share no sample,
so all of them cost as much as one. The first eigenvector of the noisy matrix lies off the true one by about

    sin² θ ≈ σ² (d − 1) / (2 (λ₁ − λ₂)²),

which is known to everybody and enters the reliability of the angles.

Samples without their mean brightness point to all sides, and their first two eigenvalues are close. There the
direction of the sum Σ x of a class, whose sensitivity is 1 as well, survives the noise better:

    sin² θ ≈ σ² (d − 1) / |Σ x + noise|².
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from feddag.core.seeds import Seed

SHORTEST = 1e-30  # the squares of shorter rows lose digits, and a scaled row could be longer than 1
CHANNEL_STEP = 2  # a difference between colour channels counts like two steps of frequency


@dataclass(frozen=True)
class NoisyVectors:
    """Unit vectors of classes as rows, and what is known about their error."""

    vectors_PD: np.ndarray
    classes_P: np.ndarray
    errors_P: np.ndarray  # expected sin² of the angle to the true vector
    withheld: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def noisy_vectors(
    x_ND: np.ndarray,
    y_N: np.ndarray,
    present: np.ndarray,
    basis_dD: np.ndarray,
    sigma: float,
    vectors: int,
    generator: np.random.Generator,
    sums: bool = False,
) -> NoisyVectors:
    """The leading eigenvectors of the noisy Gram matrix of every class that counts as present.

    With `sums` one direction of each class, that of its noisy sum. The vectors are given in all D
    coordinates: angles between them are those in the basis.
    """
    z_Nd = unit_rows(x_ND.reshape(len(x_ND), basis_dD.shape[1]) @ basis_dD.T)
    d = basis_dD.shape[0]
    rows, classes, errors = [], [], []
    for label in present:
        of_class = z_Nd[y_N == label]
        if sums:
            found, off = noisy_direction(of_class, sigma, generator)
        else:
            found, off = _leading(noisy_gram(of_class, sigma, generator), sigma, vectors)
        rows.append(found @ basis_dD)
        classes += [int(label)] * len(found)
        errors += [min(error, 1 - 1 / d) for error in off]  # at most as far off as a random direction
    return NoisyVectors(
        vectors_PD=(np.concatenate(rows) if rows else np.zeros((0, basis_dD.shape[1]))).astype(np.float32),
        classes_P=np.array(classes, dtype=np.int64),
        errors_P=np.array(errors, dtype=np.float32),
    )


def _leading(gram_dd: np.ndarray, sigma: float, vectors: int) -> tuple[np.ndarray, list[float]]:
    """The first eigenvectors as rows, the largest entry positive, and how far off each one is expected."""
    values, axes = np.linalg.eigh(gram_dd)
    found = axes[:, ::-1].T[:vectors]
    peak = np.abs(found).argmax(axis=1)
    gaps = values[::-1][: len(found)] - values[::-1][1 : len(found) + 1]
    errors = [expected_error(sigma, len(gram_dd), gap) for gap in gaps]
    return found * np.sign(found[np.arange(len(found)), peak])[:, None], errors


def noisy_direction(
    z_Nd: np.ndarray, sigma: float, generator: np.random.Generator
) -> tuple[np.ndarray, list[float]]:
    """The direction of Σ z with Gaussian noise as one row, and its expected error."""
    d = z_Nd.shape[1]
    total_d = z_Nd.sum(axis=0) + generator.normal(scale=sigma, size=d)
    length = max(float(np.linalg.norm(total_d)), 1e-9)
    return total_d[None] / length, [sigma**2 * (d - 1) / length**2]


def expected_error(sigma: float, dims: int, gap: float) -> float:
    """sin² of the angle that the noise turns the first eigenvector by, for a gap λ₁ − λ₂."""
    return sigma**2 * (dims - 1) / (2 * max(gap, 1e-9) ** 2)


def noisy_gram(z_Nd: np.ndarray, sigma: float, generator: np.random.Generator) -> np.ndarray:
    """Σ z zᵀ with Gaussian noise: σ on the diagonal, σ/√2 elsewhere, symmetric."""
    d = z_Nd.shape[1]
    upper = np.triu(generator.normal(scale=sigma, size=(d, d)))
    noise_dd = (upper + np.triu(upper, 1).T) / math.sqrt(2)
    np.fill_diagonal(noise_dd, np.diag(upper))
    return z_Nd.T @ z_Nd + noise_dd


def unit_rows(z_Nd: np.ndarray) -> np.ndarray:
    """Every row scaled to length 1; one too short to be scaled without rounding is a row of zeros."""
    norms_N = np.linalg.norm(z_Nd, axis=1, keepdims=True)
    some_N = norms_N > SHORTEST
    return np.where(some_N, z_Nd / np.where(some_N, norms_N, 1), 0)


@lru_cache(maxsize=16)
def public_basis(shape: tuple[int, ...], dims: int) -> np.ndarray:
    """At most `dims` orthonormal rows that everybody knows, for samples of a shape.

    Images (channels, height, width): the lowest frequencies of a cosine transform. Other samples: a seeded
    orthonormal map, or the coordinates themselves where there are few.
    """
    size = math.prod(shape)
    if len(shape) == 3:
        waves = [cosines(n) for n in shape]
        levels = [
            (max(u, v) + CHANNEL_STEP * c, c, u + v, u, v)
            for c in range(shape[0])
            for u in range(min(shape[1], dims))
            for v in range(min(shape[2], dims))
        ]
        chosen = sorted(levels)[:dims]
        rows = [
            np.einsum("c,h,w->chw", waves[0][c], waves[1][u], waves[2][v]).ravel() for _, c, _, u, v in chosen
        ]
        return np.stack(rows)
    if size <= dims:
        return np.eye(size)
    generator = (Seed(0) / "public basis" / size / dims).numpy()
    return np.linalg.qr(generator.normal(size=(size, dims)))[0].T


def cosines(n: int) -> np.ndarray:
    """The orthonormal cosine transform of n points: row k has frequency k."""
    k, i = np.arange(n)[:, None], np.arange(n)[None, :]
    waves = np.cos(np.pi * k * (i + 0.5) / n) * math.sqrt(2 / n)
    waves[0] /= math.sqrt(2)
    return waves
