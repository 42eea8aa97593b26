# SPDX-License-Identifier: Apache-2.0
"""Every method learns something, and newcomers are served."""

from functools import cache

from feddag.core import codec
from tests.contracts.toys import Trace, every_algorithm, play, toy

CHANCE = 1 / 4
ROUNDS = 8
# A control variate is the gradient of a client's last round: with half the clients per round it comes late.
MORE_ROUNDS = {"scaffold": 16}


@cache
def longer(name: str) -> Trace:
    return play(toy(name), rounds=MORE_ROUNDS.get(name, ROUNDS))


@every_algorithm
def test_it_beats_chance(name: str) -> None:
    prepared = toy(name)
    assert longer(name).accuracy(prepared.clients) > CHANCE + 0.2


@every_algorithm
def test_newcomers_beat_chance(name: str) -> None:
    newcomers = toy(name).federation.newcomers
    assert len(newcomers) == 2
    assert longer(name).accuracy(newcomers) > CHANCE + 0.2


@every_algorithm
def test_onboarding_asks_nobody_but_newcomers(name: str) -> None:
    newcomers = set(toy(name).federation.newcomers)
    for asked in longer(name).asked:
        if asked.purpose == "newcomers":
            assert set(asked.answers) <= newcomers
        elif asked.purpose == "round":
            assert not set(asked.answers) & newcomers


@every_algorithm
def test_newcomers_change_nothing_for_the_others(name: str) -> None:
    prepared, trace = toy(name), longer(name)
    before, after = trace.states[-2:]
    for client in prepared.clients:
        deployed = [codec.digest(prepared.algorithm.deploy(state, client)) for state in (before, after)]
        assert deployed[0] == deployed[1]
