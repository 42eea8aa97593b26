# SPDX-License-Identifier: Apache-2.0
"""One answer behind its guard: budgets, a client's own limits, noisy counts that are drawn once."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from feddag.core.engine import Exchange
from feddag.core.message import Kind, message, sensitive
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.train import Trained
from feddag.learning.train import train as train_task
from feddag.privacy.accounting import GAUSSIAN, LAPLACE
from feddag.privacy.config import CountPrivacy, PrivacyOptions, SubspacePrivacy, UpdatePrivacy
from feddag.privacy.guard import Guard, Protection, Refused
from feddag.privacy.limits import Limits
from tests.support.toys import blob_site, toy_client

PRIVATE = PrivacyOptions(level="private")


def guarded(place: Protection, question: str = "q", sizes: tuple[int, ...] = (300,)) -> tuple[Client, Guard]:
    client = toy_client(blob_site(sizes=sizes))
    guard = place.guard(client.id, train_task, Exchange(1, Seed(3) / question))
    return dataclasses.replace(client, privacy=guard), guard


def trained(client: Client) -> Trained:
    from feddag.core.params import Params

    start = Params.from_module(client.network("single"))
    return Trained(update=start, examples=len(client.train))


def test_counts_are_drawn_once_and_cost_once() -> None:
    place = Protection(PRIVATE)
    client, guard = guarded(place)
    first = guard.release(trained(client), client).examples
    memory = client.memory
    client, guard = guarded(place, "another question")
    client.memory.update(memory)
    assert guard.release(trained(client), client).examples == first != len(client.train)
    assert [s.mechanism for s in place.ledger.spends(client.id)] == [LAPLACE]


def test_other_samples_mean_a_new_histogram_and_a_new_cost() -> None:
    place = Protection(PRIVATE)
    client, guard = guarded(place)
    guard.release(trained(client), client)
    moved, guard = guarded(place, "after a drift", sizes=(310,))
    moved.memory.update(client.memory)
    guard.release(trained(moved), moved)
    assert [s.mechanism for s in place.ledger.spends(client.id)] == [LAPLACE, LAPLACE]


def test_a_client_stops_answering_what_its_budget_does_not_allow() -> None:
    place = Protection(dataclasses.replace(PRIVATE, budget=1.0))
    client, guard = guarded(place)
    with pytest.raises(Refused, match="budget of ε = 1 would be exceeded by principal vectors"):
        guard.subspaces(client.train.x, client)
    client, guard = guarded(place, "counts alone")
    assert guard.release(trained(client), client).examples > 0


def test_its_own_limit_comes_before_the_budget() -> None:
    client, guard = guarded(Protection(PRIVATE, limits=Limits(epsilon=0.4)))
    with pytest.raises(Refused, match=r"its own limit of ε = 0\.4"):
        guard.release(trained(client), client)


def test_a_client_with_too_few_samples_keeps_silent() -> None:
    place = Protection(PRIVATE, limits=Limits(least_samples=1000))
    client, guard = guarded(place)
    with pytest.raises(Refused, match="at least 1000 samples"):
        guard.release(trained(client), client)
    assert place.ledger.of(client.id) == {}


def test_kinds_that_may_not_leave_plain_do_not() -> None:
    options = PrivacyOptions(level="guarded")
    client, guard = guarded(Protection(options, limits=Limits(plain=frozenset({Kind.COUNTS}))))
    with pytest.raises(Refused, match="trained parameters"):
        guard.release(trained(client), client)


def test_a_replayed_question_spends_nothing_and_says_the_same() -> None:
    place = Protection(PRIVATE)
    told = []
    for _ in range(2):
        client, guard = guarded(place)
        made = guard.subspaces(client.train.x, client)
        guard.release(trained(client), client)
        told.append(made.vectors_PD)
    assert np.array_equal(*told)
    assert sorted(s.mechanism for s in place.ledger.spends(client.id)) == [LAPLACE, GAUSSIAN]


def test_a_deployed_client_answers_again_with_new_noise_and_pays_again() -> None:
    place = Protection(PRIVATE, deployed=True)
    told = []
    for _ in range(2):
        client, guard = guarded(place)
        told.append(guard.subspaces(client.train.x, client).vectors_PD)
        guard.release(trained(client), client)
    assert not np.array_equal(*told)
    assert len(place.ledger.spends(client.id)) == 4


def test_several_views_share_one_epsilon() -> None:
    place = Protection(PRIVATE)
    client, guard = guarded(place)
    for view in ("pixels", "shape", "texture"):
        guard.subspaces(client.train.x, client, view=view, num_views=3)
    spends = [e.spend for e in guard.entries if e.mechanism == GAUSSIAN]
    assert len(spends) == 3
    assert 1 / math.sqrt(sum(1 / s.noise**2 for s in spends)) == pytest.approx(1.9938, abs=1e-3)


def test_vectors_that_nobody_protected_do_not_leave() -> None:
    @message
    class Bare:
        vectors: np.ndarray = sensitive("subspaces")

    client, guard = guarded(Protection(PRIVATE))
    with pytest.raises(Refused, match="nobody has protected"):
        guard.release(Bare(vectors=np.ones((1, 6))), client)


def test_counts_that_are_no_whole_numbers_do_not_leave() -> None:
    @message
    class Shares:
        shares: np.ndarray = sensitive("counts")

    client, guard = guarded(Protection(PRIVATE))
    with pytest.raises(Refused, match="whole counts"):
        guard.release(Shares(shares=np.array([0.25, 0.75])), client)


def test_a_histogram_of_another_kind_gets_noise_of_its_own() -> None:
    @message
    class Nearest:
        counts: np.ndarray = sensitive("counts")

    place = Protection(PRIVATE)
    client, guard = guarded(place)
    exact = np.array([200, 100])
    found = guard.release(Nearest(counts=exact), client).counts
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() < 60
    assert [s.mechanism for s in place.ledger.spends(client.id)] == [LAPLACE]


def test_a_node_answers_masked_sums_over_its_own_tasks_only() -> None:
    place = Protection(PRIVATE, tasks=(train_task,))
    assert place.task(train_task.address) is train_task
    with pytest.raises(Refused, match="does not know"):
        place.task("os:system")


@pytest.mark.parametrize(
    "options",
    [
        {"level": "off", "update": UpdatePrivacy(mode="secagg")},
        {"level": "strict", "update": UpdatePrivacy(mode="secagg")},
        {"level": "everything"},
    ],
)
def test_settings_that_would_have_no_effect_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        PrivacyOptions(**options)


def test_noise_follows_the_settings() -> None:
    exact = PrivacyOptions(
        level="private",
        counts=CountPrivacy(epsilon=64.0),
        subspaces=SubspacePrivacy(epsilon=64.0),
        budget=1e9,
    )
    client, guard = guarded(Protection(exact))
    assert np.abs(guard.histogram(client) - client.train.counts()).max() <= 1
