# SPDX-License-Identifier: Apache-2.0
"""Converted arrays on disk: plain .npy files that every process maps instead of copying.

An entry is a folder named by the hash of what it was made from. It is written under another name and renamed
when it is whole, so a crash, a full disk or two processes at once never leave half an entry behind.

`facts.json` holds the SHA-256 of every array and of itself. The arrays are read and hashed again whenever
nothing proves that they are still what was checked last (see `_is_proven`), and always inside
`verify_always()`. An entry that is not exactly what was written counts as absent and is made anew.
"""

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.files.hashing import sha256_of_file, sha256_of_text

VERSION = "3"  # part of every key: raise it when a reader changes what it makes of the same files
FACTS = "facts.json"
PROOF = "verified.json"  # when the arrays were hashed last, and what the file system said of them then
VALID_FOR = 24 * 3600.0  # seconds; a bit that flips on the disk changes no time stamp, so proofs expire
SETTLED = 2.0  # seconds; a change this soon after the last one can leave a coarse time stamp as it was

# None: ordinary use. A list: every entry is verified, and the list names the entries that were damaged.
_DAMAGED: ContextVar[list[str] | None] = ContextVar("damaged", default=None)


@dataclass(frozen=True)
class Entry:
    """Mapped arrays by name, and the other facts that were noted about them."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


@contextmanager
def verify_always() -> Iterator[list[str]]:
    """Inside this block every entry that is opened is read and hashed, whatever was checked before.

    The list it gives names the entries that were damaged and made anew.
    """
    damaged: list[str] = []
    token = _DAMAGED.set(damaged)
    try:
        yield damaged
    finally:
        _DAMAGED.reset(token)


def cached(cache: Path, name: str, key: str, make: Callable[[Path], dict[str, Any]]) -> Entry:
    """The entry for this key; if there is none, `make(folder)` writes its .npy files and returns facts."""
    folder = cache / f"{name}-{key[:20]}-v{VERSION}"
    entry = _read(folder)
    if entry is not None:
        return entry
    damaged = _DAMAGED.get()
    if damaged is not None and folder.exists():
        damaged.append(folder.name)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as temporary:
            target = Path(temporary) / "entry"
            target.mkdir()
            _write_facts(target, make(target))
            _put_in_place(target, folder)
    except OSError as error:
        raise InvalidInput(_sentence(cache, error)) from error
    entry = _read(folder)
    if entry is None:
        raise InvalidInput(
            f"cache folder {cache}: what was just written there reads back differently; "
            f"check the disk, or set FEDDAG_CACHE to a folder on another one"
        )
    return entry


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256_of_file(file)}
        for file in sorted(folder.glob("*.npy"))
    }
    content = json.dumps({"files": files, "facts": facts}, sort_keys=True)
    (folder / FACTS).write_text(json.dumps({"sha256": sha256_of_text(content), "content": content}))


def _put_in_place(made: Path, folder: Path) -> None:
    try:
        os.rename(made, folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        if _read(folder) is None:  # a damaged entry is in the way; a whole one came from another process
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)
            else:
                folder.unlink()
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


# -- opening and verifying -----------------------------------------------------------------------------


def _read(folder: Path) -> Entry | None:
    """The entry if it is what was written; None if anything is missing, malformed or altered."""
    try:
        noted = json.loads((folder / FACTS).read_text())
        if sha256_of_text(noted["content"]) != noted["sha256"]:
            return None
        content = json.loads(noted["content"])
        files: dict[str, dict[str, Any]] = content["files"]
        if any((folder / name).stat().st_size != said["bytes"] for name, said in files.items()):
            return None
        if not _is_proven(folder, files) and not _verify(folder, files):
            return None
        arrays = {name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r") for name in files}
        return Entry(arrays, content["facts"])
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _is_proven(folder: Path, files: Iterable[str]) -> bool:
    """Whether the arrays were hashed less than a day ago and the file system reports no change since then.

    The change time is part of the comparison because nobody can set it back, unlike the modification time.
    """
    if _DAMAGED.get() is not None:
        return False
    try:
        proof = json.loads((folder / PROOF).read_text())
        age = time.time() - proof["time"]
        return 0 <= age < VALID_FOR and proof["stamps"] == _stamps(folder, files)
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return False


def _verify(folder: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Hash every array; if all are right, note that beside them, unless the cache is read-only."""
    now, stamps = time.time(), _stamps(folder, files)
    if any(sha256_of_file(folder / name) != said["sha256"] for name, said in files.items()):
        return False
    last_change = max((stamp[-1] for stamp in stamps.values()), default=0) / 1e9
    if now - last_change > SETTLED:
        temporary = folder / f".{PROOF}-{os.getpid()}"
        with suppress(OSError):
            temporary.write_text(json.dumps({"time": now, "stamps": stamps}))
            os.replace(temporary, folder / PROOF)
    return True


def _stamps(folder: Path, files: Iterable[str]) -> dict[str, list[int]]:
    found = {}
    for name in files:
        facts = (folder / name).stat()
        found[name] = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]
    return found


# -- writing -------------------------------------------------------------------------------------------


def write_npy(
    path: Path, chunks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: np.dtype | type
) -> None:
    """Write an array chunk by chunk, so that it is never in memory as a whole."""
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
