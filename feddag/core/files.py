# SPDX-License-Identifier: Apache-2.0
"""Files that survive a kill at any instant, and folders that only one process may use at a time."""

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from feddag.core.errors import InvalidInput, cannot_write


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that at any instant either the old or the new one is there, whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, if the system can do that for folders."""
    if os.name != "posix":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no fsync of folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Refuse a second process on the same run folder; the lock ends with the process, however it ends."""
    with (folder / ".lock").open("a") as file:
        try:
            _lock(file)
        except OSError:
            raise InvalidInput(f"the run in {folder} is being worked on by another process") from None
        yield


def _lock(file: IO[str]) -> None:
    """Lock a file until it is closed; OSError if another process holds the lock."""
    # fcntl exists on Linux and macOS, msvcrt on Windows. On a system with neither there is no lock.
    with contextlib.suppress(ImportError):
        import fcntl

        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with contextlib.suppress(ImportError):
        import msvcrt

        return msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
