# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from feddag.core.deployment import Deployment, LocalTraining, at_round, requests_at_round
from feddag.core.message import message, public
from feddag.core.params import Params


def model(encoder: float, head: float) -> Params:
    return Params.of({"primary.w": torch.tensor([encoder]), "head.w": torch.tensor([head])})


def test_remembered_parts_replace_their_namesakes_in_the_first_model() -> None:
    deployment = Deployment(models=(model(1, 1), model(2, 2)), weights=(0.5, 0.5), remembered="own head")
    recalled = deployment.recall({"own head": model(9, 9).select("head.")})
    assert recalled.models == (model(1, 9), model(2, 2))


def test_without_memory_the_very_same_models_are_used() -> None:
    deployment = Deployment(models=(model(1, 1),), remembered="own", remembered_weights="shares")
    recalled = deployment.recall({})
    assert recalled.models[0] is deployment.models[0]
    assert (recalled.remembered, recalled.remembered_weights) == ("", "")


def test_remembered_weights_replace_the_general_ones() -> None:
    general = Deployment(models=(model(1, 1), model(2, 2)), weights=(0.5, 0.5), remembered_weights="shares")
    assert general.recall({"shares": np.array([0.1, 0.9])}).weights == (0.1, 0.9)


def test_weights_of_models_that_are_gone_are_left_out() -> None:
    rest = Deployment(
        models=(model(1, 1), model(2, 2)),
        weights=(0.5, 0.5),
        remembered_weights="shares",
        remembered_entries=(0, 2),
    )
    assert rest.recall({"shares": np.array([0.1, 0.6, 0.3])}).weights == (0.1, 0.3)
    assert rest.recall({"shares": np.array([0.0, 1.0, 0.0])}).weights == (0.5, 0.5)


def rates(rounds: int, **settings: object) -> list[float]:
    local = LocalTraining(lr=0.8, **settings)  # type: ignore[arg-type]
    return [local.lr_at(t, rounds) for t in range(1, rounds + 1)]


def test_without_a_schedule_the_learning_rate_stays():
    assert rates(3) == [0.8, 0.8, 0.8]


def test_the_step_schedule_multiplies_every_so_many_rounds():
    assert rates(7, lr_schedule="step", lr_decay=0.5, lr_step=3) == [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2]


def test_the_cosine_schedule_falls_to_its_last_rate_along_half_a_wave():
    # 0.8·(0.1 + 0.9·(1 + cos(π·k/4))/2) for k = 0…4
    expected = [0.8, 0.6945584412271571, 0.44, 0.18544155877284287, 0.08]
    assert rates(5, lr_schedule="cosine") == pytest.approx(expected, rel=1e-12)
    assert rates(1, lr_schedule="cosine") == [0.8]


def test_a_warm_up_rises_in_equal_steps_and_the_schedule_begins_after_it():
    assert rates(6, lr_warmup=3) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    stepped = rates(6, lr_warmup=1, lr_schedule="step", lr_decay=0.5, lr_step=2)
    assert stepped == pytest.approx([0.4, 0.8, 0.8, 0.4, 0.4, 0.2])
    waved = rates(4, lr_warmup=1, lr_schedule="cosine", lr_decay=0.5)
    assert waved == pytest.approx([0.4, 0.8, 0.6, 0.4])
    assert rates(2, lr_warmup=5, lr_schedule="cosine") == pytest.approx([0.8 / 6, 1.6 / 6])


def test_the_start_of_a_run_has_the_plain_rate_and_rounds_after_the_last_keep_the_last_rate():
    local = LocalTraining(lr=0.8, lr_schedule="cosine", lr_warmup=2)
    assert local.lr_at(0, 10) == 0.8
    assert local.lr_at(11, 10) == local.lr_at(10, 10) == pytest.approx(0.08)


def test_an_unknown_schedule_or_optimiser_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="lr_schedule = 'wave': expected one of constant, cosine, step"):
        LocalTraining(lr_schedule="wave")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="optimiser = 'lion': expected one of sgd, adam, adamw"):
        LocalTraining(optimiser="lion")  # type: ignore[arg-type]


@message
class Inner:
    local: LocalTraining | None = None


@message
class Outer:
    params: Params = public()
    inner: Inner = Inner()
    several: tuple[LocalTraining, ...] = ()
    named: dict[str, Inner] = public(default_factory=dict)


@message
class Fixed:
    scheduled: ClassVar[bool] = False
    local: LocalTraining


STEPS = LocalTraining(lr=0.8, lr_schedule="step", lr_decay=0.5, lr_step=1)


def test_every_training_inside_a_request_gets_the_rate_of_the_round():
    plain = LocalTraining(lr=0.3)
    request = Outer(
        params=model(1.0, 2.0),
        inner=Inner(local=STEPS),
        several=(plain, replace(STEPS, lr=0.4)),
        named={"a": Inner(), "b": Inner(local=STEPS)},
    )
    resolved = at_round(request, 3, 10)
    assert resolved.inner.local == LocalTraining(lr=0.2, lr_decay=0.5, lr_step=1)
    assert [local.lr for local in resolved.several] == [0.3, 0.1]
    assert resolved.several[0] is plain
    assert resolved.named["b"].local.lr == 0.2
    assert resolved.named["a"] is request.named["a"]
    assert resolved.params is request.params
    assert request.inner.local is STEPS, "the request that was given is untouched"
    assert at_round(resolved, 3, 10) is resolved, "the rate of a round is applied once"


def test_a_request_without_a_schedule_is_the_same_object():
    request = Outer(params=model(1.0, 2.0), inner=Inner(local=LocalTraining()), several=(LocalTraining(),))
    assert at_round(request, 3, 10) is request


def test_a_request_may_say_that_its_training_is_the_same_in_all_rounds():
    request = Fixed(local=STEPS)
    assert at_round(request, 3, 10) is request


def test_clients_that_shared_a_request_share_it_afterwards():
    one, other = Inner(local=STEPS), Inner(local=replace(STEPS, lr=0.4))
    resolved = requests_at_round({"a": one, "b": other, "c": one}, 2, 10)
    assert resolved["a"] is resolved["c"]
    assert [resolved[c].local.lr for c in "abc"] == [0.4, 0.2, 0.4]
    assert list(resolved) == ["a", "b", "c"]
