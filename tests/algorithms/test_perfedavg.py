# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from feddag.algorithms.perfedavg import MetaTrain, PerFedAvg, meta_batches, meta_gradient, meta_train
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.learning.losses import cross_entropy
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork
from feddag.learning.one_model import OneModel
from feddag.learning.optimisers import MomentumStep
from feddag.learning.sgd import EVERYTHING, batches
from tests.algorithms.helpers import fresh
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client

A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
ROWS = [torch.arange(1)] * 3
LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.05, momentum=0.0, weight_decay=0.01)


def quadratic(where: Tensor, rows: Tensor) -> Tensor:
    """∇ of ½ wᵀAw."""
    return A @ where


def test_hessian_free_steps_are_exact_on_a_quadratic() -> None:
    w, alpha = torch.tensor([1.0, -2.0], dtype=torch.float64), 0.1
    u = w - alpha * A @ w
    exact = (torch.eye(2) - alpha * A) @ (A @ u)  # (I − αA)∇f(u)
    torch.testing.assert_close(meta_gradient(quadratic, w, ROWS, alpha, delta=1e-3), exact)


def test_first_order_steps_leave_the_hessian_out() -> None:
    w, alpha = torch.tensor([1.0, -2.0], dtype=torch.float64), 0.1
    first_order = meta_gradient(quadratic, w, ROWS, alpha, delta=0.0)
    torch.testing.assert_close(first_order, A @ (w - alpha * A @ w))


def test_the_outer_step_starts_before_the_inner_one() -> None:
    # f = ½w², w = 1, α = 0.5, β = 0.1: u = 0.5, w ← 1 − 0.1·0.5 = 0.95 (from u it would be 0.45)
    w = torch.tensor([1.0])
    w = w - 0.1 * meta_gradient(lambda where, rows: where, w, ROWS, 0.5, 0.0)
    assert w.item() == pytest.approx(0.95)


def sgd_on(rows_list: list[Tensor], lr: float) -> Params:
    """Plain SGD of the toy client over the given batches."""
    site = blob_site()
    client = toy_client(site)
    model = LoadedNetwork(site.network("single"), fresh(), EVERYTHING)
    step = MomentumStep(model, replace(LOCAL, lr=lr))
    for rows in rows_list:
        step(model.gradient(cross_entropy(model, Batch(client.train, rows, NOTHING_KNOWN))))
    return model.params()


def test_without_inner_steps_it_is_sgd_with_as_many_steps() -> None:
    client = toy_client(blob_site())
    request = MetaTrain(params=fresh(), alpha=0.0, beta=0.02, delta=0.0, local=LOCAL)
    expected = sgd_on([rows for _, rows in batches(30, LOCAL, client.seed)], lr=0.02)
    got = fresh() + meta_train(request, client).update
    torch.testing.assert_close(got.vector, expected.vector, atol=1e-6, rtol=0)


def test_hf_uses_three_batches_a_step_and_fo_two_and_both_take_as_many_steps_as_sgd() -> None:
    client = toy_client(blob_site())
    for number in (2, 3):
        groups = list(meta_batches(client, LOCAL, number))
        assert [len(group) for group in groups] == [number] * (4 * LOCAL.local_epochs)
        assert not torch.equal(groups[0][0].sort().values, groups[0][1].sort().values)


def test_a_client_with_a_single_batch_still_takes_a_step() -> None:
    client = toy_client(blob_site())
    large = replace(LOCAL, batch_size=64)
    assert [len(group) for group in meta_batches(client, large, 3)] == [3, 3]
    request = MetaTrain(params=fresh(), alpha=0.1, beta=0.1, delta=1e-3, local=large)
    assert meta_train(request, client).update.norm() > 0


def test_hf_and_fo_differ_through_the_hessian_alone() -> None:
    client = toy_client(blob_site())

    def move(alpha: float, delta: float) -> Params:
        local = replace(LOCAL, batch_size=64)  # one batch, so both variants see the same samples
        request = MetaTrain(params=fresh(), alpha=alpha, beta=0.1, delta=delta, local=local)
        return meta_train(request, client).update

    assert move(0.0, 0.0) == move(0.0, 1e-3), "α = 0 takes the Hessian away"
    assert move(0.1, 0.0) != move(0.1, 1e-3)


def test_clients_adapt_before_use_with_alpha_and_as_long_as_a_round_of_training() -> None:
    per = PerFedAvg(local=LocalTraining(lr=0.3, local_epochs=7), alpha=0.02)
    adapt = per.deploy(OneModel(params=fresh()), "c").adapt
    assert adapt == replace(per.local, lr=0.02)
    short = replace(per, adaptation_epochs=1).deploy(OneModel(params=fresh()), "c").adapt
    assert short is not None
    assert short.local_epochs == 1
    assert PerFedAvg(adaptation_epochs=0).deploy(OneModel(params=fresh()), "c").adapt is None


def test_a_meta_step_is_as_long_as_a_step_of_training_unless_beta_is_set() -> None:
    plain, slow = (play(toy("perfedavg", settings), rounds=1).states for settings in ({}, {"beta": 0.001}))
    moved = [(states[1].params - states[0].params).norm() for states in (plain, slow)]
    assert moved[0] > 20 * moved[1]


def test_uniform_weighting_ignores_the_number_of_samples() -> None:
    by_size, equal = (
        play(toy("perfedavg", {"beta": 0.05, "weighting": w}), rounds=1).states[1].params
        for w in ("examples", "uniform")
    )
    assert by_size != equal
