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


def sha256_of_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over the names below root and the contents of files."""
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in paths):
        digest.update(f"{name} {sha256_of_file(path)}\n".encode())
    return digest.hexdigest()


def sha256_of_arrays(*arrays: np.ndarray) -> str:
    """SHA-256 over types, shapes and contents of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def sha256_of_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of_listing(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over names and sizes only, for sets so large that reading them takes minutes."""
    lines = sorted(f"{path.relative_to(root).as_posix()} {path.stat().st_size}" for path in paths)
    return sha256_of_text("\n".join(lines))
