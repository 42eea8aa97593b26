# SPDX-License-Identifier: Apache-2.0
"""Safe unpacking: only plain files and folders, only below one folder, limited in size, all or nothing."""

import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from feddag.core.errors import InvalidInput

CHUNK = 1 << 20
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    RuntimeError,
)


def unpack(
    archive: Path, folder: Path, limit: int, wrong: Callable[[Path], str | None] | None = None
) -> None:
    """Unpack all members below the folder, or none; archives inside the archive are unpacked too.

    `wrong(unpacked)` may look at the files first and say what is wrong with them; then nothing is kept.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
            staging = Path(temporary)
            written = _unpack_one(archive, staging, limit)
            for inner in sorted(staging.rglob("*.tar")):
                written += _unpack_one(inner, staging, limit - written)
                inner.unlink()
            problem = wrong(staging) if wrong is not None else None
            if problem is not None:
                raise InvalidInput(f"{archive.name}: {problem}; nothing was kept of what it held")
            for top in sorted(staging.iterdir()):
                _move(top, folder / top.name)
    except DAMAGED as error:
        raise InvalidInput(f"{archive.name}: damaged archive ({error})") from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk is the cause, not the archive
        raise InvalidInput(f"{archive.name}: damaged archive ({error})") from error  # bz2 and gzip raise it


def _unpack_one(archive: Path, staging: Path, limit: int) -> int:
    """Unpack one archive; returns the number of bytes written."""
    return (_unpack_zip if zipfile.is_zipfile(archive) else _unpack_tar)(archive, staging, limit)


def _unpack_tar(archive: Path, staging: Path, limit: int) -> int:
    written = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            path = _safe_path(archive, member.name, staging)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isfile():
                source = tar.extractfile(member)
                assert source is not None
                written = _copy(archive, source, path, written, limit)
            else:
                raise InvalidInput(f"{archive.name}: member '{member.name}' is neither a file nor a folder")
    return written


def _unpack_zip(archive: Path, staging: Path, limit: int) -> int:
    written = 0
    with zipfile.ZipFile(archive) as pack:
        for member in pack.infolist():
            path = _safe_path(archive, member.filename, staging)
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                with pack.open(member) as source:
                    written = _copy(archive, source, path, written, limit)
    return written


def _safe_path(archive: Path, name: str, folder: Path) -> Path:
    """Where a member goes; names that lead out of the folder are refused."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise InvalidInput(f"{archive.name}: member '{name}' leads out of the folder; nothing was unpacked")
    return folder / parts


def _copy(archive: Path, source: IO[bytes], path: Path, written: int, limit: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while chunk := source.read(CHUNK):
            written += len(chunk)
            if written > limit:
                raise InvalidInput(f"{archive.name}: unpacks to more than {limit:,} bytes; nothing was kept")
            file.write(chunk)
    return written


def _move(source: Path, target: Path) -> None:
    """Move a file or folder to its place; if the folder exists already, its contents are added to it."""
    if source.is_dir() and target.is_dir():
        for inner in source.iterdir():
            _move(inner, target / inner.name)
    else:
        os.replace(source, target)
