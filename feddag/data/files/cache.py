# SPDX-License-Identifier: Apache-2.0
"""Converted arrays on disk: plain .npy files that every process maps instead of copying.

An entry is a folder named by the hash of what it was made from. It is written under another name and renamed
when it is whole, so a crash, a full disk or two processes at once never leave half an entry behind.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput

VERSION = "2"  # part of every key: raise it when a reader changes what it makes of the same files


@dataclass(frozen=True)
class Entry:
    """Mapped arrays by name, and what else was noted about them."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


def cached(cache: Path, name: str, key: str, make: Callable[[Path], dict[str, Any]]) -> Entry:
    """The entry for this key; `make(folder)` writes its .npy files and returns facts where there is none."""
    folder = cache / f"{name}-{key[:20]}-v{VERSION}"
    entry = _read(folder)
    if entry is not None:
        return entry
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as temporary:
            target = Path(temporary) / "entry"
            target.mkdir()
            facts = make(target)
            sizes = {file.name: file.stat().st_size for file in sorted(target.glob("*.npy"))}
            (target / "facts.json").write_text(json.dumps({"files": sizes, "facts": facts}))
            _put_in_place(target, folder)
    except OSError as error:
        raise InvalidInput(_sentence(cache, error)) from error
    entry = _read(folder)
    assert entry is not None
    return entry


def _put_in_place(made: Path, folder: Path) -> None:
    try:
        os.rename(made, folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        if _read(folder) is None:  # a damaged entry is in the way; a whole one came from another process
            shutil.rmtree(folder)
            os.rename(made, folder)


def _sentence(cache: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"cache folder {cache}: the disk is full; free some space or set FEDDAG_CACHE to another folder"
        )
    if error.filename is not None and not str(error.filename).startswith(str(cache)):
        return f"{error.filename}: cannot be read ({error.strerror})"
    return (
        f"cache folder {cache}: cannot be written ({error.strerror}); set FEDDAG_CACHE to a folder that can"
    )


def _read(folder: Path) -> Entry | None:
    """The entry if it is whole: every file there, with the size it was written with."""
    try:
        noted = json.loads((folder / "facts.json").read_text())
        arrays = {}
        for name, size in noted["files"].items():
            if (folder / name).stat().st_size != size:
                return None
            arrays[name.removesuffix(".npy")] = np.load(folder / name, mmap_mode="r")
        return Entry(arrays, noted["facts"])
    except (OSError, ValueError, KeyError):
        return None


def write_npy(
    path: Path, chunks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: np.dtype | type
) -> None:
    """Write an array chunk by chunk, so that it never is in memory as a whole."""
    dtype = np.dtype(dtype)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    rows = 0
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            if chunk.shape[1:] != shape[1:]:
                raise InvalidInput(
                    f"{path.stem}: samples of shape {shape[1:]} expected, got {chunk.shape[1:]}"
                )
            file.write(np.ascontiguousarray(chunk, dtype=dtype).data)
            rows += len(chunk)
    if rows != shape[0]:
        raise InvalidInput(f"{path.stem}: {shape[0]} samples expected, got {rows}")
