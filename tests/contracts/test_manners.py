# SPDX-License-Identifier: Apache-2.0
"""Misfortune that only some methods can meet; `feddag.contracts.manners` has what holds for all."""

import pytest

from feddag.algorithms import ALGORITHMS
from tests.contracts.toys import experiment, play, toy

clustered = pytest.mark.parametrize(
    "name", sorted(n for n, cls in ALGORITHMS.items() if "num_clusters" in cls.__dataclass_fields__)
)


@clustered
def test_more_clusters_than_clients_are_survived(name: str) -> None:
    options = {**experiment(name).algorithm.model_extra, "num_clusters": 9}
    trace = play(toy(name, options), rounds=3)
    assert len(trace.scores) == 8
