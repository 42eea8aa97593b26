# SPDX-License-Identifier: Apache-2.0
"""What the server of a deployment keeps of its clients' memories: the names of their versions, no more."""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path

from feddag.core.errors import InvalidMessage, cannot_write
from feddag.core.files import forget_sealed, read_sealed, sealed_labels, write_sealed
from feddag.core.task import ClientId
from feddag.engines.wire import NOTHING


class Receipts:
    """Client → name of its memory's version, now and under each label. Nothing of the memory itself."""

    def __init__(self, folder: Path | None, run: str) -> None:
        self.folder, self.run = folder, run
        self.now: dict[ClientId, str] = {}
        self._labels: dict[str, dict[ClientId, str]] = {}

    def kept(self, client: ClientId) -> tuple[str, ...]:
        """Versions of a client that some label still needs."""
        return tuple(sorted({named.get(client, NOTHING) for named in self._labels.values()} - {NOTHING}))

    def save(self, label: str) -> None:
        """Keep what is now, durably where there is a folder."""
        self._labels[label] = {client: name for client, name in sorted(self.now.items()) if name}
        if self.folder is not None:
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(self.folder, error) from error
            data = json.dumps(self._labels[label]).encode()
            write_sealed(self.folder / f"{label}.receipts", data, label=label, owner=self.run)

    def restore(self, label: str) -> None:
        """Let now be what was kept; all other labels in the folder stay known."""
        if self.folder is not None:
            for other in sealed_labels(self.folder):
                if other != label and other not in self._labels:
                    with contextlib.suppress(InvalidMessage):
                        self._labels[other] = self._read(other)
            self._labels[label] = self._read(label)
        elif label not in self._labels:
            raise InvalidMessage(label, "saved memories", "nothing")
        self.now = dict(self._labels[label])

    def prune(self, keep: Collection[str]) -> None:
        """Forget other labels."""
        self._labels = {label: named for label, named in self._labels.items() if label in keep}
        if self.folder is not None:
            for label in sealed_labels(self.folder):
                if label not in keep:
                    forget_sealed(self.folder / f"{label}.receipts")

    def _read(self, label: str) -> dict[ClientId, str]:
        assert self.folder is not None
        data = read_sealed(self.folder / f"{label}.receipts", label=label, owner=self.run)
        return {str(client): str(name) for client, name in json.loads(data).items()}
