# SPDX-License-Identifier: Apache-2.0
"""Noise: what sensors and transmission add."""

from collections.abc import Sequence

import numpy as np

Generators = Sequence[np.random.Generator]


def gaussian_noise(x: np.ndarray, scale: float, generators: Generators) -> np.ndarray:
    """Low light: normal noise."""
    return x + scale * _normal(x, generators)


def shot_noise(x: np.ndarray, photons: float, generators: Generators) -> np.ndarray:
    """Few photons: Poisson noise."""
    return np.stack([g.poisson(image * photons) / photons for image, g in zip(x, generators, strict=True)])


def impulse_noise(x: np.ndarray, amount: float, generators: Generators) -> np.ndarray:
    """Bit errors: a share of the values becomes 0 or 1."""
    u = np.stack([g.random(x.shape[1:]) for g in generators])
    return np.where(u < amount / 2, 0.0, np.where(u < amount, 1.0, x))


def speckle_noise(x: np.ndarray, scale: float, generators: Generators) -> np.ndarray:
    """Noise in proportion to the brightness."""
    return x + x * scale * _normal(x, generators)


def _normal(x: np.ndarray, generators: Generators) -> np.ndarray:
    return np.stack([g.standard_normal(x.shape[1:]) for g in generators])
