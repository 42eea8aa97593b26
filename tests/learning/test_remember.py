# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field

import numpy as np
import pytest

from feddag.core.algorithm import Server
from feddag.core.errors import QuorumMissed
from feddag.engines.inline import InlineEngine
from feddag.learning.remember import hand_out
from tests.contracts.toys import PowerCut
from tests.support.toys import blob_site, toy_server

ARRAYS = {"pool": np.arange(3.0)}


@dataclass
class Setting:
    victims: tuple[int, ...] = ()  # rounds in which c000 is cut off
    asked: list[list[str]] = field(default_factory=list)

    def server(self, round_: int) -> Server:
        site = blob_site()
        self.engine = PowerCut(InlineEngine(site), "c000", self.victims)
        return toy_server(
            site,
            self.engine,
            round=round_,
            quorum=0.5,
            on_answers=lambda task, number, answers: self.asked.append(sorted(answers)),
        )


def test_only_those_who_do_not_hold_it_are_asked() -> None:
    setting = Setting()
    server = setting.server(1)
    assert hand_out(ARRAYS, server.cohort, ("c001",), server) == ("c000", "c001", "c002")
    assert setting.asked == [["c000", "c002"]]
    assert setting.engine.memories.of["c000"]["pool"].tolist() == [0.0, 1.0, 2.0]
    assert hand_out(ARRAYS, server.cohort, server.cohort, server) == server.cohort
    assert len(setting.asked) == 1


def test_a_straggler_that_fails_again_does_not_stop_the_round() -> None:
    server = Setting(victims=(1,)).server(1)
    assert hand_out(ARRAYS, ["c000"], ("c001", "c002"), server) == ("c001", "c002")


def test_too_few_answers_the_first_time_stop_it() -> None:
    server = Setting(victims=(1,)).server(1)
    with pytest.raises(QuorumMissed):
        hand_out(ARRAYS, ["c000"], (), server)
