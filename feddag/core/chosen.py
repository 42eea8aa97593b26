# SPDX-License-Identifier: Apache-2.0
"""Which clients an event of a scenario is about: those it names, or a share of all that is drawn."""

from collections.abc import Sequence

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed


def chosen_clients(
    where: str, some: float | Sequence[str], free: Sequence[str], clients: Sequence[str], seed: Seed
) -> list[str]:
    """The clients that are named, or a share of all clients, drawn from those that are free."""
    if not isinstance(some, float):
        unknown = [c for c in some if c not in clients]
        if unknown or not some:
            got = ", ".join(unknown[:5]) or "none"
            raise InvalidInput(f"{where}.clients: expected ids such as '{clients[0]}', got {got}")
        return list(some)
    number = round(some * len(clients))
    if not 1 <= number <= len(free):
        raise InvalidInput(
            f"{where}.clients = {some:g}: this is {number} of {len(clients)} clients, "
            f"expected 1 to {len(free)}, the clients that no other event has taken"
        )
    return sorted(str(c) for c in seed.numpy().choice(np.array(free), size=number, replace=False))
