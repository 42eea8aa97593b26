# SPDX-License-Identifier: Apache-2.0
"""FedPer: heads stay, encoders are averaged."""

import torch

from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.fedper import ENCODER, HEAD, FedPer
from tests.algorithms.toys import LOCAL, SETTINGS, Toy, two_groups, with_newcomers


def test_one_client_trains_as_under_fedavg() -> None:
    personal, common = Toy(two_groups(1)), Toy(two_groups(1))
    state, expected = personal.play(FedPer(local=LOCAL), 3), common.play(FedAvg(local=LOCAL), 3)
    model = state.params.replace(personal.engine.memories.of["c0"][HEAD])
    torch.testing.assert_close(model.vector, expected.params.vector, atol=1e-6, rtol=0)


def test_only_the_encoder_travels_after_the_first_time() -> None:
    toy = Toy(two_groups(2))
    state = toy.play(FedPer(local=LOCAL), 2)
    encoder, head = state.params.select(ENCODER).layout.size, state.params.select(HEAD).layout.size
    assert [(down, up) for _, down, up in toy.traffic] == [
        (2 * (4 * (encoder + head) + SETTINGS), 2 * (4 * encoder + 8)),
        (2 * (4 * encoder + SETTINGS), 2 * (4 * encoder + 8)),
    ]


def test_the_served_head_is_the_clients_own_and_the_initial_one_for_who_never_trained() -> None:
    toy = Toy(two_groups(4), fraction=0.25)
    algorithm = FedPer(local=LOCAL)
    start = algorithm.start(toy.server(0))
    state = algorithm.round(start, toy.server(1))
    (trained,) = state.started
    idle = next(c for c in toy.clients if c != trained)
    assert state.params.select(HEAD) == start.params.select(HEAD)
    assert toy.engine.memories.of[trained][HEAD] != start.params.select(HEAD)
    assert idle not in toy.engine.memories.of
    assert algorithm.deploy(state, idle).remembered == HEAD


def test_a_newcomer_makes_its_own_head_and_leaves_the_encoder_alone() -> None:
    toy = Toy(with_newcomers(two_groups(6), "c5"))
    algorithm = FedPer(local=LOCAL)
    state = toy.play(algorithm, 5)
    after = algorithm.onboard(state, ("c5",), toy.server(5, "newcomers"))
    assert after.params == state.params
    assert toy.accuracy(algorithm, after, "c5") == 1.0
