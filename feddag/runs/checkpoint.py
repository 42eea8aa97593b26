# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that survive a kill at any instant: temporary file, fsync, rename, directory fsync, SHA-256.

A checkpoint is a `.safetensors` file (anyone can open it) and a `.json` beside it, written last: without a
`.json` whose SHA-256 fits, there is no checkpoint.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.errors import InvalidMessage
from feddag.core.files import write_durably
from feddag.core.message import message
from feddag.core.task import Memory


@message
class Progress:
    """Where a run stands, besides the algorithm's state."""

    round: int
    log_bytes: int  # how much of the event log belongs to it; the rest is of a round that was cut off
    chosen_round: int = -1  # the round with the best validation accuracy so far
    chosen_accuracy: float = -1.0
    memory: dict[str, Memory]


def save_checkpoint(folder: Path, progress: Progress, state: Any) -> Path:
    """Write the checkpoint of a round; when this returns it is on the disk."""
    payload = {f"progress.{k}": v for k, v in codec.flatten(progress).items()}
    payload |= {f"state.{k}": v for k, v in codec.flatten(state).items()}
    data = codec.pack(payload)
    path = folder / f"round-{progress.round:06d}.safetensors"
    about = {
        "round": progress.round,
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "state_digest": codec.digest(state),
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    write_durably(path, data)
    write_durably(path.with_suffix(".json"), json.dumps(about, indent=1).encode())
    return path


def load_checkpoint(folder: Path, round_: int, state_class: type) -> tuple[Progress, Any]:
    """The checkpoint of a round; InvalidMessage when it is missing, incomplete or altered."""
    path = folder / f"round-{round_:06d}.safetensors"
    try:
        about = json.loads(path.with_suffix(".json").read_text())
        data = path.read_bytes()
        expected = about["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidMessage(path.name, "a readable checkpoint", str(error)) from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise InvalidMessage(path.name, "bytes with the recorded SHA-256", "other bytes")
    payload = codec.unpack(data)
    parts: dict[str, codec.Payload] = {"progress": {}, "state": {}}
    for key, value in payload.items():
        part, _, path_ = key.partition(".")
        parts[part][path_] = value
    return codec.unflatten(Progress, parts["progress"]), codec.unflatten(state_class, parts["state"])


def latest_checkpoint(folder: Path, state_class: type) -> tuple[tuple[Progress, Any] | None, list[str]]:
    """The newest valid checkpoint, if any, and what is wrong with newer ones."""
    problems: list[str] = []
    for round_ in sorted(saved_rounds(folder), reverse=True):
        try:
            return load_checkpoint(folder, round_, state_class), problems
        except InvalidMessage as error:
            problems.append(f"the checkpoint of round {round_} is damaged and was passed over: {error}")
    return None, problems


def saved_rounds(folder: Path) -> list[int]:
    """Rounds that have a checkpoint, in order."""
    # The .json is written last: without one, a kill came in between and there is no checkpoint yet.
    names = (p.stem.removeprefix("round-") for p in folder.glob("round-*.json"))
    return sorted(int(name) for name in names if name.isdigit())


def prune_checkpoints(folder: Path, keep: Iterable[int]) -> None:
    """Remove all checkpoints but the newest two and those of the rounds to keep."""
    rounds = saved_rounds(folder)
    for round_ in set(rounds) - set(rounds[-2:]) - set(keep):
        path = folder / f"round-{round_:06d}.safetensors"
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
