# SPDX-License-Identifier: Apache-2.0
"""Seed: every generator is named by a path of what it is for. The only file that seeds anything.

Keyed by purpose, never drawn from a stream, so adding a client, a worker or a method moves nothing else:

    >>> (Seed(7) / "round" / 3 / "c01").integer() == (Seed(7) / "round" / 3 / "c01").integer()
    True
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Seed:
    """A root number and a path; equal paths give equal generators on every machine."""

    root: int
    path: tuple[str, ...] = ()

    def __truediv__(self, part: str | int) -> "Seed":
        return Seed(self.root, (*self.path, str(part)))

    def integer(self) -> int:
        """A 63-bit number that depends on the root and the whole path."""
        # Lengths are part of the text, so that ("ab", "c") and ("a", "bc") differ.
        text = "/".join(f"{len(part)}:{part}" for part in (str(self.root), *self.path))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def numpy(self) -> np.random.Generator:
        """A fresh numpy generator."""
        return np.random.default_rng(self.integer())

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh torch generator, for tensors on a device."""
        return torch.Generator(device).manual_seed(self.integer())

    @contextmanager
    def ambient(self) -> Iterator[None]:
        """Seed torch's global generator for a while: weight initialisation and dropout draw from it."""
        with undisturbed() as gpus:
            for generator in (torch.default_generator, *(torch.cuda.default_generators[i] for i in gpus)):
                generator.manual_seed(self.integer())
            yield


@contextmanager
def undisturbed() -> Iterator[list[int]]:
    """Let others use torch's global generators for a while, then be as before; the GPUs that are in use."""
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=gpus):
        yield gpus
