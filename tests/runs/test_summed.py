# SPDX-License-Identifier: Apache-2.0
"""Sums of scores: right to the unit, and never of fewer than three clients."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddag.learning.evaluation import Evaluated, Scores
from feddag.runs.summed import LEAST, summed


def reply(number: int) -> Evaluated:
    scores = Scores(total=np.array([4, 2**number]), correct=np.array([1, number % 2]), loss=float(number))
    return Evaluated(test=scores, validation=scores)


@given(st.lists(st.integers(0, 4), max_size=12))
def test_every_client_is_in_one_sum_and_no_sum_has_fewer_than_three(labels: list[int]) -> None:
    clients = {f"c{i:02d}": reply(i) for i in range(len(labels))}
    sums = summed(clients, {f"c{i:02d}": label for i, label in enumerate(labels)})
    if len(labels) < LEAST:
        assert sums == {}
        return
    # 2^i names client i: the binary digits of a total are the clients in it.
    members = [int(one.test.total[1]) for one in sums.values()]
    assert sum(members) == 2 ** len(labels) - 1
    assert all(bin(group).count("1") >= LEAST for group in members)
    assert all(int(one.test.total[0]) == 4 * bin(int(one.test.total[1])).count("1") for one in sums.values())


def test_large_clusters_stay_apart_and_their_sums_are_literal() -> None:
    clients = {f"c{i}": reply(i) for i in range(7)}
    labels = {f"c{i}": i % 2 for i in range(7)}
    sums = summed(clients, labels)
    assert list(sums) == ["cluster 0", "cluster 1"]
    assert sums["cluster 1"].test.loss == 1.0 + 3.0 + 5.0
    assert sums["cluster 1"].test.correct.tolist() == [3, 3]
    assert sums["cluster 0"].test_after is None
