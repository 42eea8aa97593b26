# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of files and arrays; reports print it, so that nobody mistakes one dataset for another."""

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
        line = f"{name} {sha256_of_file(path)}\n"
        digest.update(line.encode(errors="surrogateescape"))  # file names need not be valid text
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


def stamp_of_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over names, sizes and times of change: a cache key for sets too large to read at every start.

    It differs between machines, so no report prints it.
    """
    lines = []
    for path in paths:
        facts = path.stat()
        lines.append(f"{path.relative_to(root).as_posix()} {facts.st_size} {facts.st_mtime_ns}")
    return sha256_of_text("\n".join(sorted(lines)))
