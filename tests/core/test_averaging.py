# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.core.averaging import mean, step
from feddag.core.errors import InvalidMessage
from feddag.core.params import Params
from feddag.learning.train import Trained


def params(*values):
    return Params.of({"w": torch.tensor(values, dtype=torch.float32)})


def test_the_step_adds_the_example_weighted_mean_update():
    replies = {
        "b": Trained(update=params(4.0, 0.0), examples=1),
        "a": Trained(update=params(0.0, 8.0), examples=3),
    }
    assert step(params(1.0, 1.0), replies)["w"].tolist() == [2.0, 7.0]


def test_nobody_answered_or_nobody_has_examples_leaves_every_bit():
    w = params(1.0, 2.0)
    assert step(w, {}) is w
    assert step(w, {"a": Trained(update=params(5.0, 5.0), examples=0)}) is w


@given(st.permutations(list("abcdefg")))
@settings(max_examples=20, deadline=None)
def test_the_order_in_which_replies_arrive_changes_no_bit(order):
    replies = {
        name: Trained(
            update=params(*(10.0 ** (ord(name) % 5) * torch.arange(1.0, 4.0) / 3).tolist()),
            examples=ord(name),
        )
        for name in order
    }
    reference = {name: replies[name] for name in sorted(replies)}
    assert step(params(0.1, 0.2, 0.3), replies) == step(params(0.1, 0.2, 0.3), reference)


def test_the_mean_is_taken_in_float64_and_rounded_once():
    parts = [params(1e8), params(1.0), params(-1e8)]
    assert mean(parts)["w"].item() == pytest.approx(1 / 3, rel=1e-6)


@pytest.mark.parametrize("weights", [[0, 0, 0], [1, -1, 3]])
def test_weights_without_a_positive_sum_or_below_zero_are_refused(weights):
    with pytest.raises(InvalidMessage, match="positive weight"):
        mean([params(1.0)] * 3, weights)


def test_updates_of_another_layout_are_refused_and_never_broadcast():
    with pytest.raises(InvalidMessage, match="layout"):
        mean([params(1.0, 2.0), params(1.0)])
