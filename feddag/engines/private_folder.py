# SPDX-License-Identifier: Apache-2.0
"""A private folder that an engine shares with its workers, and how leftovers of killed engines are found.

Beside each folder lies a file `<folder>.lock`, which the owner keeps locked as long as it lives. The lock
ends with the process, however it ends, and every process that sees the file sees the lock: also one in
another container, with other process ids.
"""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from feddag.core.errors import FederationError
from feddag.core.files import lock_file

PREFIX = "feddag-"
SPARE = 16 * 2**20  # bytes that must stay free beside the data, for requests


class PrivateFolder:
    """A new folder that only this user can read, locked until it is closed or the process ends."""

    def __init__(self, root: Path) -> None:
        while True:
            self.path = root / f"{PREFIX}{secrets.token_hex(6)}"
            self._file = open(lock_of(self.path), "x", opener=_owner_only)  # noqa: SIM115 - kept open
            if _locked(self._file, lock_of(self.path)):
                break
            self._file.close()  # somebody took it for a leftover before it was locked
        try:
            self.path.mkdir(mode=0o700)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder, then give up the lock."""
        remove_folder(self.path)
        self._file.close()


def lock_of(folder: Path) -> Path:
    """The lock file that belongs to a private folder."""
    return folder.with_name(folder.name + ".lock")


def remove_folder(folder: Path) -> None:
    """Remove a private folder and its lock file, as far as that is possible."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        lock_of(folder).unlink()


def remove_leftovers(root: Path) -> None:
    """Remove the folders of engines that were killed before they could do it themselves."""
    for lock in root.glob(f"{PREFIX}*.lock"):
        with contextlib.suppress(OSError), open(lock) as file:  # other users' files cannot be opened
            if _locked(file, lock):
                remove_folder(lock.with_suffix(""))


def open_folder(shared: Path, needed: int, fill: Callable[[Path], None]) -> PrivateFolder:
    """A private folder with the engine's data in it: in shared memory, or else where temporary files are.

    `needed` is the size of the data in bytes; `fill` writes them. A place that is full is passed over.
    """
    problems: list[str] = []
    for root in _places(shared):
        remove_leftovers(root)
        folder = None
        try:
            free = shutil.disk_usage(root).free
            if free < needed + SPARE:
                raise OSError(f"{_megabytes(free)} are free, {_megabytes(needed + SPARE)} are needed")
            folder = PrivateFolder(root)
            fill(folder.path)
            return folder
        except OSError as error:
            problems.append(f"{root}: {error.strerror or error}")
            if folder is not None:
                folder.close()
    raise FederationError(
        f"the samples find no room for the worker processes ({'; '.join(problems)}): free some space, "
        "set TMPDIR to a larger disk, or use --set engine=inline"
    )


def write_block(folder: Path, name: str, data: bytes) -> Path:
    """Write a file into a private folder; if that is full, into the ordinary temporary folder."""
    path = folder / name
    try:
        path.write_bytes(data)
        return path
    except OSError:
        path.unlink(missing_ok=True)
    try:
        descriptor, elsewhere = tempfile.mkstemp(prefix=f"{folder.name}-")  # readable by its owner alone
        with open(descriptor, "wb") as file:
            file.write(data)
        return Path(elsewhere)
    except OSError as error:
        with contextlib.suppress(OSError, UnboundLocalError):
            os.unlink(elsewhere)
        raise FederationError(
            f"no space left for a request of {_megabytes(len(data))} in {folder.parent} and in "
            f"{tempfile.gettempdir()}: free some space and resume"
        ) from error


def _places(shared: Path) -> list[Path]:
    """Where a private folder may lie, the best place first."""
    temporary = Path(tempfile.gettempdir())
    return [shared, temporary] if shared.is_dir() and os.access(shared, os.W_OK) else [temporary]


def _owner_only(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _locked(file: IO[str], path: Path) -> bool:
    """Lock a file; whether that worked and the file still is the one at the path."""
    try:
        lock_file(file)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def _megabytes(number: int) -> str:
    return f"{number / 2**20:,.0f} MB"
