# SPDX-License-Identifier: Apache-2.0
"""Local training: what it is, what it costs, and newcomers."""

import torch

from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.local import Local
from tests.algorithms.toys import LOCAL, SETTINGS, Toy, two_groups, with_newcomers


def test_one_client_alone_is_fedavg_with_that_client() -> None:
    alone, averaged = Toy(two_groups(1)), Toy(two_groups(1))
    alone.play(Local(local=LOCAL), 3)
    state = averaged.play(FedAvg(local=LOCAL), 3)
    torch.testing.assert_close(
        alone.engine.memories.of["c0"]["model"].vector, state.params.vector, atol=1e-6, rtol=0
    )


def test_local_training_sends_the_common_start_once_and_no_model_back() -> None:
    toy = Toy(two_groups(2))
    state = toy.play(Local(local=LOCAL), 3)
    assert [down for _, down, _ in toy.traffic] == [
        2 * (4 * state.params.layout.size + SETTINGS),
        2 * SETTINGS,
        2 * SETTINGS,
    ]
    assert [up for _, _, up in toy.traffic] == [2 * 8] * 3


def test_local_clients_differ_and_each_uses_its_own_model() -> None:
    toy = Toy(with_newcomers(two_groups(4), "c3"))
    algorithm = Local(local=LOCAL)
    state = toy.play(algorithm, 4)
    assert toy.engine.memories.of["c0"]["model"] != toy.engine.memories.of["c1"]["model"]
    state = algorithm.onboard(state, ("c3",), toy.server(4, "newcomers"))
    assert [toy.accuracy(algorithm, state, c) for c in ("c0", "c1", "c3")] == [1.0, 1.0, 1.0]


def test_with_the_full_budget_everybody_trains_in_every_round() -> None:
    toy = Toy(two_groups(4), fraction=0.25)
    state = toy.play(Local(local=LOCAL, who="everyone"), 1)
    assert state.started == ("c0", "c1", "c2", "c3")
    assert len(Toy(two_groups(4), fraction=0.25).play(Local(local=LOCAL), 1).started) == 1
