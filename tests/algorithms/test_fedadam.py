# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from feddag.algorithms.fedadam import FedAdam, State
from feddag.core.params import Params
from feddag.learning.train import Trained
from tests.algorithms.helpers import FixedMeans


def params(weight: float, variance: float) -> Params:
    return Params.of({"w": torch.tensor([weight]), "var": torch.tensor([variance])}, ["var"])


def test_two_rounds_by_hand() -> None:
    algorithm = FedAdam(server_lr=0.1, beta1=0.5, beta2=0.75, tau=0.5)
    updates = [Trained(update=params(u, -0.25), examples=3) for u in (2.0, -1.0)]
    server = FixedMeans(updates)
    state = State(params=params(1.0, 1.0), first=params(0.0, 0.0), second=params(0.25, 0.25))
    state = algorithm.round(state, server)  # type: ignore[arg-type]
    # m = 0.5·2 = 1, v = 0.75·0.25 + 0.25·4 = 1.1875
    w = 1.0 + 0.1 * 1.0 / (math.sqrt(1.1875) + 0.5)
    assert float(state.params["w"]) == pytest.approx(w, rel=1e-6)
    state = algorithm.round(state, server)  # type: ignore[arg-type]
    # m = 0.5·1 − 0.5·1 = 0, so the model stays; v = 0.75·1.1875 + 0.25·1
    assert float(state.params["w"]) == pytest.approx(w, rel=1e-6)
    assert float(state.second["w"]) == pytest.approx(1.140625, rel=1e-6)
    assert float(state.params["var"]) == 0.5, "1 − 0.25 − 0.25: buffers are the clients' mean"


def test_without_decay_the_step_is_the_learning_rate_whatever_the_length_of_the_update() -> None:
    algorithm = FedAdam(server_lr=0.1, beta1=0.0, beta2=0.0, tau=1e-9)
    for length in (1e-3, 1.0, 50.0):
        state = State(params=params(1.0, 1.0), first=params(0.0, 0.0), second=params(0.0, 0.0))
        state = algorithm.round(state, FixedMeans([Trained(update=params(length, 0.0), examples=1)]))  # type: ignore[arg-type]
        assert float(state.params["w"]) == pytest.approx(1.1, rel=1e-5)
