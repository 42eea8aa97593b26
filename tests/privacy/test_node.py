# SPDX-License-Identifier: Apache-2.0
"""What a node tells beside its replies: nothing that gives the number of its samples away."""

from pathlib import Path

import pytest

from feddag.core import codec
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.engines.node import Node
from feddag.engines.wire import HELLO, AnswerHead, Hello, Question
from feddag.learning.train import Train, train
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.guard import Protection
from tests.support.toys import blob_site

SIZE = 237


def told(folder: Path, level: str) -> tuple[Hello, AnswerHead]:
    """The node's greeting, and the head of its answer after two epochs of training."""
    site = blob_site(sizes=(SIZE,))
    privacy = Protection(PrivacyOptions(level=level), deployed=True, tasks=(train,)) if level else None
    node = Node("c000", site.federation, {train.name: train}, "mlp", folder, privacy=privacy)
    _, hello = node.answer(codec.encode(_question(HELLO)), b"")
    local = LocalTraining(local_epochs=2, batch_size=32)
    request = Train(params=Params.from_module(site.network("single")), local=local)
    head, body = node.answer(codec.encode(_question(train.name)), codec.encode(request))
    assert body, codec.decode(AnswerHead, head).failure
    return codec.decode(Hello, hello), codec.decode(AnswerHead, head)


def _question(task: str) -> Question:
    return Question(number="n1", run="r1", task=task, client="c000", round=1, model="mlp")


def test_where_counts_are_noisy_nothing_else_tells_how_many_samples_there_are(tmp_path: Path) -> None:
    hello, head = told(tmp_path, "private")
    assert hello.examples == 1
    assert (head.samples, head.epochs) == (0, 0.0)


@pytest.mark.parametrize("level", ["", "guarded"])
def test_where_counts_are_exact_the_work_is_told(tmp_path: Path, level: str) -> None:
    hello, head = told(tmp_path, level)
    assert hello.examples == SIZE
    assert (head.samples, head.epochs) == (2 * SIZE, 2.0)
