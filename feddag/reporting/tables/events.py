# SPDX-License-Identifier: Apache-2.0
"""Writing the event log of a run: one JSON object per line. Reading it is in `log`."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feddag.core.errors import cannot_write

Event = dict[str, Any]


class EventLog:
    """Appends events to a file. Everything written before `sync` returns survives a kill."""

    def __init__(self, path: Path, keep_bytes: int | None = None) -> None:
        self._path = path
        self._file = path.open("ab")
        if keep_bytes is not None:
            self._file.truncate(keep_bytes)
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, **fields: Any) -> Event:
        """Append one event."""
        event: Event = {"event": kind, **fields}
        with self._guarded():
            self._file.write(json.dumps(event, allow_nan=False).encode() + b"\n")
        return event

    def sync(self) -> int:
        """Force everything to the disk; return the length of the log in bytes."""
        with self._guarded():
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Flush and close. A full disk was reported by `sync` and is not reported again."""
        with contextlib.suppress(OSError):
            self._file.close()
