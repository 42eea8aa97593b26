# SPDX-License-Identifier: Apache-2.0
"""FedAvg, fine-tuned before use."""

from feddag.algorithms.fedavg import FedAvg, FedAvgFineTuned
from feddag.learning.evaluation import serve
from feddag.learning.sgd import sgd
from tests.algorithms.toys import LOCAL, Toy, two_groups


def test_fine_tuned_fedavg_trains_as_fedavg_does_and_adapts_when_deployed() -> None:
    plain, tuned = Toy(two_groups(4)), Toy(two_groups(4))
    algorithm = FedAvgFineTuned(local=LOCAL)
    expected, state = plain.play(FedAvg(local=LOCAL), 3), tuned.play(algorithm, 3)
    assert state.params == expected.params
    client = tuned.client("c1")
    assert serve(client, algorithm.deploy(state, "c1")).models[0] == sgd(client, state.params, LOCAL)
    assert tuned.accuracy(algorithm, state, "c1") == 1.0
    assert plain.traffic == tuned.traffic
