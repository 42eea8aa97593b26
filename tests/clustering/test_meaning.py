# SPDX-License-Identifier: Apache-2.0
"""Whether two clusters mean the same by their labels: other looks, other names, and what cannot be seen."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from feddag.clustering.items import Items
from feddag.clustering.meaning import class_distances, mean_the_same
from feddag.clustering.subspaces import class_subspaces
from tests.clustering.toys import CLASSES, seeds, toy_items

WIDTH = 12
TWO = [[0, 1, 2], [3, 4, 5]]


def federation(
    names: list[list[int]], turned: float = 0.0, seed: int = 0, noise: float = 0.3, classes: int = 4
) -> Items:
    """Three clients per cluster; `names` says what a cluster calls the things 0, 1, …

    The things of the second cluster look different by `turned`: each has another direction mixed in.
    """
    generator = np.random.default_rng(seed)
    things_CD, other_CD = generator.normal(size=(2, classes, WIDTH))
    told, counts = [], []
    for z, of_z in enumerate(names):
        seen_CD = things_CD + (turned * other_CD if z else 0)
        for _ in range(3):
            things = generator.integers(classes, size=60)
            x_ND = seen_CD[things] + noise * generator.normal(size=(60, WIDTH))
            y_N = np.array(of_z)[things]
            told.append(class_subspaces(x_ND, y_N, classes, 2))
            counts.append(np.bincount(y_N, minlength=classes))
    return Items.of(told, np.array(counts))


SAME = [0, 1, 2, 3]


def test_equal_names_are_seen_through_other_looks_and_other_names_are_not_taken_for_looks() -> None:
    for turned in (0.0, 0.5, 1.0):
        assert mean_the_same(federation([SAME, SAME], turned), TWO).all()
        assert not mean_the_same(federation([SAME, [3, 2, 1, 0]], turned), TWO)[0, 1]


def test_two_swapped_names_are_enough() -> None:
    classes = [*range(8)]
    swapped = [1, 0, *classes[2:]]
    assert mean_the_same(federation([classes, classes], 0.5, classes=8), TWO).all()
    assert not mean_the_same(federation([classes, swapped], classes=8), TWO)[0, 1]


def test_the_answer_is_symmetric_and_does_not_depend_on_the_order_of_clusters() -> None:
    items = federation([SAME, SAME, [1, 0, 3, 2]], 0.3)
    members = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    found = mean_the_same(items, members)
    assert np.array_equal(found, found.T)
    assert found.diagonal().all()
    assert np.array_equal(mean_the_same(items, members[::-1]), found[::-1, ::-1])


@pytest.mark.parametrize("why", ["one member", "one class", "all classes look alike", "nothing is told"])
def test_what_cannot_be_seen_is_no_evidence_for_equal_meaning(why: str) -> None:
    items, members = federation([SAME, SAME]), TWO
    if why == "one member":
        members = [[0], [3, 4, 5]]
    elif why == "one class":
        items = federation([[0] * 4, [0] * 4])
    elif why == "all classes look alike":
        items = federation([SAME, SAME], noise=30.0)
    else:
        empty = [class_subspaces(np.zeros((0, WIDTH)), np.zeros(0, int), 4, 2) for _ in range(6)]
        items = Items.of(empty, items.counts_NC)
    assert np.array_equal(mean_the_same(items, members), np.eye(2, dtype=bool))


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_class_distances_are_those_of_the_literal_sums_of_projectors(seed: int) -> None:
    told, counts = toy_items(np.random.default_rng(seed), 5)
    items = Items.of(told, counts)
    found = class_distances(items, "pixels", [0, 1], [2, 3, 4])

    def projector(rows: list[int], label: int) -> np.ndarray:
        total = np.zeros((items.subspaces[0].vectors_PD.shape[1],) * 2)
        for i, p in itertools.chain.from_iterable(
            [(i, p) for p, c in enumerate(items.subspaces[i].classes_P) if c == label] for i in rows
        ):
            u_D = items.subspaces[i].vectors_PD[p].astype(float)
            total += counts[i, label] * np.outer(u_D, u_D)
        return total

    for c, other in itertools.product(range(CLASSES), repeat=2):
        a, b = projector([0, 1], c), projector([2, 3, 4], other)
        if not a.any() or not b.any():
            assert np.isnan(found[c, other])
        else:
            expected = 1 - np.trace(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b))
            assert found[c, other] == pytest.approx(expected, abs=1e-6)
