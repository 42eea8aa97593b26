# SPDX-License-Identifier: Apache-2.0
"""Every choice between signatures and clusters, under the name that settings files use."""

from math import e
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from feddag.core.message import options

AngleKind = Literal["subspace", "pairs"]
ClassWeighting = Literal["reliability", "frequency"]
Fusion = Literal["views", "structure", "entropy", "mlp", "mean"]
FusionRule = Literal["symmetric", "row"]
Linkage = Literal["average", "single", "complete", "weighted"]
CutRule = Literal["structure", "silhouette", "loss", "plateau"]
SvdMethod = Literal["exact", "randomised", "subsampled"]

GRID = tuple(round(0.05 * k, 2) for k in range(1, 21))
"""The thresholds that the paper searches: 0.05, 0.10, ..., 1."""


@options
class LossWeights:
    """Constants of Eqs. 9 and 10."""

    degeneracy: float = 0.01  # λ, the weight of the penalty for small clusters
    gamma: float = 1.0  # γ, how many standard deviations below the mean a cluster size may lie
    tau: Annotated[float, Gt(0)] = 1.0  # τ, how slowly the penalty grows


@options
class EntropyOptions:
    """How the entropy of Eq. 8 is measured."""

    # 1: softmax of distances, as Eq. 8 is written. -1: softmax of -distances, so near items count most.
    sign: int = 1
    temperature: Annotated[float, Gt(0)] = 1.0  # distances are divided by it before the softmax
    diagonal: bool = True  # whether an item's distance 0 to itself is part of its softmax

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        if self.sign not in (-1, 1) or self.temperature <= 0:
            raise ValueError("the entropy's sign must be 1 or -1, and its temperature must be positive")


@options
class StructureRule:
    """Constants of the cut rule `structure`; distances are on the scale [0, 1]."""

    min_size: Annotated[int, Ge(1)] = 3  # smaller clusters join the nearest larger one; below 24 items: 2
    floor: float = 0.35  # least silhouette of the first split of one matrix
    inner_floor: float = 0.3  # least silhouette of a split inside a part that was split off before
    close: float = 0.2  # a part with a mean distance below this value is close together
    close_floor: float = 0.45  # least silhouette of a split inside a part that is close together
    tight: float = 0.1  # a part with a mean distance below this value is not split again
    margin: float = 0.02  # by how much a silhouette must exceed the best one of the structureless clouds
    close_margin: float = 0.05  # the same inside a part that is close together
    # Fusion `views`: a split exceeds the clouds by `margin`, its parts hold together, and both halves of the
    # classes show it (`confirm.py`).
    together: float = 0.1  # least mean silhouette of every part
    certainty: float = 5.0  # standard deviations from parts that are dealt at random
    # A split that cannot be confirmed (one class, few items, updates) must be so clear:
    clear_floor: float = 0.5  # least silhouette
    clear_together: float = 0.45  # least mean silhouette of every part
    clear_margin: float = 0.15  # by how much the silhouette exceeds that of the clouds
    separation: float = 1.5  # least distance between parts in errors; plus `few_items` / number of items
    # For the first split of few items `floor` and `margin` are clear enough, if the halves do not deny it.
    few: Annotated[int, Ge(0)] = 32  # below so many items they are few
    few_certainty: float = 3.0  # `certainty` of a clear split of few items, where it can be asked
    few_together: float = 0.2  # least mean silhouette of every part of few items
    few_items: float = 20.0  # few items fall into parts more easily by chance
    label_spread: float = 0.15  # labels split only items that lack so much of each other's samples (u^1.5)
    label_floor: float = 0.6  # least silhouette of a split by labels
    few_label_floor: float = 0.75  # the same for the first split of few items
    clouds: Annotated[int, Ge(0)] = 20  # number of structureless clouds per test
    seed: int = 0  # of the clouds; it decides only borderline cases


@options
class ClusteringOptions:
    """Every choice between signatures and clusters (§3.3, §3.4)."""

    angles: AngleKind = "subspace"  # smallest angle between two spans, or between two vectors (Eq. 4)
    class_weighting: ClassWeighting = "reliability"  # how shared classes count; frequency: Eqs. 5 and 6
    delta: Annotated[float, Ge(0), Le(1)] = 0.6  # δ, frequency weights lie in [1 - δ, 1 + δ]
    epsilon: Annotated[float, Gt(1)] = e  # ε of Eq. 5; with e, every ratio of log counts is at least 1
    weigh_absent: bool = False  # whether frequency weights also multiply the 90° of an absent class
    fusion: Fusion = "views"  # any number of views (`compose.py`), or one of the rules for the w of Eq. 7
    fusion_rule: FusionRule = "symmetric"  # w_ij = (w_i + w_j) / 2, or the paper's w_i for i < j
    entropy: EntropyOptions = EntropyOptions()
    linkage: Linkage = "average"
    cut_rule: CutRule = "structure"  # how the cut is chosen, see `choose_cut`
    num_clusters: Annotated[int, Ge(0)] = 0  # if > 0: this number of clusters, instead of the rule
    threshold: Annotated[float, Ge(0)] = 0.0  # α; if > 0: cut here, instead of the rule
    thresholds: tuple[float, ...] = GRID  # the cuts that are scored
    loss: LossWeights = LossWeights()
    structure: StructureRule = StructureRule()
    landmarks: Annotated[int, Ge(0)] = 2000  # of more items so many are clustered, others placed; 0: never

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta = {self.delta}: expected a number from 0 to 1")
        if self.epsilon <= 1:
            raise ValueError(f"epsilon = {self.epsilon}: expected more than 1, else ln(0 + epsilon) ≤ 0")
        if self.num_clusters < 0 or self.threshold < 0:
            raise ValueError("num_clusters and threshold must not be negative")
        if not self.thresholds:
            raise ValueError("thresholds: at least one is needed")

    @property
    def composes(self) -> bool:
        """Whether any number of views is fused, in place of the two matrices of Eq. 7."""
        return self.fusion == "views" and self.class_weighting == "reliability"

    @property
    def splits(self) -> bool:
        """Whether clusters are those that the views show; otherwise a rule cuts the fused matrix."""
        return self.composes and self.cut_rule == "structure" and not self.num_clusters and not self.threshold

    def describe(self, found: bool = True) -> str:
        """How the cut is chosen, in one sentence for people; `found`: whether a view split somebody."""
        if self.splits and not found:
            return "No view shows groups that chance would not show, so nobody was split."
        if self.splits:
            return "Clients were split by the view that separates them best, then again inside every part."
        chosen = f"by rule '{self.cut_rule}'"
        if self.num_clusters or self.threshold:
            chosen = f"to give {self.num_clusters} clusters" if self.num_clusters else "by hand"
        return f"The cut was chosen {chosen} on {self.linkage} linkage."


@options
class GraphOptions:
    """How clusters find the clusters that they learn from (§4, Eqs. 11 to 14)."""

    num_sources: Annotated[int, Ge(1)] = 2  # k, the number of clusters that each cluster learns from
    alignment: bool = True  # Γ: a source counts for a class as far as both clusters' features agree
    lacking_classes: bool = True  # clients demand most the classes that they lack; paper: undefined
    shared_alignment: bool = True  # Γ over pairs that both have the class; paper: over all pairs
