# SPDX-License-Identifier: Apache-2.0
"""What newcomers may and may not do; that they are served well is one of `feddag.contracts.checks`."""

from functools import cache

from feddag.core import codec
from tests.contracts.toys import Trace, every_algorithm, play, toy

ROUNDS = 3


@cache
def longer(name: str) -> Trace:
    return play(toy(name), rounds=ROUNDS)


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
