# SPDX-License-Identifier: Apache-2.0
"""What the tests of several methods need."""

from dataclasses import dataclass
from typing import Any

from feddag.core.averaging import Mean
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.engines.perform import Site
from tests.support.toys import blob_site


def fresh(number: int = 0, kind: str = "single", site: Site | None = None) -> Params:
    """Initial parameters of the toy network; another number, other ones."""
    with Seed(number).ambient():
        return Params.from_module((site or blob_site()).network.fresh(kind))


@dataclass
class FixedMeans:
    """A server whose clients' mean reply of each round is written down; None: nobody answered."""

    replies: list[Any]
    cohort: tuple[str, ...] = ("a", "b")
    clients: tuple[str, ...] = ("a", "b", "c", "d")

    def ask_mean(self, task: Any, requests: Any) -> dict[int, Mean[Any]]:
        reply = self.replies.pop(0)
        return {} if reply is None else {0: Mean(reply, self.cohort)}
