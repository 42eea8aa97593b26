# SPDX-License-Identifier: Apache-2.0
"""Phases: what the bytes and seconds of a question were spent on, for the ledger of a run.

A request names its phase (`phase: ClassVar[str]`); without a name it is training, or evaluation. A message
may say that some of its fields belong to another phase (`parts: ClassVar[Mapping[str, str]]`, field → phase),
and a task that works for two phases measures the second one with `client.work.phase(name)`.
"""

from collections.abc import Mapping
from typing import Any

from feddag.core.engine import Answer
from feddag.core.params import Params
from feddag.core.task import ClientTask


def phase_of(task: ClientTask) -> str:
    """The phase that a task works for, unless it says otherwise."""
    return getattr(task.request, "phase", "evaluation" if task.sees_test else "training")


def part_bytes(message: Any) -> dict[str, int]:
    """Bytes of the fields that belong to another phase than the message itself."""
    found: dict[str, int] = {}
    for name, phase in getattr(type(message), "parts", {}).items():
        value = getattr(message, name)
        if isinstance(value, Params):
            found[phase] = found.get(phase, 0) + 4 * value.layout.size
    return found


def spent(task: ClientTask, answers: Mapping[str, Answer]) -> dict[str, list[float]]:
    """Phase → bytes to the clients, bytes to the server, seconds that clients computed."""
    main = phase_of(task)
    found: dict[str, list[float]] = {main: [0, 0, 0.0]}
    for answer in answers.values():
        total = [answer.bytes_down, answer.bytes_up, answer.seconds]
        shares = [answer.parts_down, part_bytes(answer.reply), answer.phases]
        for way, (whole, parts) in enumerate(zip(total, shares, strict=True)):
            for phase, amount in parts.items():
                found.setdefault(phase, [0, 0, 0.0])[way] += amount
            found[main][way] += max(0, whole - sum(parts.values()))
    return {phase: [int(down), int(up), round(seconds, 4)] for phase, (down, up, seconds) in found.items()}
