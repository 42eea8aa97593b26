# SPDX-License-Identifier: Apache-2.0
"""Where noise and secrets come from: a named seed in a simulation, the operating system in a deployment.

A simulation is replayed after a kill, so its noise must be the same again; then nothing is released twice.
A deployed client must never use the seed of a question: the server knows it, and could subtract the noise.
"""

import hashlib
import secrets
from fractions import Fraction

import numpy as np

from feddag.core.seeds import Seed


class Noise:
    """Randomness for one release, named by what it is for."""

    def __init__(self, seed: Seed | None) -> None:
        self.seed = seed  # None: from the operating system

    def generator(self, name: str) -> np.random.Generator:
        """A generator of real numbers."""
        if self.seed is None:
            return np.random.default_rng(secrets.randbits(256))
        return (self.seed / name).numpy()

    def secret(self, name: str) -> bytes:
        """32 bytes that nobody else knows."""
        if self.seed is None:
            return secrets.token_bytes(32)
        return hashlib.blake2b(
            f"{(self.seed / name).integer()} {(self.seed / name / 'more').integer()}".encode(), digest_size=32
        ).digest()


def discrete_laplace(epsilon: Fraction, generator: np.random.Generator) -> int:
    """A whole number k with probability ∝ exp(−ε |k|), from fair dice alone: no rounding, so no leak by it.

    Canonne, Kamath, Steinke (2020), algorithm 2, with ε = s/t.
    """
    s, t = epsilon.numerator, epsilon.denominator
    while True:
        rest = int(generator.integers(t))
        if not _bernoulli_exp(Fraction(rest, t), generator):
            continue
        whole = 0
        while _bernoulli_exp(Fraction(1), generator):
            whole += 1
        size = (rest + t * whole) // s
        negative = bool(generator.integers(2))
        if not (negative and size == 0):  # else 0 would come twice as often
            return -size if negative else size


def _bernoulli_exp(gamma: Fraction, generator: np.random.Generator) -> bool:
    """True with probability exp(−γ), for γ from 0 to 1 (von Neumann's series)."""
    k = 1
    while int(generator.integers(gamma.denominator * k)) < gamma.numerator:
        k += 1
    return k % 2 == 1
