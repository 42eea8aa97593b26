# SPDX-License-Identifier: Apache-2.0
"""Whether a split is real: what one half of the classes shows, the other half must show, too.

The samples of two halves of the classes are different samples, so what is chance in one half is not in the
other. Items are split as the first half shows it, and the parts are looked at in the second half:

    E = mean over pairs of parts of  (mean sin² between both - half of the means within the one and the other)

This is the squared distance of the parts' means, also if some items are noisier than others. It is compared
with E after the parts were dealt to the items at random: z = (E - mean) / standard deviation. Both halves
take both roles, z = (z_1 + z_2) / √2. Planted groups reach 23 and more, whatever dataset, view and
silhouette; splits of clients of one kind that pass the other tests reach 3 (docs/clustering-study.md).
"""

from collections.abc import Sequence

import numpy as np

from feddag.clustering.agglomerative import link
from feddag.clustering.arrays import FloatArray, IntArray
from feddag.clustering.options import Linkage
from feddag.clustering.silhouette import best_cut, settled
from feddag.clustering.similarity import min_max, normalised

DEALS = 100
"""So often the parts are dealt at random."""
MOST_ITEMS = 300
"""Of more items a sample is asked."""
FEW_ITEMS = 16
"""Fewer items can be dealt in too few ways to confirm anything."""


def class_halves(held_C: IntArray) -> tuple[IntArray, ...]:
    """Classes that at least two items hold, in two halves of about equal weight; () if there is only one."""
    order = np.argsort(-held_C, kind="stable")
    order = order[held_C[order] > 1]
    return (order[0::2], order[1::2]) if len(order) > 1 else ()


def confirmation(
    halves: Sequence[FloatArray], min_size: int, linkage: Linkage, generator: np.random.Generator
) -> float:
    """z: how far the split of each half (angles in degrees) is from chance in the other half."""
    total = 0.0
    for shown_NN, other_NN in (halves, halves[::-1]):
        parts_N = proposed(shown_NN, min_size, linkage)
        if parts_N.max(initial=0):
            total += surprise(np.square(np.sin(np.radians(other_NN))), parts_N, generator)
    return total / float(np.sqrt(2))


def proposed(angles_NN: FloatArray, min_size: int, linkage: Linkage) -> IntArray:
    """The parts with the best silhouette; all 0 if there is only one."""
    scaled_NN = normalised(angles_NN, min_max(angles_NN, resolution=0.0))
    _, parts_N = best_cut(scaled_NN, link(scaled_NN, linkage), min_size)
    return settled(scaled_NN, parts_N, min_size)[1] if parts_N.max() else parts_N


def surprise(sines_NN: FloatArray, parts_N: IntArray, generator: np.random.Generator) -> float:
    """(E - mean) / standard deviation over parts that are dealt at random."""
    dealt_DN = np.array([parts_N, *(generator.permutation(parts_N) for _ in range(DEALS))])
    shown, *chance_D = apartness(sines_NN, dealt_DN)
    return float((shown - np.mean(chance_D)) / max(np.std(chance_D), 1e-30))


def apartness(sines_NN: FloatArray, parts_DN: IntArray) -> FloatArray:
    """E of D ways to deal parts of the same sizes: squared distance of the means of two parts.

    It is averaged over all pairs of items in different parts.
    """
    inside_DNP = (parts_DN[..., None] == np.arange(parts_DN.max() + 1)).astype(np.float64)
    sizes_P = inside_DNP[0].sum(axis=0)
    # The diagonal of the matrix is 0, so an item is not compared with itself.
    sums_DPP = inside_DNP.swapaxes(1, 2) @ (sines_NN.astype(np.float64) @ inside_DNP)
    within_DP = np.diagonal(sums_DPP, axis1=1, axis2=2) / np.maximum(sizes_P * (sizes_P - 1), 1)
    pairs_PP = np.outer(sizes_P, sizes_P)
    apart_DPP = sums_DPP / pairs_PP - (within_DP[:, :, None] + within_DP[:, None, :]) / 2
    np.fill_diagonal(pairs_PP, 0)
    return (apart_DPP * pairs_PP).sum(axis=(1, 2)) / max(pairs_PP.sum(), 1)
