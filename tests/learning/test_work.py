# SPDX-License-Identifier: Apache-2.0
"""Counting the work of clients, and what a table needs to compare runs fairly."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from feddag.core import codec
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.engine import Answer
from feddag.engines.inline import InlineEngine
from feddag.learning.evaluation import Evaluate, Scores, evaluate, proportional_accuracy
from feddag.learning.sgd import sgd
from tests.algorithms.helpers import fresh
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client, toy_server

LOCAL = LocalTraining(local_epochs=3, batch_size=8, lr=0.1)


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_an_epoch_counts_every_sample_once(backend: str) -> None:
    client = replace(toy_client(blob_site()), backend=backend)
    sgd(client, fresh(), LOCAL)
    assert client.work.samples == 3 * len(client.train)
    sgd(client, fresh(), replace(LOCAL, local_steps=2))
    assert client.work.samples == 3 * len(client.train) + 2 * 8


def epochs(name: str, settings: dict | None = None, rounds: int = 2) -> float:
    """Client-epochs of a method: start and two rounds of three clients, two epochs each."""
    answers: list[Answer] = []
    for asked in play(toy(name, settings), rounds=rounds).asked:
        answers += [] if asked.purpose != "round" else asked.answers.values()
    return sum(a.epochs for a in answers)


def test_what_methods_spend_is_measured_where_they_train() -> None:
    assert epochs("fedavg") == pytest.approx(2 * 3 * 2)
    assert epochs("ditto") == pytest.approx(2 * epochs("fedavg"))
    assert epochs("perfedavg") == pytest.approx(2 * epochs("fedavg")), "two gradients a step"
    assert epochs("fedrc", {"num_clusters": 3}) == pytest.approx(3 * epochs("fedavg"))
    assert epochs("local", {"who": "everyone"}) == pytest.approx(2 * 6 * 2)
    everybody_twice = 6 * 2 * 2  # FedDAG's warm-up: two rounds of two epochs of all six clients
    assert epochs("feddag", {"preset": "two_encoders"}, rounds=0) == pytest.approx(everybody_twice)
    assert epochs("feddag", {"signature": {"views": ["pixels"]}}, rounds=0) == 0, "views of data need none"


def test_proportional_accuracy_weighs_recalls_by_the_clients_own_label_shares() -> None:
    client = toy_client(blob_site())
    counts = client.train.counts()
    scores = Scores(total=np.array([4, 4, 0]), correct=np.array([4, 1, 0]), loss=0.0)
    expected = (counts[0] * 1.0 + counts[1] * 0.25) / (counts[0] + counts[1])
    assert proportional_accuracy(client, scores) == pytest.approx(expected)
    nothing = Scores(total=np.zeros(3, dtype=np.int64), correct=np.zeros(3, dtype=np.int64), loss=0.0)
    assert proportional_accuracy(client, nothing) == -1.0


def test_who_adapts_before_use_is_not_trained_a_second_time() -> None:
    client = toy_client(blob_site())
    plain = Evaluate(deployment=Deployment(models=(fresh(),)), local=LOCAL, after_training=True)
    adapted = replace(plain, deployment=Deployment(models=(fresh(),), adapt=LOCAL))
    once, before = evaluate(plain, client), evaluate(adapted, client)
    assert before.test_after is not None
    assert codec.digest(before.test_after) == codec.digest(once.test_after) == codec.digest(before.test)


@pytest.mark.parametrize("name", ["feddag", "fblg"])
def test_rounds_that_the_start_has_spent_ask_nobody(name: str) -> None:
    prepared = toy(name, {"preset": "two_encoders"} if name == "feddag" else None)
    state = play(prepared, rounds=0).states[0]
    engine = InlineEngine(prepared.site)
    warmup = {"feddag": 2, "fblg": 1}[name]
    for round_ in range(1, 5):
        asked: list[str] = []
        server = toy_server(
            prepared.site,
            engine,
            clients=prepared.trainable,
            cohort=prepared.trainable[:3],
            round=round_,
            num_rounds=4,
            on_answers=lambda task, _, answers, asked=asked: asked.append(task.name),
        )
        prepared.algorithm.round(state, server)
        assert bool(asked) == (round_ > warmup)


def test_one_round_always_remains() -> None:
    prepared = toy("feddag")
    make = partial(toy_server, prepared.site, InlineEngine(prepared.site), clients=("a",), cohort=("a",))
    assert not make(round=1, num_rounds=1).spent(2)
    assert make(round=1, num_rounds=2).spent(2)
    assert not make(round=2, num_rounds=2).spent(2)
