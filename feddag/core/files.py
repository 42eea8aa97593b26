# SPDX-License-Identifier: Apache-2.0
"""Files that survive a kill at any instant, and folders that only one process may use at a time."""

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from feddag.core.errors import InvalidInput, InvalidMessage, cannot_write


def write_durably(path: Path, data: bytes, private: bool = False) -> None:
    """Replace a file so that at any instant either the old or the new one is there, whole.

    A private file can be read by its owner alone.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    mode = 0o600 if private else 0o666
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
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


# -- sealed files: data, and beside them a .json with their SHA-256, written last --------------------------


def write_sealed(path: Path, data: bytes, **about: Any) -> None:
    """Write private data and seal them; when this returns they are on the disk. No data: only the seal."""
    seal = {
        **about,
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    if data:
        write_durably(path, data, private=True)
    write_durably(path.with_suffix(".json"), json.dumps(seal, indent=1).encode(), private=True)


def read_sealed(path: Path, **about: Any) -> bytes:
    """The data that `write_sealed` wrote; InvalidMessage when they are missing, incomplete or altered.

    `about` is what the seal must say, if it says anything about it: files of another label are refused.
    """
    try:
        seal = json.loads(path.with_suffix(".json").read_text())
        expected, size = seal["sha256"], seal["bytes"]
        data = path.read_bytes() if size else b""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidMessage(path.name, "a readable file", str(error)) from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise InvalidMessage(path.name, "bytes with the recorded SHA-256", "other bytes")
    for key, wanted in about.items():
        if seal.get(key, wanted) != wanted:
            raise InvalidMessage(path.name, f"a file with {key} '{wanted}'", f"one with '{seal[key]}'")
    return data


def sealed_labels(folder: Path) -> list[str]:
    """Names, without ending, of the sealed files in a folder, sorted."""
    # The seal is written last: without one, a kill came in between and there is nothing yet.
    return sorted(path.stem for path in folder.glob("*.json"))


def forget_sealed(path: Path) -> None:
    """Remove sealed data, the seal first. What cannot be removed stays: it does no harm."""
    for part in (path.with_suffix(".json"), path):
        with contextlib.suppress(OSError):
            part.unlink()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Refuse a second process on the same run folder; the lock ends with the process, however it ends."""
    try:
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise cannot_write(folder / ".lock", error) from error
    with file:
        try:
            lock_file(file)
        except OSError:
            raise InvalidInput(f"the run in {folder} is being worked on by another process") from None
        yield


def lock_file(file: IO[str]) -> None:
    """Lock a file until it is closed; OSError if another process holds the lock."""
    # fcntl exists on Linux and macOS, msvcrt on Windows. On a system with neither there is no lock.
    with contextlib.suppress(ImportError):
        import fcntl

        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with contextlib.suppress(ImportError):
        import msvcrt

        return msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
