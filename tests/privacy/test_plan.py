# SPDX-License-Identifier: Apache-2.0
"""What the plan says before a run, against sums by hand."""

import pytest

from feddag.experiment.lifecycle import LifecycleConfig
from feddag.privacy.accounting import GAUSSIAN, LAPLACE, Spend, gaussian_sigma, total_epsilon
from feddag.privacy.plan import Plan
from tests.contracts.toys import toy

SCENARIO = {"drift": [{"at": 3, "clients": 0.5, "kind": "feature"}]}


def plan(**changes: object) -> Plan:
    found = toy("feddag", privacy="private", num_rounds=20, **changes).privacy_plan()
    assert found is not None
    return found


def epsilon(signatures: int) -> float:
    one = [Spend(LAPLACE, 0.5), Spend(GAUSSIAN, gaussian_sigma(2.0, 1e-5))]
    return total_epsilon(one * signatures, 1e-5)


def test_without_drifts_everybody_signs_once() -> None:
    found = plan()
    assert found.worst == found.epsilon == pytest.approx(epsilon(1))
    assert not found.warnings


def test_signatures_after_alarms_are_in_the_budget_before_the_run() -> None:
    found = plan(scenario=SCENARIO, lifecycle={"every": 2, "cooldown": 0})
    assert found.epsilon == pytest.approx(epsilon(1)), "most clients never raise an alarm"
    assert found.worst == pytest.approx(epsilon(11))
    lasts = next(k for k in range(11) if epsilon(2 + k) > 8)
    (warning,) = found.warnings
    assert f"at most 10 times in this run; its budget of 8 lasts for {lasts} new signatures" in warning


@pytest.mark.parametrize("lifecycle", [{"response": "none"}, {"detector": "none"}])
def test_who_does_not_answer_alarms_signs_nobody_again(lifecycle: dict[str, str]) -> None:
    assert plan(scenario=SCENARIO, lifecycle=lifecycle).worst == pytest.approx(epsilon(1))


def test_alarms_of_one_client_are_counted_by_hand() -> None:
    config = LifecycleConfig(every=5, cooldown=2)
    # Checks at 5, 10, …; after the alarm of round 5 a client rests until round 20, then until 35.
    assert [config.most_alarms(n) for n in (4, 5, 19, 20, 34, 35)] == [0, 1, 1, 2, 2, 3]


def test_drift_alarms_are_listed_where_clients_raise_them() -> None:
    told = "A client whose data have changed says so without noise."
    found = plan(scenario=SCENARIO)
    assert "drift alarms" in [release.what for release in found.releases]
    assert told in found.plain()["not_covered"]
    for quiet in (plan(), plan(scenario=SCENARIO, lifecycle={"detector": "none"})):
        assert "drift alarms" not in [release.what for release in quiet.releases]
        assert told not in quiet.plain()["not_covered"]


def test_results_leave_in_every_evaluation_whatever_the_share_of_clients_in_a_round() -> None:
    (scores,) = (release for release in plan().releases if release.kind == "scores")
    assert scores.times == "in every evaluation"
