# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation behind `ask_mean`: the same mean, drop-outs, small groups, curious servers."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from feddag.core.algorithm import Server, broadcast
from feddag.core.deployment import LocalTraining
from feddag.core.engine import Answer
from feddag.core.params import Params
from feddag.core.task import ClientTask
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site
from feddag.engines.process import ProcessEngine
from feddag.learning.train import Train, train
from feddag.privacy.config import PrivacyOptions, UpdatePrivacy
from feddag.privacy.guard import Protection
from feddag.privacy.secagg import AskReveal, hide, reveal
from feddag.privacy.sums import SecureSums
from tests.contracts.toys import Around
from tests.support.toys import blob_site, toy_server

OPTIONS = PrivacyOptions(level="guarded", update=UpdatePrivacy(mode="secagg"))
LOCAL = LocalTraining(local_epochs=1, batch_size=8)
SIZES = (30, 20, 10, 15, 25)


def site(options: PrivacyOptions | None = OPTIONS) -> Site:
    plain = blob_site(sizes=SIZES)
    return plain if options is None else dataclasses.replace(plain, privacy=Protection(options))


@dataclass
class Lossy(Around):
    """Some clients do not answer some tasks, the first `times` times that they are asked."""

    lost: Mapping[str, tuple[str, ...]]
    times: int = 9

    def ask(self, task: ClientTask, requests: Mapping[str, Any], exchange: Any) -> Mapping[str, Answer]:
        gone = self.lost.get(task.name, ()) if self.times > 0 else ()
        self.times -= task.name in self.lost
        served = {c: r for c, r in requests.items() if c not in gone}
        answers = dict(super().ask(task, served, exchange))
        return answers | {c: Answer(failure="gone") for c in gone if c in requests}


def question(server: Server) -> dict[str, Train]:
    return broadcast(Train(params=server.initial_params(), local=LOCAL), server.clients)


def secure(where: Site, engine: Any = None, **changes: Any) -> Server:
    return toy_server(where, engine, averaging=SecureSums(OPTIONS), quorum=0.0, **changes)


def plain_mean(clients: tuple[str, ...], groups: Mapping[str, int] | None = None, **changes: Any) -> Any:
    """The mean that a server finds that sees everything."""
    server = toy_server(site(None), quorum=0.0, **changes)
    return server.ask_mean(train, {c: r for c, r in question(server).items() if c in clients}, groups)


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for group in one:
        assert one[group].clients == other[group].clients
        assert one[group].reply.examples == other[group].reply.examples
        np.testing.assert_allclose(
            one[group].reply.update.vector.numpy(), other[group].reply.update.vector.numpy(), atol=1e-7
        )


@pytest.mark.parametrize("groups", [None, {"c000": 0, "c001": 0, "c002": 0, "c003": 4, "c004": 4}])
def test_the_mean_is_that_of_a_server_that_sees_everything(groups: dict[str, int] | None) -> None:
    where = site()
    server = secure(where)
    server.averaging.least = 2
    where.privacy.options = dataclasses.replace(OPTIONS, update=UpdatePrivacy(mode="secagg", min_group=2))
    found = server.ask_mean(train, question(server), groups)
    assert_same(found, plain_mean(where.federation.ids, groups))


def test_workers_give_the_same_bits_as_one_process() -> None:
    where = site()
    inline = secure(where)
    expected = inline.ask_mean(train, question(inline))
    engine = ProcessEngine(site(), "mlp", 2)
    try:
        server = secure(engine.site, engine)
        found = server.ask_mean(train, question(server))
    finally:
        engine.close()
    assert found[0].reply.update.digest() == expected[0].reply.update.digest()


@pytest.mark.parametrize("task", ["advertise", "hide"])
@pytest.mark.parametrize("gone", [("c001",), ("c000", "c004")])
def test_clients_that_drop_out_are_left_out_of_the_mean(task: str, gone: tuple[str, ...]) -> None:
    where = site()
    server = secure(where, Lossy(InlineEngine(where), {task: gone}))
    found = server.ask_mean(train, question(server))
    assert_same(found, plain_mean(tuple(c for c in where.federation.ids if c not in gone)))


def test_a_survivor_that_is_late_once_is_asked_again() -> None:
    where = site()
    server = secure(where, Lossy(InlineEngine(where), {"reveal": ("c002",)}, times=1))
    assert_same(server.ask_mean(train, question(server)), plain_mean(where.federation.ids))


def test_a_survivor_that_stays_away_costs_the_group_its_round() -> None:
    where = site()
    server = secure(where, Lossy(InlineEngine(where), {"reveal": ("c002",)}))
    assert server.ask_mean(train, question(server)) == {}
    assert "left before" in server.notes["refused_sums"][0]["why"]


@pytest.mark.parametrize("gone", [("c000", "c001", "c002"), ("c000", "c001", "c002", "c003")])
@pytest.mark.parametrize("task", ["advertise", "hide"])
def test_fewer_than_three_reporters_are_refused(task: str, gone: tuple[str, ...]) -> None:
    where = site()
    server = secure(where, Lossy(InlineEngine(where), {task: gone}))
    assert server.ask_mean(train, question(server)) == {}
    assert "of at least 3 clients" in server.notes["refused_sums"][0]["why"]


def test_a_small_cohort_is_topped_up_with_members_of_its_cluster() -> None:
    where = site()
    groups = {"c000": 0, "c001": 0, "c002": 0, "c003": 1, "c004": 1}
    server = secure(where)
    asked = {c: r for c, r in question(server).items() if c in ("c000", "c003")}
    found = server.ask_mean(train, asked, groups)
    assert found[0].clients == ("c000", "c001", "c002")
    assert [refused["group"] for refused in server.notes["refused_sums"]] == [1]


def test_a_client_reveals_for_one_sum_only_and_never_for_a_small_one() -> None:
    where = site()
    engine = InlineEngine(where)
    server = secure(where, engine)
    session: dict[str, Any] = {}

    @dataclass
    class Remember(Around):
        def ask(self, task, requests, exchange):
            if task.name == "reveal":
                session["request"] = next(iter(requests.values()))
            return super().ask(task, requests, exchange)

    server.engine = Remember(engine)
    server.ask_mean(train, question(server))
    asked: AskReveal = session["request"]
    keys = {"c004": np.zeros(32, dtype=np.uint8) + 9}
    others = dataclasses.replace(asked, survivors=asked.survivors[:4], dropped=keys)
    few = dataclasses.replace(asked, survivors=("c000", "c001"), dropped={})
    for request, why in ((others, "two different sums"), (few, "at least 3")):
        answers = engine.ask(reveal, {"c000": request}, _exchange())
        assert why in answers["c000"].failure


def test_no_update_leaves_bare_and_what_leaves_is_masked() -> None:
    where = site()
    seen: list[Any] = []

    @dataclass
    class Spy(Around):
        def ask(self, task, requests, exchange):
            answers = super().ask(task, requests, exchange)
            seen.extend((task.name, c, a.reply) for c, a in answers.items())
            return answers

    server = secure(where, Spy(InlineEngine(where)))
    server.ask_mean(train, question(server))
    exact = toy_server(site(None))
    truth = exact.ask(train, question(exact))
    for name, client, reply in seen:
        assert not any(isinstance(v, Params) for v in vars(reply).values())
        if name == hide.name:
            bare = truth[client].update.vector.numpy() * truth[client].examples * 2.0**24
            assert (
                not np.isclose(reply.values.view(np.int64)[:-2].astype(float), bare, rtol=1e-3).mean() > 0.05
            )


def test_asked_alone_a_client_sends_zeros_in_place_of_its_update() -> None:
    where = site()
    server = toy_server(where)
    for reply in server.ask(train, question(server)).values():
        assert reply.update.norm() == 0


def _exchange() -> Any:
    from feddag.core.engine import Exchange
    from feddag.core.seeds import Seed

    return Exchange(1, Seed(0))
