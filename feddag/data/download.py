# SPDX-License-Identifier: Apache-2.0
"""Downloads: asked for by the user, limited in size, resumed, and checked before anything is unpacked."""

import contextlib
import errno
import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from feddag.core.errors import InvalidInput

CHUNK = 1 << 20
ATTEMPTS = 3


@dataclass(frozen=True)
class Download:
    """One file of a dataset: where it is, how large, which hash; archives go into the data folder."""

    url: str
    name: str  # file name below the data folder
    size: int | None = None
    sha256: str = ""
    md5: str = ""
    unpack: bool = False
    unpacked_limit: int = 20_000_000_000


def fetch(download: Download, folder: Path, limit: int, timeout: float = 60.0) -> Path:
    """Fetch one file into the folder, check it, unpack it; a file that is already there and right is kept."""
    target = folder / download.name
    if download.size is not None and download.size > limit:
        raise InvalidInput(
            f"{download.name}: {download.size:,} bytes are more than data.max_download allows ({limit:,})"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.is_file() and _wrong_hash(target, download) is None):
            part = target.with_name(target.name + ".part")
            _fetch_with_retries(download, part, limit, timeout)
            wrong = _wrong_hash(part, download)
            if wrong is not None:
                part.unlink()  # resuming a wrong file would never make it right
                raise InvalidInput(f"{download.url}: {wrong}; nothing was unpacked, the file was removed")
            os.replace(part, target)
        if download.unpack:
            unpack(target, folder, download.unpacked_limit)
    except OSError as error:
        raise InvalidInput(_sentence(folder, error)) from error
    return target


def _sentence(folder: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"data folder {folder}: the disk is full; free some space or set FEDDAG_DATA to another folder"
    reason = error.strerror or error
    return f"data folder {folder}: cannot be written ({reason}); set FEDDAG_DATA to one that can"


def _wrong_hash(path: Path, download: Download) -> str | None:
    """What is wrong with the file, or None."""
    if download.size is not None and path.stat().st_size != download.size:
        return f"{download.size:,} bytes expected, got {path.stat().st_size:,}"
    for algorithm, expected in (("sha256", download.sha256), ("md5", download.md5)):
        if expected:
            with path.open("rb") as file:
                got = hashlib.file_digest(file, algorithm).hexdigest()
            if got != expected:
                return f"{algorithm} {expected} expected, got {got}"
    return None


def _fetch_with_retries(download: Download, part: Path, limit: int, timeout: float) -> None:
    """Go on where the connection broke, a few times; then keep the part for the next call and say so."""
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            _fetch_rest(download, part, limit, timeout)
            return
        except HTTPError as error:
            raise InvalidInput(f"{download.url}: the server answered {error.code} {error.reason}") from error
        except (HTTPException, URLError, TimeoutError, ConnectionError) as error:
            # A full disk is an OSError of our own, not of the connection: it is never wrapped in a URLError.
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
    have = part.stat().st_size if part.exists() else 0
    raise InvalidInput(
        f"{download.url}: the connection broke ({reason}) after {have:,} bytes; run again to go on from there"
    )


def _fetch_rest(download: Download, part: Path, limit: int, timeout: float) -> None:
    have = part.stat().st_size if part.exists() else 0
    if download.size is not None and have >= download.size:
        if have == download.size:
            return
        part.unlink()
        have = 0
    request = Request(download.url, headers={"User-Agent": "feddag", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    if urlsplit(download.url).scheme not in ("http", "https"):
        raise InvalidInput(f"{download.url}: only http and https are fetched")
    try:
        answer = urlopen(request, timeout=timeout)
    except HTTPError as error:
        if error.code != 416 or not have:
            raise
        part.unlink()  # the part is as long as the file or longer: begin anew
        raise ConnectionError("the server has nothing beyond the part that is there") from error
    with answer:
        if answer.status != 206:
            have = 0  # the server does not resume: begin anew
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else download.size
        if total is not None and total > limit:
            raise InvalidInput(
                f"{download.url}: {total:,} bytes are more than data.max_download allows ({limit:,})"
            )
        with part.open("ab" if have else "wb") as file, _progress(download.name, total, have) as progress:
            while chunk := answer.read(CHUNK):
                have += len(chunk)
                if have > limit:
                    raise InvalidInput(
                        f"{download.url}: longer than data.max_download allows ({limit:,} bytes)"
                    )
                file.write(chunk)
                progress.update(have)
        if total is not None and have < total:
            raise IncompleteRead(b"", total - have)


class _Bar:
    def __init__(self, progress: Progress, name: str, total: int | None, have: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, completed=have)

    def update(self, have: int) -> None:
        self._progress.update(self._task, completed=have)


@contextlib.contextmanager
def _progress(name: str, total: int | None, have: int) -> Iterator[_Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        yield _Bar(progress, name, total, have)


# -- unpacking -----------------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path, limit: int) -> None:
    """Unpack plain files and folders below the folder, all or none; refuse everything else."""
    try:
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
            staging = Path(temporary)
            if zipfile.is_zipfile(archive):
                _unpack_zip(archive, staging, limit)
            else:
                _unpack_tar(archive, staging, limit)
            for top in sorted(staging.iterdir()):
                _move(top, folder / top.name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise InvalidInput(f"{archive.name}: damaged archive ({error})") from error


def _unpack_tar(archive: Path, staging: Path, limit: int) -> None:
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


def _unpack_zip(archive: Path, staging: Path, limit: int) -> None:
    written = 0
    with zipfile.ZipFile(archive) as pack:
        for member in pack.infolist():
            path = _safe_path(archive, member.filename, staging)
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                with pack.open(member) as source:
                    written = _copy(archive, source, path, written, limit)


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
    """Put a file or folder in its place; a folder that is there already is filled up."""
    if source.is_dir() and target.is_dir():
        for inner in source.iterdir():
            _move(inner, target / inner.name)
    else:
        os.replace(source, target)
