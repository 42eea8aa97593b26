# SPDX-License-Identifier: Apache-2.0
"""Writing the event log of a run: one JSON object per line."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, InvalidInput, cannot_write

Event = dict[str, Any]


@dataclass(frozen=True)
class LogPrefix:
    """The part of a log that belongs to a checkpoint: the rest is of a round that was cut off."""

    bytes: int = 0
    sha256: str = hashlib.sha256(b"").hexdigest()


class EventLog:
    """Appends events; what is on the disk after `sync` survives a kill."""

    def __init__(self, path: Path, keep: LogPrefix = LogPrefix()) -> None:  # noqa: B008 - it is frozen
        self._path = path
        self._sha = hashlib.sha256()
        self._failed = False  # after a failure nobody knows what is in the file
        with self._guarded():
            kept = path.read_bytes()[: keep.bytes] if path.exists() else b""
            self._sha.update(kept)
            if self._sha.hexdigest() != keep.sha256:
                raise InvalidInput(
                    f"{path} is not the log that this run wrote: its first {keep.bytes} bytes have changed"
                )
            self._file = path.open("ab")
            self._file.truncate(keep.bytes)
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, **fields: Any) -> Event:
        """Append one event."""
        event: Event = {"event": kind, **fields}
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        self._refuse_after_failure()
        with self._guarded():
            self._file.write(line)
        self._sha.update(line)
        return event

    def sync(self) -> LogPrefix:
        """Force everything to the disk; returns how long the log is now, and its SHA-256."""
        self._refuse_after_failure()
        with self._guarded():
            self._file.flush()
            os.fsync(self._file.fileno())
        return LogPrefix(self._file.tell(), self._sha.hexdigest())

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            raise cannot_write(self._path, error) from error

    def _refuse_after_failure(self) -> None:
        # A checkpoint must not vouch for a log that may lack a line: resume starts from the one before.
        if self._failed:
            raise FederationError(f"{self._path} could not be written before: free some space and resume")

    def close(self) -> None:
        """Flush and close; a full disk was reported before and is not reported again."""
        with contextlib.suppress(OSError):
            self._file.close()
