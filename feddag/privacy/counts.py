# SPDX-License-Identifier: Apache-2.0
"""Noisy numbers of samples: discrete Laplace noise on every entry of a histogram.

One sample more or less changes one entry by one, so the whole histogram costs one ε.
"""

from fractions import Fraction

import numpy as np

from feddag.privacy.noise import discrete_laplace

PRESENT = 5  # noise of an absent class exceeds 5/ε with probability exp(-5)/2, about 0.3%


def noisy_counts(counts_C: np.ndarray, epsilon: float, generator: np.random.Generator) -> np.ndarray:
    """The histogram with noise, as int64. Entries that could be noise alone become 0: absent."""
    exact = Fraction(str(epsilon))
    noisy_C = np.array([int(n) + discrete_laplace(exact, generator) for n in counts_C], dtype=np.int64)
    return np.where(noisy_C >= PRESENT / epsilon, noisy_C, 0)
