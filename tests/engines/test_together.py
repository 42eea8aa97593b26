"""Engines that let several clients train at once give the answers of engines that ask one by one."""

import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pretended_device import pretended_device
from toys import Order, blob_site, obey

from feddag.core import codec
from feddag.core.algorithm import broadcast
from feddag.core.deployment import LocalTraining
from feddag.core.engine import Exchange
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.engines.inline import InlineEngine
from feddag.engines.process import ProcessEngine
from feddag.engines.together import groups
from feddag.learning.devices import Computing
from feddag.learning.sgd import sgd
from feddag.learning.train import Train, Trained, train
from tests.contracts.toys import SETTINGS, Trace, play, toy

SIZES = (30, 20, 10, 5, 20)
LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.05)
AT_ONCE = {"engine": {"name": "inline", "backend": "torch", "batched_clients": 4}}
ALONE = {"engine": {"name": "inline", "backend": "torch"}}
SOME_METHODS = ("feddag", "scaffold", "fedgwc")


def site_of(batched_clients: int) -> Any:
    site = replace(blob_site(sizes=SIZES), backend="torch")
    return replace(site, computing=Computing(batched_clients=batched_clients))


def ask(engine: Any, task: Any, request: Any, deadline: float = math.inf) -> Any:
    clients = engine.clients()
    return engine.ask(task, broadcast(request, clients), Exchange(1, Seed(1), deadline))


def model(site: Any) -> Params:
    with Seed(2).ambient():
        return Params.from_module(site.network.fresh("single"))


def numbers(trace: Trace) -> list[np.ndarray]:
    """All arrays that the clients have sent, in order."""
    replies = [a.answers[client].reply for a in trace.asked for client in sorted(a.answers)]
    packed = [codec.unpack(codec.encode(reply)) for reply in replies]
    return [np.asarray(v) for one in packed for _, v in sorted(one.items()) if isinstance(v, np.ndarray)]


@pytest.mark.parametrize("name", SOME_METHODS)
def test_a_methods_clients_answer_the_same_up_to_rounding(name: str) -> None:
    alone = play(toy(name, SETTINGS.get(name, {}), **ALONE))
    at_once = play(toy(name, SETTINGS.get(name, {}), **AT_ONCE))
    assert [(a.task, sorted(a.answers)) for a in at_once.asked] == [
        (a.task, sorted(a.answers)) for a in alone.asked
    ]
    for one, other in zip(numbers(alone), numbers(at_once), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", ["feddag"])
def test_nothing_is_left_behind_on_the_way_to_another_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = play(toy(name, SETTINGS.get(name, {}), **AT_ONCE))
    prepared = toy(name, SETTINGS.get(name, {}), **AT_ONCE)
    with pretended_device(monkeypatch) as device:
        there = play(prepared)
    assert device.operations > 100
    assert there.digests == host.digests


def test_workers_and_this_process_train_groups_to_the_same_bits() -> None:
    site = site_of(3)
    request = Train(params=model(site), local=LOCAL)
    inline, workers = InlineEngine(site), ProcessEngine(site, "mlp", workers=2)
    try:
        here, there = ask(inline, train, request), ask(workers, train, request)
    finally:
        inline.close()
        workers.close()
    assert [len(group) for group in groups(site, inline.clients(), 1)] == [3, 2]
    assert {c: codec.digest(a.reply) for c, a in here.items()} == {
        c: codec.digest(a.reply) for c, a in there.items()
    }
    assert {c: a.samples for c, a in there.items()} == dict(
        zip(inline.clients(), (2 * n for n in SIZES), strict=True)
    )


@message
class Odd:
    """Train this; the victim draws, fails or is done at once."""

    params: Params = public()
    local: LocalTraining
    victim: str


@client_task
def oddly(request: Odd, client: Client) -> Trained:
    """Train once, draw from torch's global generator, train again; the victim fails in between."""
    first = sgd(client, request.params, request.local)
    drawn = torch.rand(1)
    if client.id == request.victim:
        raise ValueError("the disk of this client is on fire")
    if client.id == "c003":
        return Trained(update=first * float(drawn), examples=1)
    return Trained(update=sgd(client, first, request.local) * float(drawn), examples=2)


def test_tasks_that_go_different_ways_keep_their_own_randomness_and_faults() -> None:
    alone, at_once = InlineEngine(site_of(1)), InlineEngine(site_of(5))
    request = Odd(params=model(alone.site), local=LOCAL, victim="c001")
    one, other = ask(alone, oddly, request), ask(at_once, oddly, request)
    assert other["c001"].failure == one["c001"].failure
    assert "on fire" in other["c001"].failure
    for client in ("c000", "c002", "c003", "c004"):
        apart = (one[client].reply.update - other[client].reply.update).norm()
        assert apart < 1e-5 * one[client].reply.update.norm()
        assert other[client].samples == one[client].samples
        assert other[client].seconds > 0


def test_a_worker_that_dies_with_a_group_loses_this_group_only() -> None:
    engine = ProcessEngine(site_of(2), "mlp", workers=1)
    try:
        answers = ask(engine, obey, Order(action="die", victim="c003"))
        again = ask(engine, obey, Order(action="count"))
    finally:
        engine.close()
    lost = {client for client, answer in answers.items() if answer.failure}
    assert "c003" in lost
    assert len(lost) == len(next(g for g in groups(engine.site, engine.clients(), 1) if "c003" in g))
    assert not any(answer.failure for answer in again.values())
    assert {c: a.reply.value for c, a in again.items()} == {c: 1.0 if c in lost else 2.0 for c in again}


def test_an_interrupted_engine_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = InlineEngine(site_of(5))

    def stop(trainings: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.site.cohort, "train", stop)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        ask(engine, train, Train(params=model(engine.site), local=LOCAL))
    assert threading.active_count() == before
