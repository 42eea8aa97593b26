# SPDX-License-Identifier: Apache-2.0
"""From signatures to clusters and their complementarity graph, and later newcomers into them (§3, §4).

clustering = cluster_signatures(subspaces, counts_NC, sketches_NK)
clustering.choice.labels_N, clustering.graph.sources_of(0)
place_newcomers(all_subspaces, all_counts, all_sketches, clustering.choice.labels_N, clustering.frame)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import e
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from feddag.clustering.agglomerative import cut, link
from feddag.clustering.angles import AngleKind
from feddag.clustering.arrays import FloatArray, IntArray, checked_counts
from feddag.clustering.choice import Choice, Rule, choose
from feddag.clustering.complementarity import ComplementarityGraph, cluster_alignment, complementarity_graph
from feddag.clustering.fusion import Entropy, entropy_weights, fuse, mlp_weights
from feddag.clustering.similarity import (
    CountWeights,
    MinMax,
    count_weights,
    data_angles,
    gradient_angles,
    min_max,
    normalised,
)
from feddag.clustering.subspaces import Subspaces

View = Literal["fused", "data", "gradient"]


@dataclass(frozen=True)
class Options:
    """Every choice between signatures and clusters; the defaults are the recommended ones."""

    view: View = "fused"
    angles: AngleKind = "pairs"
    delta: float = 0.6
    epsilon: float = e
    weigh_absent: bool = False
    fusion: Literal["direct", "mlp"] = "direct"
    entropy: Entropy = field(default_factory=Entropy)
    rule: Rule = field(default_factory=Rule)
    num_sources: int = 2
    alignment: bool = True
    lacking_classes: bool = True
    shared_only: bool = True


@dataclass(frozen=True)
class Frame:
    """How proximity was measured: kept, so that newcomers are measured with the same rule (G1)."""

    counts: CountWeights
    data: MinMax
    gradient: MinMax
    weights_N: FloatArray
    threshold: float


@dataclass(frozen=True)
class Clustering:
    """The clusters, the graph, and every step between signatures and them."""

    data_degrees_NN: FloatArray
    gradient_degrees_NN: FloatArray
    proximity_NN: FloatArray
    frame: Frame
    choice: Choice
    graph: ComplementarityGraph


@dataclass(frozen=True)
class Placement:
    """Where newcomers go; the old items stay where they are."""

    labels_M: IntArray  # old clusters keep their numbers; new ones are appended
    nearest_M: IntArray  # the old cluster with the least mean distance
    weak_M: np.ndarray  # farther from their cluster than the threshold: served, but not at home
    frame: Frame  # with the newcomers' fusion weights appended


def cluster_signatures(
    subspaces: Sequence[Subspaces],
    counts: ArrayLike,
    sketches: ArrayLike,
    options: Options | None = None,
    seed: int = 0,
) -> Clustering:
    """Proximity matrix (Eqs. 3–8), hierarchical clustering (Eqs. 9, 10), CC-graph (Eqs. 11–14)."""
    options = options or Options()
    counts_NC = checked_counts(counts)
    weighting = count_weights(
        counts_NC, delta=options.delta, epsilon=options.epsilon, weigh_absent=options.weigh_absent
    )
    data_degrees_NN = data_angles(subspaces, counts_NC, weighting, kind=options.angles)
    gradient_degrees_NN = gradient_angles(sketches)
    data, gradient = min_max(data_degrees_NN), min_max(gradient_degrees_NN)
    data_NN, gradient_NN = normalised(data_degrees_NN, data), normalised(gradient_degrees_NN, gradient)
    weights_N = fusion_weights(data_NN, gradient_NN, options, seed)
    proximity_NN = fuse(data_NN, gradient_NN, weights_N, options.entropy.rule)
    choice = choose(proximity_NN, options.rule)
    graph = cluster_graph(subspaces, counts_NC, choice.labels_N, proximity_NN, options)
    frame = Frame(weighting, data, gradient, weights_N, choice.threshold)
    return Clustering(data_degrees_NN, gradient_degrees_NN, proximity_NN, frame, choice, graph)


def fusion_weights(data_NN: FloatArray, gradient_NN: FloatArray, options: Options, seed: int) -> FloatArray:
    """w of Eq. 7: how much the gradient view counts for each item; 0 or 1 when one view is used alone."""
    if options.view != "fused":
        return np.full(len(data_NN), float(options.view == "gradient"))
    if options.fusion == "mlp":
        return mlp_weights(data_NN, gradient_NN, torch.Generator().manual_seed(seed), options.entropy)
    return entropy_weights(data_NN, gradient_NN, options.entropy)


def cluster_graph(
    subspaces: Sequence[Subspaces],
    counts: ArrayLike,
    labels_N: IntArray,
    proximity_NN: FloatArray,
    options: Options,
) -> ComplementarityGraph:
    """The complementarity graph of given clusters."""
    counts_NC = checked_counts(counts)
    alignment_ZZC = None
    if options.alignment and len(counts_NC):
        alignment_ZZC = cluster_alignment(
            subspaces, labels_N, counts_NC.shape[1], shared_only=options.shared_only, kind=options.angles
        )
    return complementarity_graph(
        counts_NC,
        labels_N,
        alignment_ZZC,
        k=options.num_sources,
        distances_NN=proximity_NN,
        lacking_classes=options.lacking_classes,
    )


def place_newcomers(
    subspaces: Sequence[Subspaces],
    counts: ArrayLike,
    sketches: ArrayLike,
    labels_N: IntArray,
    frame: Frame,
    options: Options | None = None,
    *,
    least_new: int = 3,
) -> Placement:
    """Clusters for the items after the first N, which are old and stay (§ newcomers; decisions G1–G3).

    Proximity is measured with the old constants, only the newcomers' fusion weights are learned. A newcomer
    joins the old cluster most common in its group of one pass at the old threshold, else the nearest one; a
    group of `least_new` or more newcomers on their own opens a cluster.
    """
    options = options or Options()
    n, total = len(labels_N), len(subspaces)
    data_AA = normalised(data_angles(subspaces, counts, frame.counts, kind=options.angles), frame.data)
    gradient_AA = normalised(gradient_angles(sketches), frame.gradient)
    start = np.concatenate([frame.weights_N, np.full(total - n, 0.5)])
    if options.view != "fused":
        weights_A = np.full(total, float(options.view == "gradient"))
    else:
        weights_A = entropy_weights(
            data_AA, gradient_AA, options.entropy, start_N=start, free_N=np.arange(total) >= n
        )
    proximity_AA = fuse(data_AA, gradient_AA, weights_A, options.entropy.rule)
    groups_A = cut(link(proximity_AA, options.rule.linkage), frame.threshold)
    labels, nearest, weak = [], [], []
    opened: dict[int, int] = {}
    following = int(labels_N.max(initial=-1)) + 1
    members_ZN = np.arange(following)[:, None] == labels_N[None, :]
    for m in range(n, total):
        near_Z = np.array([proximity_AA[m, :n][members].mean() for members in members_ZN])
        companions = labels_N[groups_A[:n] == groups_A[m]]
        if len(companions):
            label = int(np.bincount(companions).argmax())
        elif int((groups_A[n:] == groups_A[m]).sum()) >= least_new:
            label = opened.setdefault(int(groups_A[m]), following + len(opened))
        else:
            label = int(near_Z.argmin())
        labels.append(label)
        nearest.append(int(near_Z.argmin()))
        weak.append(label < following and bool(near_Z[label] > frame.threshold))
    return Placement(
        labels_M=np.array(labels, dtype=np.int64),
        nearest_M=np.array(nearest, dtype=np.int64),
        weak_M=np.array(weak, dtype=bool),
        frame=replace(frame, weights_N=weights_A),
    )
