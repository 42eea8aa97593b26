# SPDX-License-Identifier: Apache-2.0
"""Files that survive a kill at any instant, and folders that only one process works on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """Make renames in a folder durable (a no-op where folders cannot be opened)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Refuse a second process on the same run folder; the lock ends with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInput(f"the run in {folder} is being worked on by another process") from None
        yield
