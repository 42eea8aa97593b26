# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the server: where a run stands and the algorithm's state, nothing of any client's memory.

A checkpoint is a `.safetensors` file (anyone can open it) and a `.json` beside it, written last: without a
`.json` whose SHA-256 fits, there is no checkpoint. The engine saves the clients' memories under the same
label before, so that a valid checkpoint always has its memories.
"""

from collections.abc import Callable, Collection
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.errors import InvalidMessage
from feddag.core.files import forget_sealed, read_sealed, sealed_labels, write_sealed
from feddag.core.message import message


@message
class Progress:
    """Where a run stands, besides the algorithm's state."""

    round: int
    log_bytes: int = 0  # how much of the event log belongs to it; the rest is of a round that was cut off
    log_sha256: str = ""
    experiment: str = ""  # digest of the settings
    data: str = ""  # digest of the data, where they are known
    known: tuple[str, ...] = ()  # clients that the algorithm has met
    waiting: dict[str, int] = field(default_factory=dict)  # newcomers that warm up → the round they came in
    resting: dict[str, int] = field(default_factory=dict)  # clients → the round until which none is watched
    chosen_round: int = -1  # the round with the best validation accuracy so far
    chosen_accuracy: float = -1.0

    @cached_property
    def met(self) -> frozenset[str]:
        """`known`, to look clients up."""
        return frozenset(self.known)


def label_of(round_: int) -> str:
    """The name under which a round is saved, by the server and by the engine."""
    return f"round-{round_:06d}"


def save_checkpoint(folder: Path, progress: Progress, state: Any) -> None:
    """Write the checkpoint of a round; when this returns it is on the disk."""
    payload = {f"progress.{k}": v for k, v in codec.flatten(progress).items()}
    payload |= {f"state.{k}": v for k, v in codec.flatten(state).items()}
    path = folder / f"{label_of(progress.round)}.safetensors"
    write_sealed(path, codec.pack(payload), round=progress.round, state_digest=codec.digest(state))


def load_checkpoint(folder: Path, round_: int, state_class: type) -> tuple[Progress, Any]:
    """The checkpoint of a round; InvalidMessage when it is missing, incomplete or altered."""
    path = folder / f"{label_of(round_)}.safetensors"
    parts: dict[str, codec.Payload] = {"progress": {}, "state": {}}
    for key, value in codec.unpack(read_sealed(path)).items():
        part, _, path_ = key.partition(".")
        if part not in parts:
            raise InvalidMessage(path.name, "a checkpoint", f"a file with '{key}'")
        parts[part][path_] = value
    progress = codec.unflatten(Progress, parts["progress"])
    if progress.round != round_:
        raise InvalidMessage(
            path.name, f"the checkpoint of round {round_}", f"that of round {progress.round}"
        )
    return progress, codec.unflatten(state_class, parts["state"])


def latest_checkpoint(
    folder: Path, state_class: type, restore: Callable[[str], None] = lambda label: None
) -> tuple[tuple[Progress, Any] | None, list[str]]:
    """The newest valid checkpoint whose memories can be restored, and what is wrong with newer ones."""
    problems: list[str] = []
    for round_ in sorted(saved_rounds(folder), reverse=True):
        try:
            found = load_checkpoint(folder, round_, state_class)
            restore(label_of(round_))
            return found, problems
        except InvalidMessage as error:
            problems.append(f"the checkpoint of round {round_} is damaged and was passed over: {error}")
    return None, problems


def saved_rounds(folder: Path) -> list[int]:
    """Rounds that have a checkpoint, in order."""
    names = (label.removeprefix("round-") for label in sealed_labels(folder))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def prune_checkpoints(folder: Path, keep: Collection[int]) -> list[str]:
    """Remove all checkpoints but the newest two and those of the rounds to keep; labels of what is left."""
    rounds = saved_rounds(folder)
    kept = {*rounds[-2:], *keep}
    for round_ in set(rounds) - kept:
        forget_sealed(folder / f"{label_of(round_)}.safetensors")
    return [label_of(round_) for round_ in rounds if round_ in kept]
