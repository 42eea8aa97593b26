# SPDX-License-Identifier: Apache-2.0
"""Where a short-lived ClientApp process meets the node's desk: one local connection, packed bytes only.

It must start fast, so it imports nothing but Python's own library.
"""

import json
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ADDRESS = "desk.json"  # where the desk says how it can be reached
OPENING = 600.0  # seconds that a desk may take to open, or to open again after it was stopped
GLANCE = 0.05
GRACE = 5.0  # seconds beyond the deadline: the desk should end its task by itself


def through_the_desk(config: Mapping[str, Any], head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The desk's answer; an exception if it does not come, which Flower reports to the server."""
    with reach_desk(Path(str(config["folder"]))) as desk:
        return question_desk(desk, head, body)


def reach_desk(folder: Path, patience: float = OPENING) -> Connection:
    """A connection to the desk of the node in a folder."""
    until = time.monotonic() + patience
    while True:
        try:
            where = json.loads((folder / ADDRESS).read_text())
            return connect(where["address"], "AF_UNIX", bytes.fromhex(where["key"]))
        except (OSError, ValueError, KeyError, EOFError, AuthenticationError) as error:
            if time.monotonic() > until:
                raise TimeoutError(f"the desk of this node is closed ({type(error).__name__})") from error
        time.sleep(GLANCE)


def question_desk(desk: Connection, head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Hand over a question and wait for the answer, at most as long as the desk says it may take."""
    desk.send_bytes(head)
    desk.send_bytes(body)
    try:
        seconds = json.loads(desk.recv_bytes())[
            "deadline"
        ]  # the desk reads the question, this process cannot
        if not desk.poll(seconds + GRACE if seconds else None):
            raise TimeoutError(f"the task exceeded its deadline of {seconds:g} s")
        return desk.recv_bytes(), desk.recv_bytes()
    except (EOFError, ConnectionError) as error:
        raise ConnectionError("the process that holds this node's data was stopped at its task") from error
