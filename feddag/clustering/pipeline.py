# SPDX-License-Identifier: Apache-2.0
"""From signatures to clusters and their complementarity graph, with everything in between kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import e
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from feddag.clustering.agglomerative import link
from feddag.clustering.angles import AngleKind, KeptAngles, present_classes
from feddag.clustering.arrays import FloatArray, IntArray, checked_counts, checked_matrix
from feddag.clustering.choice import Choice, Rule, choose, least_size
from feddag.clustering.complementarity import (
    ComplementarityGraph,
    cluster_alignment,
    complementarity_graph,
)
from feddag.clustering.fusion import (
    Entropy,
    entropy_weights,
    fuse,
    mlp_weights,
    pair_weights,
    structure_weight,
)
from feddag.clustering.reliable import Noise
from feddag.clustering.silhouette import best_cut
from feddag.clustering.similarity import (
    CountWeights,
    MinMax,
    Weighting,
    count_weights,
    data_angles,
    data_angles_and_noise,
    data_angles_between,
    gradient_angles,
    gradient_angles_between,
    min_max,
    normalised,
)
from feddag.clustering.subspaces import Subspaces

Views = Literal["fused", "data", "gradient"]
Fusion = Literal["structure", "entropy", "mlp", "mean"]


@dataclass(frozen=True)
class ClusteringOptions:
    """Every choice between signatures and clusters; the defaults are recommended, `PAPER` is literal."""

    views: Views = "fused"
    kind: AngleKind = "subspace"
    weighting: Weighting = "reliability"
    delta: float = 0.6
    epsilon: float = e
    weigh_absent: bool = False
    fusion: Fusion = "structure"
    entropy: Entropy = field(default_factory=Entropy)
    rule: Rule = field(default_factory=Rule)
    sources: int = 1
    align: bool = True
    shared_only: bool = True
    lacking_classes: bool = True
    seed: int = 0
    """Of the MLP gate and of samples drawn from very many items."""

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        if self.views not in ("fused", "data", "gradient"):
            raise ValueError(f"views must be fused, data or gradient, not {self.views!r}")
        if self.fusion not in ("structure", "entropy", "mlp", "mean"):
            raise ValueError(f"fusion must be structure, entropy, mlp or mean, not {self.fusion!r}")


PAPER = ClusteringOptions(
    kind="pairs",
    weighting="frequency",
    fusion="mlp",
    entropy=Entropy(rule="row"),
    rule=Rule(name="loss"),
    shared_only=False,
    lacking_classes=False,
)
"""The paper to the letter; what it leaves open is filled in as its own tables suggest."""


@dataclass(frozen=True)
class Frame:
    """How proximity was measured: kept, so that newcomers are measured by the same rule."""

    data_scale: MinMax
    gradient_scale: MinMax
    count_weights: CountWeights | None
    noise: Noise | None
    weights_N: FloatArray
    threshold: float
    options: ClusteringOptions


@dataclass(frozen=True)
class ClusteringResult:
    """Labels, graph, and all that a report or a newcomer needs."""

    labels_N: IntArray
    choice: Choice
    distances_NN: FloatArray
    """A of Eq. 7, or the one normalised view that was asked for."""
    data_NN: FloatArray | None
    """Data angles in degrees (Eq. 6)."""
    gradient_NN: FloatArray | None
    """Update angles in degrees (Eq. 3)."""
    data_scale: MinMax
    gradient_scale: MinMax
    count_weights: CountWeights | None
    noise: Noise | None
    weights_N: FloatArray
    """w of Eq. 7: 1 is all gradient, 0 is all data."""
    graph: ComplementarityGraph
    options: ClusteringOptions = field(default_factory=ClusteringOptions)

    @property
    def count(self) -> int:
        """Number of clusters."""
        return self.choice.count

    @property
    def threshold(self) -> float:
        """The threshold that newcomers are held to."""
        return self.choice.threshold

    @property
    def frame(self) -> Frame:
        """What newcomers are measured by."""
        return Frame(
            self.data_scale,
            self.gradient_scale,
            self.count_weights,
            self.noise,
            self.weights_N,
            self.threshold,
            self.options,
        )


def cluster_signatures(
    subspaces: Sequence[Subspaces],
    counts: ArrayLike,
    sketches: ArrayLike | None = None,
    options: ClusteringOptions | None = None,
) -> ClusteringResult:
    """Angles (Eqs. 3-6), fusion (Eqs. 7-8), clusters (Eqs. 9-10) and graph (Eqs. 11-14) of N items."""
    options = options or ClusteringOptions()
    counts_NC = checked_counts(counts)
    n, num_classes = counts_NC.shape
    if options.views != "data" and sketches is None:
        raise ValueError(f"views {options.views!r} need sketches; use views='data' without them")
    data_NN = gradient_NN = weights = noise = None
    data_scale = gradient_scale = MinMax(0.0, 0.0)
    kept = KeptAngles()
    if options.views != "gradient":
        if options.weighting == "frequency":
            weights = count_weights(
                counts_NC,
                present_classes(subspaces, num_classes),
                delta=options.delta,
                epsilon=options.epsilon,
                weigh_absent=options.weigh_absent,
            )
        keep = kept if options.align else None
        if options.weighting == "reliability":
            data_NN, noise = data_angles_and_noise(subspaces, counts_NC, kind=options.kind, keep=keep)
        else:
            data_NN = data_angles(subspaces, counts_NC, weights, kind=options.kind, keep=keep)
        data_scale = min_max(data_NN)
    if options.views != "data" and sketches is not None:
        if len(checked_matrix(sketches, "sketches")) != n:
            raise ValueError(f"{n} rows of counts, but {len(checked_matrix(sketches, 'sketches'))} sketches")
        gradient_NN = gradient_angles(sketches)
        gradient_scale = min_max(gradient_NN)
    weights_N, distances_NN = _fused(data_NN, data_scale, gradient_NN, gradient_scale, options)
    choice = choose(distances_NN, options.rule)
    alignment = None
    if options.align:
        alignment = cluster_alignment(
            subspaces,
            choice.labels_N,
            num_classes,
            shared_only=options.shared_only,
            kind=options.kind,
            known=kept.blocks if data_NN is not None else None,
            seed=options.seed,
        )
        del kept
    graph = complementarity_graph(
        counts_NC,
        choice.labels_N,
        alignment,
        k=options.sources,
        distances_NN=distances_NN,
        lacking_classes=options.lacking_classes,
    )
    return ClusteringResult(
        labels_N=choice.labels_N,
        choice=choice,
        distances_NN=distances_NN,
        data_NN=data_NN,
        gradient_NN=gradient_NN,
        data_scale=data_scale,
        gradient_scale=gradient_scale,
        count_weights=weights,
        noise=noise,
        weights_N=weights_N,
        graph=graph,
        options=options,
    )


def newcomer_distances(
    result: ClusteringResult | Frame,
    new: Sequence[Subspaces],
    new_counts: ArrayLike,
    new_sketches: ArrayLike | None,
    old: Sequence[Subspaces],
    old_counts: ArrayLike,
    old_sketches: ArrayLike | None,
    new_levels_MC: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Distances of M new items to the N old ones, and the new items' weights; nothing of the old changes.

    `new_levels_MC` is the new items' own noise where it is known. Angles are scaled by the constants kept in
    `result`. Under entropy fusion each newcomer learns its own weight on its own row, as the paper says;
    other fusions reuse the one weight of all.
    """
    options = result.options
    shape = (len(new), len(old))
    data_MN, gradient_MN = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    if options.views != "gradient":
        angles_MN = data_angles_between(
            new,
            new_counts,
            old,
            old_counts,
            result.count_weights,
            kind=options.kind,
            weighting=options.weighting,
            noise=result.noise,
            new_levels_MC=new_levels_MC,
        )
        data_MN = result.data_scale.apply(angles_MN)
    if options.views != "data":
        if new_sketches is None or old_sketches is None:
            raise ValueError(f"views {options.views!r} need sketches of new and old items")
        gradient_MN = result.gradient_scale.apply(gradient_angles_between(new_sketches, old_sketches))
    if options.views != "fused":
        return (data_MN if options.views == "data" else gradient_MN), np.full(
            len(new), float(options.views == "gradient")
        )
    learned = options.fusion in ("entropy", "mlp")
    weights_M = np.array(
        [
            _own_weight(data_N, gradient_N, result.weights_N, options.entropy)
            if learned
            else float(result.weights_N[0])
            for data_N, gradient_N in zip(data_MN, gradient_MN, strict=True)
        ]
    )
    # A newcomer comes after all others: with the row rule its weight is never used (w_i for i < j).
    pairs_MN = (
        (weights_M[:, None] + result.weights_N[None, :]) / 2
        if options.entropy.rule == "symmetric"
        else np.broadcast_to(result.weights_N[None, :], shape)
    )
    return (data_MN + pairs_MN * (gradient_MN - data_MN)).astype(np.float32), weights_M


def structure_fusion_weight(
    data_NN: FloatArray, gradient_NN: FloatArray, options: ClusteringOptions
) -> float:
    """The one weight under which the fused matrix has the best silhouette at its best cut."""

    def clusterability(fused_NN: FloatArray) -> float:
        if len(fused_NN) < 3:
            return 0.0
        linked = link(fused_NN, options.rule.linkage)
        return best_cut(fused_NN, linked, least_size(len(fused_NN), options.rule))[0]

    return structure_weight(data_NN, gradient_NN, clusterability, seed=options.seed)


def _fused(
    data_NN: FloatArray | None,
    data_scale: MinMax,
    gradient_NN: FloatArray | None,
    gradient_scale: MinMax,
    options: ClusteringOptions,
) -> tuple[FloatArray, FloatArray]:
    if gradient_NN is None and data_NN is not None:
        return np.zeros(len(data_NN)), normalised(data_NN, data_scale)
    if data_NN is None and gradient_NN is not None:
        return np.ones(len(gradient_NN)), normalised(gradient_NN, gradient_scale)
    if data_NN is None or gradient_NN is None:
        raise ValueError("at least one view is needed")
    data_NN, gradient_NN = normalised(data_NN, data_scale), normalised(gradient_NN, gradient_scale)
    n = len(data_NN)
    if options.fusion == "entropy":
        weights_N = entropy_weights(data_NN, gradient_NN, options.entropy)
    elif options.fusion == "mlp":
        generator = torch.Generator().manual_seed(options.seed)
        weights_N = mlp_weights(data_NN, gradient_NN, generator, options.entropy)
    elif options.fusion == "structure":
        weights_N = np.full(n, structure_fusion_weight(data_NN, gradient_NN, options))
    else:
        weights_N = np.full(n, 0.5)
    return weights_N, fuse(data_NN, gradient_NN, weights_N, options.entropy.rule)


def _own_weight(data_N: FloatArray, gradient_N: FloatArray, others_N: FloatArray, entropy: Entropy) -> float:
    """A newcomer's weight: the least entropy of its own row (Eq. 8), its zero distance to itself included."""
    grid = np.linspace(0, 1, 101)
    best, least = 0.5, np.inf
    for weight in grid[np.argsort(np.abs(grid - 0.5), kind="stable")]:
        extended = np.append(others_N, weight)
        pairs = pair_weights(extended, slice(len(others_N), len(extended)), entropy.rule)[0, :-1]
        row = (data_N + pairs * (gradient_N - data_N)) * entropy.sign / entropy.temperature
        row = np.append(row, 0.0) if entropy.diagonal else row
        shares = np.exp(row - row.max())
        shares /= shares.sum()
        loss = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
        if loss < least - 1e-12:
            best, least = float(weight), loss
    return best
