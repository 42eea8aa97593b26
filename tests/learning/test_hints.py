# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from feddag.learning.hints import diverged, left_out, stalled


def test_a_loss_that_stays_near_chance_gets_a_hint() -> None:
    assert stalled([2.29, 2.26], 10) == (
        "loss 2.26 is near chance (2.30): raise training.lr or training.local_epochs, "
        "or lower training.batch_size"
    )
    assert "(0.69)" in stalled([0.70, 0.69], 2)


@pytest.mark.parametrize(
    "losses",
    [
        [2.26, 1.40],  # learns
        [2.30, 2.20],  # near chance, but on its way
        [1.9, 1.9],  # stands still elsewhere
        [9.0, 9.0],  # far above chance: sure of itself and wrong, which a larger lr makes worse
        [math.nan, math.nan],
    ],
)
def test_other_losses_get_none(losses: list[float]) -> None:
    assert stalled(losses, 10) == ""


def test_the_hint_is_given_once_and_not_after_a_single_evaluation() -> None:
    losses = [2.3] * 5
    assert [bool(stalled(losses[:n], 10)) for n in range(6)] == [False, False, True, False, False, False]


def test_a_single_class_has_no_chance_to_be_near_of() -> None:
    assert stalled([0.0, 0.0], 1) == ""


def test_a_training_that_diverged_is_told_to_lower_the_learning_rate() -> None:
    gone = "field 'update': expected finite numbers, got nan at position 7"
    huge = "field 'update': expected numbers from -1e+12 to 1e+12, got -2.7e+14"
    assert "training diverged: 2 of 4 clients" in diverged([gone, huge], 4)
    assert "lower training.lr" in diverged([gone], 1)
    assert diverged([gone], 3) == ""  # one client's own trouble
    assert diverged(["power cut", "power cut"], 2) == ""
    assert diverged([], 0) == ""


def test_clusters_without_enough_clients_for_a_secure_sum_are_told_once() -> None:
    why = "1 of at least 3 clients took part"
    notes = {"refused_sums": [{"group": group, "why": why} for group in (0, 4, 4)]}
    assert "round 3: 2 clusters learned nothing" in left_out(3, notes)
    assert "raise fraction_train" in left_out(3, notes)
    small = {"refused_sums": [{"group": 1, "why": "the cluster has 2 clients, a sum needs 3"}]}
    assert "1 cluster learned nothing" in left_out(3, small)
    assert left_out(3, small).endswith("the cluster has 2 clients, a sum needs 3")
    assert left_out(2, notes) == left_out(4, notes) == left_out(3, {}) == ""
