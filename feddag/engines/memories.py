# SPDX-License-Identifier: Apache-2.0
"""What the clients of a simulation remember: kept apart from everything the server writes.

A deployed client keeps its memory on its own disk. A simulation has all clients in one place, and keeps what
they remember in files of its own, one per label, beside the server's checkpoints.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from feddag.core import codec
from feddag.core.errors import InvalidMessage, cannot_write
from feddag.core.files import forget_sealed, read_sealed, sealed_labels, write_sealed
from feddag.core.message import message
from feddag.core.params import Params
from feddag.core.task import ClientId, Memory

Remembered = dict[str, Params | np.ndarray]


@message
class SavedMemories:
    """The memories of all clients that remember something."""

    clients: dict[str, Memory]


class Memories:
    """Client id → what this client remembers; saved and restored under labels."""

    def __init__(self, folder: Path | None = None, owner: str = "") -> None:
        self.folder = folder  # without one, labels are kept as long as the process lives
        self.owner = owner  # whose memories these are: files of another run are refused
        self.of: dict[ClientId, Remembered] = {}
        self._kept: dict[str, bytes] = {}

    def get(self, client: ClientId) -> Remembered:
        """What a client remembers; nothing for a client that was never told to."""
        return self.of.get(client, {})

    def put(self, client: ClientId, memory: Mapping[str, Params | np.ndarray]) -> None:
        """Let a client remember something else."""
        self.of[client] = dict(memory)

    def save(self, label: str) -> None:
        """Keep all memories as they are now under a label, durably where there is a folder."""
        remembered = {client: Memory.of(memory) for client, memory in sorted(self.of.items()) if memory}
        data = codec.encode(SavedMemories(clients=remembered)) if remembered else b""
        if self.folder is None:
            self._kept[label] = data
        else:
            try:
                self.folder.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(self.folder, error) from error
            write_sealed(self.folder / f"{label}.safetensors", data, label=label, owner=self.owner)

    def restore(self, label: str) -> None:
        """Let every client remember what it did when the label was saved."""
        if self.folder is not None:
            data = read_sealed(self.folder / f"{label}.safetensors", label=label, owner=self.owner)
        elif label in self._kept:
            data = self._kept[label]
        else:
            raise InvalidMessage(label, "saved memories", "nothing")
        saved = codec.decode(SavedMemories, data).clients if data else {}
        self.of = {client: memory.unwrap() for client, memory in saved.items()}

    def prune(self, keep: Collection[str]) -> None:
        """Forget what was saved under other labels."""
        self._kept = {label: data for label, data in self._kept.items() if label in keep}
        if self.folder is not None:
            for label in sealed_labels(self.folder):
                if label not in keep:
                    forget_sealed(self.folder / f"{label}.safetensors")
