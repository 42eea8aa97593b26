# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of files and arrays: what a report names so that nobody mistakes one dataset for another."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def sha256_of_file(path: Path) -> str:
    """SHA-256 of one file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_files(paths: Iterable[Path]) -> str:
    """SHA-256 over the names and contents of files, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(f"{path.name} {sha256_of_file(path)}\n".encode())
    return digest.hexdigest()


def sha256_of_arrays(*arrays: np.ndarray) -> str:
    """SHA-256 over types, shapes and contents of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
