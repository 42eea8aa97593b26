# SPDX-License-Identifier: Apache-2.0
"""Downloads: only if the user asks, limited in size, resumed, and checked before anything is unpacked."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from feddag.core.errors import InvalidInput
from feddag.data.files.progress import progress_bar
from feddag.data.files.unpack import unpack

CHUNK = 1 << 20
ATTEMPTS = 3


@dataclass(frozen=True)
class Download:
    """One file of a dataset: where it is, how large, which hash; archives go into the data folder."""

    url: str
    name: str  # file name below the data folder
    size: int | None = None  # in bytes, if it is published; checked
    about: int = 0  # if the size is not published: megabytes, only shown to people
    sha256: str = ""
    md5: str = ""
    unpack: bool = False
    unpacked_limit: int = 20_000_000_000
    # If no hash is published: looks at the unpacked files and returns what is wrong with them, or None.
    wrong: Callable[[Path], str | None] | None = None

    @property
    def has_hash(self) -> bool:
        """Whether its publishers or others say which hash it has."""
        return bool(self.sha256 or self.md5)


def size_in_words(downloads: Sequence[Download]) -> str:
    """Size of a download in words; a size that is not published begins with "about"."""
    if any(download.size is None and not download.about for download in downloads):
        return "size unknown"
    size = sum(1e6 * download.about if download.size is None else download.size for download in downloads)
    about = "" if all(download.size is not None for download in downloads) else "about "
    return f"{about}{max(1, round(size / 1e6)):,} MB"


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
            _unpack(download, target, folder)
        _write_receipt(download, folder)
    except OSError as error:
        raise InvalidInput(_sentence(folder, error)) from error
    return target


def fetch_first(downloads: Sequence[Download], folder: Path, limit: int) -> Path:
    """Fetch one dataset that has several versions: the first version that can be downloaded."""
    problems = []
    for download in downloads:
        try:
            return fetch(download, folder, limit)
        except InvalidInput as error:
            problems.append(str(error))
    raise InvalidInput("; ".join(problems))


def _unpack(download: Download, archive: Path, folder: Path) -> None:
    try:
        unpack(archive, folder, download.unpacked_limit, download.wrong)
    except InvalidInput:
        if not download.has_hash:
            archive.unlink()  # nothing says that it is the right file: the next call fetches it anew
        raise


# -- receipts: what was fetched from where, and how it was checked -------------------------------------


def _receipt(folder: Path, download: Download) -> Path:
    return folder / (download.name + ".receipt.json")


def _write_receipt(download: Download, folder: Path) -> None:
    target = folder / download.name
    with target.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    checked = "sha256" if download.sha256 else "md5" if download.md5 else "none published"
    facts = {"url": download.url, "bytes": target.stat().st_size, "sha256": sha256, "hash checked": checked}
    _receipt(folder, download).write_text(json.dumps(facts, indent=1) + "\n")


def receipt_notes(downloads: Sequence[Download], folder: Path) -> dict[str, str]:
    """What the receipts of downloads say, for the notes of a dataset; nothing where nothing was fetched."""
    notes = {}
    for download in downloads:
        try:
            facts = json.loads(_receipt(folder, download).read_text())
            checked = {
                "sha256": "SHA-256 as published",
                "md5": "MD5 as published",
                "none published": f"its hash is NOT published, only counts were checked; "
                f"SHA-256 as received: {facts['sha256']}",
            }[facts["hash checked"]]
            notes[f"download {Path(download.name).name}"] = f"{facts['url']}; {checked}"
        except (OSError, ValueError, KeyError):
            continue
    return notes


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
    """Continue a few times where the connection broke; then keep the part for the next call and say so."""
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
        name = download.name
        with (
            part.open("ab" if have else "wb") as file,
            progress_bar(name, total, have, is_bytes=True) as update,
        ):
            while chunk := answer.read(CHUNK):
                have += len(chunk)
                if have > limit:
                    raise InvalidInput(
                        f"{download.url}: longer than data.max_download allows ({limit:,} bytes)"
                    )
                file.write(chunk)
                update(have)
        if total is not None and have < total:
            raise IncompleteRead(b"", total - have)
