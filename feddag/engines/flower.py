# SPDX-License-Identifier: Apache-2.0
"""Flower carries packed bytes: a letter to a node, and what comes back, or why nothing does.

What is particular to Flower is here and in `feddag.deploy.flower_app`, nowhere else. A node starts a new
process for every message, so this file imports neither torch nor anything else that takes long.
"""

import math
import time
from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from feddag.core.errors import InvalidMessage

RECORD = "feddag"  # the one record of a message; it holds these two arrays of packed bytes:
HEAD, BODY = "head", "body"
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 0.5  # seconds between two looks for replies
MEGABYTE = 2**20
MOST_HEAD = MEGABYTE  # bytes
MOST_REASON = 300  # characters of what a node says about an error

Letter = tuple[str, bytes, bytes]  # kind of message ("train.sign"), head, body
Reply = tuple[bytes, bytes]  # head, body


def to_records(head: bytes, body: bytes = b"") -> RecordDict:
    """Packed bytes as Flower carries them; an array without bytes cannot travel and is left out."""
    parts = {name: data for name, data in ((HEAD, head), (BODY, body)) if data}
    arrays = {name: Array("uint8", (len(data),), "feddag", data) for name, data in parts.items()}
    return RecordDict({RECORD: ArrayRecord(arrays)})


def from_records(content: RecordDict, most_bytes: int) -> Reply:
    """Head and body of a message; InvalidMessage if there is anything else, or too much of it."""
    arrays = content.get(RECORD)
    if len(content) != 1 or not isinstance(arrays, ArrayRecord):
        raise InvalidMessage("(message)", f"one array record '{RECORD}'", "other records")
    if not {HEAD} <= set(arrays) <= {HEAD, BODY}:
        raise InvalidMessage("(message)", f"the arrays '{HEAD}' and '{BODY}'", "others")
    for name, most in ((HEAD, MOST_HEAD), (BODY, most_bytes)):
        size = len(arrays[name].data) if name in arrays else 0
        if size > most:
            raise InvalidMessage(f"({name})", f"at most {_megabytes(most)}", _megabytes(size))
        if name in arrays and arrays[name].shape != (size,):
            raise InvalidMessage(f"({name})", f"{size} bytes as declared", f"shape {arrays[name].shape}")
    return arrays[HEAD].data, arrays[BODY].data if BODY in arrays else b""


class FlowerPost:
    """Pushes one message per node over the Grid, and pulls until all are answered or time is up."""

    def __init__(self, grid: Grid, most_bytes: int = 256 * MEGABYTE) -> None:
        self.grid, self.most_bytes = grid, most_bytes
        self.bytes_sent = self.bytes_received = 0  # packed, before Flower adds its own

    def nodes(self) -> list[int]:
        """Ids of the nodes that are connected now, sorted."""
        return sorted(self.grid.get_node_ids())

    def carry(
        self,
        letters: Mapping[int, Letter],
        group: str,
        limit: float = math.inf,
        on_answer: Callable[[int], None] = lambda node: None,
    ) -> dict[int, Reply | str]:
        """What every node replied, or why it did not. Only replies to these very letters are looked at."""
        # Beyond its time to live the SuperLink throws a message away, so that no node answers in vain.
        ttl = None if math.isinf(limit) else limit + 1.0
        arrays: dict[int, RecordDict] = {}
        for node, (_, head, body) in letters.items():
            arrays[node] = to_records(head, body)
            self.bytes_sent += len(head) + len(body)
        messages = [
            Message(arrays[node], node, kind, group_id=group, ttl=ttl)
            for node, (kind, _, _) in letters.items()
        ]
        done: dict[int, Reply | str] = {}
        pending: dict[str, int] = {}
        for node, number in zip(letters, self._push(messages), strict=True):
            if number:
                pending[number] = node
            else:
                done[node] = "its node is not connected"
        started, wait = time.monotonic(), SHORTEST_WAIT
        while pending:
            for message in self.grid.pull_messages(list(pending)):
                # A message that nobody waits for (late, sent twice, or invented) belongs to no question.
                answered = pending.pop(message.metadata.reply_to_message_id, None)
                if answered is not None:
                    done[answered] = self._open(message)
                    on_answer(answered)
                    wait = SHORTEST_WAIT
            left = limit - (time.monotonic() - started)
            if pending and left <= 0:
                done |= dict.fromkeys(pending.values(), f"no answer came within {limit:g} s")
                break
            if pending:
                time.sleep(min(wait, left))
                wait = min(LONGEST_WAIT, wait * 1.5)
        return done

    def _push(self, messages: list[Message]) -> list[str | None]:
        """Ids of the pushed messages, None for those that could not be pushed."""
        if not messages:
            return []
        numbers: list[str | None] = list(self.grid.push_messages(messages))
        if len(numbers) == len(messages):
            return numbers
        # All together were too large for one call.
        single = [list(self.grid.push_messages([message])) for message in messages]
        return [one[0] if one else None for one in single]

    def _open(self, message: Message) -> Reply | str:
        """What a reply holds; the reason where the node, or Flower on its behalf, reports an error."""
        if message.has_error():
            reason = " ".join((message.error.reason or "no reason given")[:MOST_REASON].split())
            return f"its node reports error {message.error.code}: {reason}"
        try:
            head, body = from_records(message.content, self.most_bytes)
        except InvalidMessage as error:
            return str(error)
        self.bytes_received += len(head) + len(body)
        return head, body


def _megabytes(number: int) -> str:
    return f"{number / MEGABYTE:,.1f} MB"
