# SPDX-License-Identifier: Apache-2.0
"""What the server hands out once and clients keep: it lies in their memory under a name."""

from collections.abc import Iterable

import numpy as np

from feddag.core.algorithm import Server, broadcast
from feddag.core.errors import QuorumMissed
from feddag.core.message import message, public
from feddag.core.task import Client, client_task


@message
class Remember:
    """Keep these arrays."""

    arrays: dict[str, np.ndarray] = public()


@message
class Acknowledged:
    """The arrays are kept."""


@client_task
def remember(request: Remember, client: Client) -> Acknowledged:
    """Keep the arrays until told otherwise."""
    client.memory.update(request.arrays)
    return Acknowledged()


def hand_out(
    arrays: dict[str, np.ndarray], clients: Iterable[str], holders: tuple[str, ...], server: Server
) -> tuple[str, ...]:
    """Send arrays to those of the clients who do not hold them yet; returns everyone who holds them now."""
    missing = [client for client in clients if client not in holders]
    if not missing:
        return holders
    try:
        replies = server.ask(remember, broadcast(Remember(arrays=arrays), missing))
    except QuorumMissed:
        # Stragglers are asked again when they next take part; the first time too few are too few.
        if not holders:
            raise
        return holders
    return tuple(sorted({*holders, *replies}))
