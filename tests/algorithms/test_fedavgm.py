# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from feddag.algorithms.fedavgm import FedAvgM, State
from feddag.core.params import Params
from feddag.learning.train import Trained
from tests.algorithms.helpers import FixedMeans


def params(weight: float, variance: float) -> Params:
    return Params.of({"w": torch.tensor([weight]), "var": torch.tensor([variance])}, ["var"])


def test_momentum_adds_up_over_rounds_and_buffers_are_the_clients_mean() -> None:
    algorithm = FedAvgM(momentum=0.5, server_lr=2.0)
    server = FixedMeans([Trained(update=params(4.0, -0.25), examples=3)] * 2)
    state = State(params=params(1.0, 1.0), velocity=params(0.0, 0.0))
    state = algorithm.round(state, server)  # type: ignore[arg-type]
    assert state.params == params(1.0 + 2 * 4.0, 0.75)  # v = 4
    state = algorithm.round(state, server)  # type: ignore[arg-type]
    assert state.params == params(9.0 + 2 * 6.0, 0.5)  # v = 0.5·4 + 4


def test_a_round_that_nobody_answered_keeps_model_and_momentum() -> None:
    state = State(params=params(1.0, 1.0), velocity=params(0.5, 0.0))
    assert FedAvgM().round(state, FixedMeans([None])) is state  # type: ignore[arg-type]


def test_a_variance_stays_positive_whatever_the_momentum() -> None:
    algorithm = FedAvgM(momentum=0.9)
    state = State(params=params(0.0, 1.0), velocity=params(0.0, 0.0))
    for step in (-0.5, -0.3, -0.1):
        state = algorithm.round(state, FixedMeans([Trained(update=params(1.0, step), examples=1)]))  # type: ignore[arg-type]
    assert float(state.params["var"]) == pytest.approx(0.1)
