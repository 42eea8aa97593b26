# SPDX-License-Identifier: Apache-2.0
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import Order, blob_site, obey, toy_server

from feddag.core import codec
from feddag.core.algorithm import broadcast
from feddag.core.engine import Exchange
from feddag.core.errors import QuorumMissed
from feddag.core.seeds import Seed
from feddag.engines import process, workers
from feddag.engines.inline import InlineEngine
from feddag.engines.process import ProcessEngine

SIZES = (30, 20, 10, 5)
CLIENTS = tuple(f"c{i:03d}" for i in range(len(SIZES)))


@pytest.fixture(scope="module")
def engine():
    made = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=2)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _forget(request):
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").memories.of.clear()


def ask(engine, order, clients=CLIENTS, deadline=math.inf, round_=1, **options):
    exchange = Exchange(round_, Seed(1) / "round" / round_, deadline, **options)
    return engine.ask(obey, broadcast(order, clients), exchange)


def digests(answers):
    return {client: codec.digest(answers[client].reply) for client in sorted(answers)}


def test_worker_processes_answer_bit_for_bit_as_the_inline_engine(engine):
    inline = InlineEngine(blob_site(sizes=SIZES))
    for round_ in (1, 2, 3):
        order = Order(action="count", value=0.25)
        here, there = ask(inline, order, round_=round_), ask(engine, order, round_=round_)
        assert digests(here) == digests(there)
        assert {c: a.bytes_up for c, a in here.items()} == {c: a.bytes_up for c, a in there.items()}
        assert {c: a.bytes_down for c, a in here.items()} == {c: a.bytes_down for c, a in there.items()}
    inline.close()


def test_a_client_remembers_between_tasks_whatever_worker_serves_it(engine):
    values = [ask(engine, Order(action="count"))["c001"].reply.value for _ in range(3)]
    assert values == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("raise", "ValueError: the disk of this client is on fire"),
        ("nan", "field 'array': expected finite numbers, got nan at position 1"),
    ],
)
def test_a_client_that_fails_is_named_with_the_reason_and_keeps_its_memory(engine, action, reason):
    for carrier in (engine, InlineEngine(blob_site(sizes=SIZES))):
        ask(carrier, Order(action="count"))
        answers = ask(carrier, Order(action=action, victim="c001"))
        assert answers["c001"].failure == reason
        assert all(not answers[c].failure for c in CLIENTS if c != "c001")
        assert carrier.memories.of["c001"]["count"].tolist() == [1.0], "a failed task leaves no trace"
        assert carrier.memories.of["c000"]["count"].tolist() == [2.0]


def test_a_killed_worker_is_replaced_and_only_its_client_fails(engine):
    answers = ask(engine, Order(action="die", victim="c000"))
    assert answers["c000"].failure == "its worker process died (killed by signal 9)"
    assert [c for c in CLIENTS if answers[c].failure] == ["c000"]
    again = ask(engine, Order(action="count"))
    assert not any(a.failure for a in again.values())
    assert engine.workers == 2


class Clock:
    """The time; once `jump` is set, another hour has passed whenever somebody looks at it."""

    def __init__(self):
        self.ahead, self.jump = 0.0, False

    def monotonic(self):
        self.ahead += 3600.0 if self.jump else 0.0
        return time.monotonic() + self.ahead


def test_a_client_over_its_deadline_is_left_behind_and_usable_next_round(engine, monkeypatch):
    ask(engine, Order(action="count"))
    clock, answered = Clock(), []

    def on_answer(client):
        answered.append(client)
        clock.jump = len(answered) == 3  # all but the one that hangs

    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(workers, "START_TIMEOUT", math.inf)
    answers = ask(engine, Order(action="hang", victim="c003"), deadline=1800.0, on_answer=on_answer)
    monkeypatch.undo()
    assert answers["c003"].failure == "it exceeded the deadline of 1800 s"
    assert [c for c in CLIENTS if answers[c].failure] == ["c003"]
    assert answered[-1] == "c003"
    assert not any(a.failure for a in ask(engine, Order(action="count")).values())


def test_the_inline_engine_discards_answers_that_came_too_late():
    inline = InlineEngine(blob_site(sizes=SIZES))
    answers = ask(inline, Order(action="count"), deadline=1e-9)
    assert all("the deadline is 1e-09 s" in a.failure for a in answers.values())
    assert inline.memories.of == {}


def test_more_workers_than_clients_are_not_started():
    made = ProcessEngine(blob_site(sizes=(4,)), "mlp", workers=3)
    try:
        assert made.workers == 1
        assert ask(made, Order(action="count"), clients=("c000",))["c000"].reply.value == 1.0
    finally:
        made.close()


def test_shared_files_are_gone_after_closing():
    made = ProcessEngine(blob_site(sizes=(4,)), "mlp", workers=1)
    folder = made.folder
    assert Path(folder, "data").is_dir()
    made.close()
    assert not folder.exists()


class TestServer:
    def server(self, quorum):
        return toy_server(blob_site(sizes=SIZES), round=4, seed=Seed(1), quorum=quorum)

    def test_replies_are_sorted_and_failed_clients_left_out(self):
        requests = broadcast(Order(action="raise", victim="c002"), reversed(CLIENTS))
        assert list(self.server(0.5).ask(obey, requests)) == ["c000", "c001", "c003"]

    def test_too_few_answers_stop_the_round_with_numbers_and_the_first_reason(self):
        expected = (
            "round 4, task 'obey': 3 of 4 clients answered, 4 are needed; first failure: "
            "client 'c002', task 'obey', round 4: ValueError: the disk"
        )
        with pytest.raises(QuorumMissed) as raised:
            self.server(1.0).ask(obey, broadcast(Order(action="raise", victim="c002"), CLIENTS))
        assert str(raised.value).startswith(expected)
        assert isinstance(raised.value.__cause__, ValueError), "inline keeps the cause for debugging"

    def test_the_second_question_of_a_round_has_other_randomness_than_the_first(self):
        server, order = self.server(1.0), Order(action="count")
        first, second = (server.ask(obey, {"c000": order})["c000"].array for _ in range(2))
        assert not np.array_equal(first, second)

    def test_asking_nobody_is_answered_by_nobody(self):
        assert self.server(1.0).ask(obey, {}) == {}

    def test_initial_parameters_depend_on_their_name_alone(self):
        server = self.server(1.0)
        assert server.initial_params(name="a") == server.initial_params(name="a")
        assert server.initial_params(name="a") != server.initial_params(name="b")


def test_a_closed_engine_gives_denormal_numbers_back() -> None:
    def tiny() -> float:
        return float(torch.tensor(1e-30) * torch.tensor(1e-12))

    engine = InlineEngine(blob_site())
    assert tiny() == 0.0
    engine.close()
    assert tiny() > 0.0
