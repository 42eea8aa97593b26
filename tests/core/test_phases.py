# SPDX-License-Identifier: Apache-2.0
"""Bytes and seconds of a question are split by phase, and nothing is lost or counted twice."""

import torch

from feddag.core.deployment import LocalTraining
from feddag.core.engine import Answer
from feddag.core.params import Params
from feddag.core.phases import part_bytes, phase_of, spent
from feddag.core.task import Work
from feddag.learning.dual import TrainDual, TrainedDual, train_dual
from feddag.learning.evaluation import evaluate
from feddag.learning.signature import share_warm, sign
from feddag.learning.train import train

MODEL = Params.of({"primary.a": torch.zeros(10), "head.b": torch.zeros(5), "secondary.a": torch.zeros(10)})


def request(borrowed: Params | None) -> TrainDual:
    values = {"primary": True, "sequential": True, "diversity": 0.0, "secondary_epochs": 0}
    return TrainDual(model=MODEL, borrowed_secondary=borrowed, local=LocalTraining(), **values)


def test_every_task_has_a_phase() -> None:
    found = [phase_of(task) for task in (sign, share_warm, train_dual, train, evaluate)]
    assert found == ["signature", "warm-up", "primary", "training", "evaluation"]


def test_the_borrowed_encoder_is_the_secondary_part_of_a_request() -> None:
    assert part_bytes(request(MODEL.select("secondary."))) == {"secondary": 40}
    assert part_bytes(request(None)) == {}


def test_shares_of_all_phases_add_up_to_the_whole() -> None:
    reply = TrainedDual(update=None, borrowed_secondary=MODEL.select("secondary."), examples=1)
    one = Answer(reply=reply, seconds=3.0, bytes_down=200, bytes_up=60, parts_down={"secondary": 40},
                 phases={"secondary": 1.0})  # fmt: skip
    failed = Answer(failure="gone", seconds=0.5, bytes_down=200)
    assert spent(train_dual, {"a": one, "b": failed}) == {
        "primary": [360, 20, 2.5],
        "secondary": [40, 40, 1.0],
    }


def test_time_inside_a_phase_is_counted_there_even_if_it_fails() -> None:
    work = Work()
    for _ in range(2):
        try:
            with work.phase("secondary"):
                raise ValueError
        except ValueError:
            pass
    assert set(work.seconds) == {"secondary"}
    assert work.seconds["secondary"] > 0
