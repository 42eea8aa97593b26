# SPDX-License-Identifier: Apache-2.0
"""FedRep: head and encoder in turn."""

from dataclasses import replace

import torch

from feddag.algorithms.fedrep import ENCODER, HEAD, FedRep
from feddag.learning.evaluation import serve
from feddag.learning.sgd import sgd
from tests.algorithms.toys import LOCAL, Toy, two_groups, with_newcomers


def test_a_round_fits_the_head_first_and_then_the_encoder_under_the_fitted_head() -> None:
    toy = Toy(two_groups(1))
    algorithm = FedRep(local=LOCAL, head_epochs=3, encoder_epochs=1)
    start = algorithm.start(toy.server(0))
    state = algorithm.round(start, toy.server(1))
    client = replace(
        toy.client("c0"), seed=toy.seed / "round" / 1 / "question" / 0 / "client" / "c0", memory={}
    )
    by_hand = sgd(client, start.params, replace(LOCAL, local_epochs=3), train=(HEAD,))
    head = by_hand.select(HEAD)
    assert by_hand.select(ENCODER) == start.params.select(ENCODER)
    by_hand = sgd(
        client, by_hand, replace(LOCAL, local_epochs=1), train=(ENCODER,), seed=client.seed / "encoder"
    )
    assert by_hand.select(HEAD) == head
    assert toy.engine.memories.of["c0"][HEAD] == head
    torch.testing.assert_close(
        state.params.select(ENCODER).vector, by_hand.select(ENCODER).vector, atol=1e-6, rtol=0
    )


def test_deployment_fits_the_head_once_more_and_keeps_the_encoder() -> None:
    toy = Toy(two_groups(4))
    algorithm = FedRep(local=LOCAL)
    state = toy.play(algorithm, 2)
    served = serve(toy.client("c1"), algorithm.deploy(state, "c1")).models[0]
    assert served.select(ENCODER) == state.params.select(ENCODER)
    assert served.select(HEAD) != toy.engine.memories.of["c1"][HEAD]


def test_a_newcomer_is_served_by_fitting_a_head() -> None:
    toy = Toy(with_newcomers(two_groups(6), "c5"))
    algorithm = FedRep(local=LOCAL)
    state = algorithm.onboard(toy.play(algorithm, 4), ("c5",), toy.server(4, "newcomers"))
    assert toy.accuracy(algorithm, state, "c5") == 1.0
