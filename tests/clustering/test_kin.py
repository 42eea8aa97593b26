# SPDX-License-Identifier: Apache-2.0
"""Which items are of one kind: also where there are only one or two of them."""

import numpy as np
import pytest

from feddag.clustering.kin import BEYOND, Kinship


def kinship(*views: list[list[float]]) -> Kinship:
    return Kinship(np.array(views))


def line(*places: float) -> list[list[float]]:
    """Distances of items on a line, in limits."""
    return [[abs(a - b) for b in places] for a in places]


def test_a_single_item_is_of_the_same_kind_up_to_the_limit() -> None:
    kin = kinship(line(0, 0.9, 2))
    assert kin.misfit(1, [0]) == pytest.approx(0.9)
    assert kin.misfit(2, [0]) == pytest.approx(2)
    assert kin.misfit(0, [0]) == 0, "nobody is a stranger to itself"


def test_in_a_wide_cluster_an_item_may_be_as_far_as_its_members_are() -> None:
    kin = kinship(line(0, 4, 6))  # the members are 4 apart
    assert kin.misfit(2, [0, 1]) == pytest.approx(((6 + 2) / 2) / (BEYOND * 4))
    assert kinship(line(0, 0.1, 6)).misfit(2, [0, 1]) == pytest.approx((6 + 5.9) / 2)


def test_one_view_is_enough_to_be_a_stranger() -> None:
    assert kinship(line(0, 0.1), line(0, 3)).misfit(1, [0]) == pytest.approx(3)


def test_who_fits_the_proposed_cluster_stays_and_who_fits_none_opens_one() -> None:
    kin = kinship(line(0, 0.1, 5, 5.1, 0.3, 5.2, 20, 20.1, 30))
    members = {0: [0, 1], 1: [2, 3]}
    assert kin.place([4, 5, 6, 7, 8], [0, 0, 1, 1, 1], members) == [0, 1, 2, 2, 3]
    assert kinship(line(0, 0.1, 0.2, 0.3, 0.15)).place([4], [1], members) == [1], "both fit"


def test_a_cluster_without_anybody_known_is_nobodys() -> None:
    assert kinship(line(0, 7)).place([1], [0], {0: [], 1: [0]}) == [2]


def test_clusters_of_different_kinds_are_not_joined() -> None:
    kin = kinship(line(0, 0.1, 0.2, 9, 0.3))
    now = np.array([0, 0, 0, 1, 2])
    assert kin.apart([0, 1, 2], [3])
    assert not kin.apart([0, 1, 2], [4])
    assert kin.joins(np.array([0, 0, 0, 0, 1]), now), "one and nine"
    assert not kin.joins(np.array([0, 0, 0, 1, 0]), now)
    assert not kin.joins(np.array([0, 0, 0, 1, 2]), now)
    assert not kin.joins(np.array([0, 1, 2, 0, 1]), now), "no cluster of now is mostly there"
