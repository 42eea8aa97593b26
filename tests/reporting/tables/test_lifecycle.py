# SPDX-License-Identifier: Apache-2.0
"""What the log says about joins, drifts and moves, checked by hand."""

from typing import Any

import pytest

from feddag.reporting.tables.lifecycle import Story, lifecycle_summary

A, B, C, D, E = "abcde"


def standing(round_: int, clusters: dict[str, int], planted: dict[str, int]) -> dict[str, Any]:
    present = sorted({*clusters, *planted})
    return {"event": "standing", "round": round_, "present": present, "waiting": [], "clusters": clusters,
            "planted": planted}  # fmt: skip


def scored(round_: int, **accuracy: float) -> dict[str, Any]:
    return {"event": "evaluation", "round": round_,
            "test_clients": {c: {"accuracy": a} for c, a in accuracy.items()}}  # fmt: skip


def story() -> Story:
    before = {A: 0, B: 0, C: 1, D: 1}
    return Story.of(
        [
            standing(1, before, before),
            scored(1, a=0.9, b=0.9, c=0.8, d=0.8),
            {"event": "drift", "round": 3, "change": "label", "done": 3, "clients": [A, C]},
            {"event": "drift", "round": 3, "change": "quantity", "done": 3, "clients": [B]},
            {"event": "check", "round": 5, "clients": 4, "alarms": [A]},
            {"event": "moved", "round": 5, "clients": {A: [0, 1]}},
            standing(5, {**before, A: 1}, {**before, A: 1, C: 0}),
            scored(5, a=0.5, b=0.9, c=0.5, d=0.8),
            {"event": "newcomers", "round": 6, "clients": [E]},
            standing(6, {**before, A: 1, E: 0}, {**before, A: 1, C: 0, E: 0}),
            {"event": "check", "round": 10, "clients": 4, "alarms": [C, D]},
            {"event": "moved", "round": 10, "clients": {C: [1, 0]}},
            {
                "event": "recluster",
                "round": 10,
                "agreement": 1.0,
                "gain": 0.0,
                "clusters": 2,
                "accepted": False,
            },
            standing(10, {**before, A: 1, C: 0, E: 0}, {**before, A: 1, C: 0, E: 0}),
            scored(10, a=0.9, b=0.9, c=0.9, d=0.8, e=0.7),
        ]
    )


def test_detection_counts() -> None:
    summary = lifecycle_summary(story())
    assert summary is not None
    assert (summary["drifts"], summary["detected"], summary["recall"]) == (2, 2, 1.0)
    assert summary["precision"] == pytest.approx(2 / 3)
    assert summary["delay"] == (2 + 7) / 2
    assert (summary["false_alarms"], summary["client_checks"]) == (1, 8)
    assert summary["false_alarms_per_1000"] == 125


def test_places_and_clusters() -> None:
    summary = lifecycle_summary(story())
    assert summary is not None
    assert summary["reassigned_right"] == 1.0
    assert (summary["newcomers"], summary["newcomers_right"]) == (1, 1.0)
    assert summary["newcomers_right_final"] == 1.0
    assert (summary["moved"], summary["reclusterings"], summary["looks"]) == (2, 0, 1)
    assert summary["ari_final"] == 1.0
    assert summary["ari"]["1"] == 1.0 > summary["ari"]["5"]


def test_accuracy_of_those_who_changed() -> None:
    summary = lifecycle_summary(story())
    assert summary is not None
    assert summary["accuracy"]["drifted"] == {"1": 0.85, "5": 0.5, "10": 0.9}
    assert summary["accuracy"]["new"] == {"10": 0.7}
    assert summary["accuracy"]["untouched"] == {"1": 0.85, "5": 0.85, "10": 0.85}
    assert summary["rounds_to_recover"] == 7


def test_the_row_of_a_round_counts_what_came_since_the_row_before() -> None:
    told = story()
    assert told.row(5, 1) == {"present": 4, "waiting": 0, "clusters": 2, "ari": round(told.ari(5) or 0, 4),
                              "alarms": 1, "moved": 1}  # fmt: skip
    assert told.row(10, 5)["alarms"] == 2
    assert told.row(7, 5) == {}


def test_a_run_in_which_nothing_can_change_has_no_summary() -> None:
    assert lifecycle_summary(Story.of([scored(1, a=0.5)])) is None


def test_a_drift_after_the_last_check_counts_for_nothing() -> None:
    told = story()
    told.drifts.append((B, 11, 11))
    summary = lifecycle_summary(told)
    assert summary is not None
    assert summary["drifts"] == 2


def test_a_second_alarm_in_a_slow_drift_is_right_and_one_after_it_is_not() -> None:
    slow = Story.of(
        [
            standing(r, {A: 0, B: 0}, {A: 0, B: 0})
            for r in (5, 10, 15, 30)
        ]
        + [
            {"event": "drift", "round": 6, "change": "concept", "done": 16, "clients": [A]},
            {"event": "check", "round": 10, "clients": 2, "alarms": [A]},
            {"event": "check", "round": 30, "clients": 2, "alarms": [A]},  # its reference is of round 10
            {"event": "check", "round": 50, "clients": 2, "alarms": [A]},  # nothing changed since round 30
        ]
    )  # fmt: skip
    summary = lifecycle_summary(slow)
    assert summary is not None
    assert (summary["drifts"], summary["detected"], summary["delay"]) == (1, 1, 4)
    assert (summary["repeated_alarms"], summary["false_alarms"]) == (1, 1)
    assert summary["precision"] == pytest.approx(2 / 3)
