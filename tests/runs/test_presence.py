# SPDX-License-Identifier: Apache-2.0
"""Scenarios: who is there in which round, and what is impossible."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.experiment.scenario import ScenarioConfig
from feddag.reporting.tables.log import read_events
from feddag.runs.presence import PlannedPresence, plan_presence
from feddag.runs.simulate import resume, run
from tests.contracts.toys import every_algorithm, experiment

IDS = tuple(f"c{i:03d}" for i in range(10))


def plan(
    clients: tuple[str, ...] = IDS, num_rounds: int = 20, seed: int = 1, **events: Any
) -> PlannedPresence:
    scenario = ScenarioConfig.model_validate(events)
    return plan_presence(scenario, clients, num_rounds, Seed(seed))


def test_without_events_everybody_is_always_there() -> None:
    presence = plan()
    assert all(presence.present(round_) == IDS for round_ in range(22))


def test_a_client_joins_leaves_and_comes_back_in_the_rounds_that_are_written() -> None:
    presence = plan(
        join=[{"at": 5, "clients": ["c001"]}], leave=[{"at": 8, "clients": ["c001", "c002"], "back": 11}]
    )
    rounds = {c: [r for r in range(21) if c in presence.present(r)] for c in IDS[:3]}
    assert rounds["c000"] == list(range(21))
    assert rounds["c001"] == [5, 6, 7, *range(11, 21)]
    assert rounds["c002"] == [*range(8), *range(11, 21)]


def test_a_share_is_drawn_by_the_seed_and_nobody_is_taken_by_two_events() -> None:
    events = {
        "join": [{"at": 3, "clients": 0.3}, {"at": 6, "clients": 0.2}],
        "leave": [{"at": 9, "clients": 0.2}],
    }
    first, again, other = plan(**events), plan(**events), plan(seed=2, **events)
    assert first == again != other
    assert sorted(first.joins.values()) == [3, 3, 3, 6, 6]
    assert len(first.absences) == 2


def test_newcomers_of_the_partition_come_after_the_last_round() -> None:
    presence = plan_presence(ScenarioConfig(), IDS[:8], 20, Seed(1), newcomers=IDS[8:])
    assert presence.present(20) == IDS[:8]
    assert presence.present(21) == IDS


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ({"join": [{"at": 21, "clients": 0.5}]}, r"scenario.join.0.at = 21: the run has only 20 rounds"),
        ({"join": [{"at": 3, "clients": ["nobody"]}]}, r"expected ids such as 'c000', got nobody"),
        ({"join": [{"at": 3, "clients": []}]}, r"expected ids such as 'c000', got none"),
        ({"join": [{"at": 3, "clients": 0.01}]}, r"this is 0 of 10 clients, expected 1 to 10"),
        ({"join": [{"at": 3, "clients": 1.0}]}, r"all clients join later; at least one must be there"),
        ({"join": [{"at": 3, "clients": ["c001"]}] * 2}, r"client 'c001' joins twice"),
        (
            {"join": [{"at": 6, "clients": ["c001"]}], "leave": [{"at": 5, "clients": ["c001"]}]},
            r"scenario.leave.0: client 'c001' would leave before it joins",
        ),
        ({"leave": [{"at": 6, "clients": 0.2, "back": 6}]}, r"back = 6: expected a round after at = 6"),
        ({"leave": [{"at": 6, "clients": 0.2, "back": 30}]}, r"back = 30: the run has only 20 rounds"),
        ({"leave": [{"at": 6, "clients": 0.6}, {"at": 7, "clients": 0.6}]}, r"expected 1 to 4, the clients"),
    ],
)
def test_the_impossible_is_refused_in_one_sentence(events: dict, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        plan(**events)


@settings(max_examples=60, deadline=None)
@given(
    joins=st.lists(st.tuples(st.integers(1, 20), st.floats(0.05, 0.3)), max_size=3),
    leaves=st.lists(st.tuples(st.integers(1, 18), st.floats(0.05, 0.3), st.integers(1, 2)), max_size=3),
)
def test_whatever_is_planned_somebody_is_there_at_the_start_and_ids_are_known(
    joins: list, leaves: list
) -> None:
    try:
        presence = plan(
            join=[{"at": at, "clients": share} for at, share in joins],
            leave=[{"at": at, "clients": share, "back": at + more} for at, share, more in leaves],
        )
    except InvalidInput:
        return
    for round_ in range(22):
        there = presence.present(round_)
        assert set(there) <= set(IDS)
        assert list(there) == sorted(set(there))
    assert presence.present(0)
    assert len(presence.present(20)) == 10, "everybody has joined and is back"


SCENARIO = {
    "join": [{"at": 2, "clients": ["c001", "c002"]}],
    "leave": [{"at": 2, "clients": ["c000"], "back": 4}, {"at": 3, "clients": ["c003"]}],
}


class Killed(BaseException):
    """Stands for a power cut."""


@every_algorithm
def test_a_run_with_a_scenario_that_is_killed_and_resumed_gives_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    described = experiment(name, scenario=SCENARIO, fraction_train=1.0, partition={"kind": "auto"})

    def kill(event: dict) -> None:
        if event["event"] == "presence" and event["round"] == 3:
            raise Killed

    whole, cut = run(described, folder=tmp_path / "whole"), tmp_path / "cut"
    with pytest.raises(Killed):
        run(described, folder=cut, watch=kill)
    resume(cut)
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, cut)]
    assert results[0]["state_digest"] == results[1]["state_digest"]
    assert results[0]["final"] == results[1]["final"]
    changes = [e for e in read_events(cut / "events.jsonl") if e["event"] == "presence"]
    assert [(e["round"], e["joined"], e["returned"], e["left"]) for e in changes] == [
        (2, ["c001", "c002"], [], ["c000"]),
        (3, [], [], ["c003"]),
        (4, [], ["c000"], []),
    ]
