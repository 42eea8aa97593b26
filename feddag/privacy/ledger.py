# SPDX-License-Identifier: Apache-2.0
"""The ledger: what left whom, written before it leaves; a file that only grows.

A release is named by its question, so the replay of a simulation finds its entries there and adds nothing,
and a kill cannot remove any: what a client spent is never lowered and never counted twice.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from feddag.core.errors import cannot_write
from feddag.core.task import ClientId
from feddag.privacy.accounting import MECHANISMS, Spend


@dataclass(frozen=True)
class Entry:
    """Something of one kind left one client in one answer."""

    client: ClientId
    release: str  # names the question and the part of the answer
    round: int
    task: str
    kind: str
    mechanism: str  # of accounting.py, or plain, masked, withheld, at-least-50
    noise: float = 0.0
    rate: float = 1.0
    steps: int = 1

    @property
    def spend(self) -> Spend | None:
        """What it costs; None for something that is not accounted."""
        if self.mechanism not in MECHANISMS:
            return None
        return Spend(self.mechanism, self.noise, self.rate, self.steps)


class Ledger:
    """All entries of one place: a file that several processes may append to, or memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[ClientId, dict[str, Entry]] = {}
        self._read = 0  # bytes of the file that are known

    def of(self, client: ClientId) -> dict[str, Entry]:
        """The entries of a client by the names of their releases."""
        self._refresh()
        return self._entries.get(client, {})

    def clients(self) -> list[ClientId]:
        """Everyone who released something, sorted."""
        self._refresh()
        return sorted(self._entries)

    def spends(self, client: ClientId) -> list[Spend]:
        """What a client has spent."""
        return [entry.spend for entry in self.of(client).values() if entry.spend is not None]

    def write(self, entries: Iterable[Entry]) -> None:
        """Add entries that are not there yet; when this returns they are in the file."""
        entries = list(entries)
        if not entries:
            return
        self._refresh()
        new = [e for e in entries if e.release not in self._entries.get(e.client, {})]
        if self.path is None:
            self._keep(new)
        elif new:
            # A line break first: a line that a kill has cut off spoils no other one.
            text = "".join(["\n", *(json.dumps(asdict(entry)) + "\n" for entry in new)]).encode()
            try:
                # One write with O_APPEND: lines of several processes do not mix.
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    if os.write(descriptor, text) < len(text):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise cannot_write(self.path, error) from error

    def _keep(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._entries.setdefault(entry.client, {})[entry.release] = entry

    def _refresh(self) -> None:
        """Read what was appended since the last look; a line that is not complete yet is left for later."""
        if self.path is None or not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._keep(_parsed(whole))


def _parsed(data: bytes) -> Iterator[Entry]:
    for line in data.splitlines():
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            continue  # cut off by a kill: its reply never left
