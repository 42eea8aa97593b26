# SPDX-License-Identifier: Apache-2.0
"""Which clusters can learn from each other: those that hold the same labels and mean the same by them."""

from typing import Protocol

import numpy as np

from feddag.clustering.meaning import mean_the_same
from feddag.core.clusters import Clusters
from feddag.learning.signature import Signature, items_of

# For each cluster, itself and all that it can learn from.
Partners = tuple[tuple[int, ...], ...]


class Grouped(Protocol):
    """What is needed of a state: who is where, and holds what."""

    clusters: Clusters
    signatures: dict[str, Signature]


def possible_partners(state: Grouped, same_labels: float, same_names: bool) -> Partners:
    """For each cluster, itself and all that hold the same labels and mean the same by them."""
    alike_ZZ = with_same_labels(np.stack(label_counts(state)), same_labels)
    if same_names and alike_ZZ.sum() > len(alike_ZZ):
        place = {c: i for i, c in enumerate(state.signatures)}
        members = [[place[c] for c in of_z if c in place] for of_z in state.clusters.members]
        alike_ZZ = alike_ZZ & mean_the_same(items_of(state.signatures), members)
    np.fill_diagonal(alike_ZZ, True)
    return tuple(tuple(np.flatnonzero(alike_Z).tolist()) for alike_Z in alike_ZZ)


def with_same_labels(counts_ZC: np.ndarray, least: float) -> np.ndarray:
    """Which pairs of clusters hold the same labels: those of at least this share of each other's samples."""
    shares_ZC = counts_ZC / np.maximum(counts_ZC.sum(axis=1, keepdims=True), 1)
    in_common_ZZ = shares_ZC @ (counts_ZC > 0).T  # of z's samples, those of labels that q holds, too
    return np.minimum(in_common_ZZ, in_common_ZZ.T) >= least - 1e-9


def label_counts(state: Grouped) -> list[np.ndarray]:
    """The number of samples of every class, in each cluster."""
    unsigned = getattr(state, "unsigned", None)
    if unsigned is not None and len(unsigned.counts_ZC) == len(state.clusters):
        return list(unsigned.counts_ZC)
    counts = {client: signature.counts for client, signature in state.signatures.items()}
    nothing = np.zeros_like(next(iter(counts.values())))
    return [sum((counts.get(c, nothing) for c in members), nothing) for members in state.clusters.members]
