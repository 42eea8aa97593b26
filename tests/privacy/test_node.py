# SPDX-License-Identifier: Apache-2.0
"""What a node tells beside its replies, and the limits in its own folder, which no server can overrule."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from feddag.core import codec
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.params import Params
from feddag.deploy.desk import protection_of
from feddag.engines.node import Node
from feddag.engines.wire import HELLO, AnswerHead, Hello, Question
from feddag.experiment.settings import Experiment
from feddag.learning.train import Train, train
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.guard import Protection
from tests.support.toys import blob_site

SIZE = 237


def told(folder: Path, level: str) -> tuple[Hello, AnswerHead]:
    """The node's greeting, and the head of its answer after two epochs of training."""
    privacy = Protection(PrivacyOptions(level=level), deployed=True, tasks=(train,)) if level else None
    hello, head = answers(folder, privacy)
    assert not head.failure
    return hello, head


def answers(folder: Path, privacy: Protection | None) -> tuple[Hello, AnswerHead]:
    site = blob_site(sizes=(SIZE,))
    node = Node("c000", site.federation, {train.name: train}, "mlp", folder, privacy=privacy)
    _, hello = node.answer(codec.encode(_question(HELLO)), b"")
    local = LocalTraining(local_epochs=2, batch_size=32)
    request = Train(params=Params.from_module(site.network("single")), local=local)
    head, body = node.answer(codec.encode(_question(train.name)), codec.encode(request))
    assert bool(body) != bool(codec.decode(AnswerHead, head).failure)
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


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ("epsilon = 0.4", "its own limit of ε = 0.4 would be exceeded by numbers of samples"),
        ("least_samples = 1000", "its own limit asks for at least 1000 samples"),
        ("epsilon = 4.0", ""),
    ],
)
def test_limits_in_the_folder_of_a_node_hold_whatever_the_run_allows(
    tmp_path: Path, limits: str, why: str
) -> None:
    (tmp_path / "limits.toml").write_text(limits)
    experiment = Experiment.from_settings(
        {"algorithm": "fedavg", "privacy": {"level": "private", "budget": 64}}
    )
    privacy = protection_of(experiment, SimpleNamespace(folder=tmp_path))
    _, head = answers(tmp_path / "memory", privacy)
    assert head.failure.startswith(why)
    assert bool(head.failure) == bool(why)
    # What was refused stands in no ledger, what left does.
    assert (tmp_path / "ledger.jsonl").exists() == (not why)


def test_a_node_with_limits_takes_no_part_in_a_run_without_privacy(tmp_path: Path) -> None:
    assert protection_of(Experiment(), SimpleNamespace(folder=tmp_path)) is None
    (tmp_path / "limits.toml").write_text("epsilon = 4.0")
    with pytest.raises(InvalidInput, match="nothing may leave"):
        protection_of(Experiment(), SimpleNamespace(folder=tmp_path))
