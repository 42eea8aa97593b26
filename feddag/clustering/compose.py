# SPDX-License-Identifier: Apache-2.0
"""Fusion over any number of views: split by the view that separates best, then again inside every part.

A view is a matrix of distances with its noise. It may split a set of items if its best cut

- has a silhouette above those of clouds without structure (`structure.py`),
- gives parts that hold together: the mean silhouette of every part is above a floor,
- is no chance: both halves of the classes show it (`confirm.py`); or, where that cannot be asked, it is clear
  and moves the parts apart by more than the known error of the items that are moved apart.

So a view without structure splits nothing, and views that show different groups (labels in one, styles in
another) give the product of both, as long as parts have `min_size` items. Labels are counted, not sampled:
their distances u^1.5 are on the fixed scale from 0 (the same classes) to 1 (no class in common).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from feddag.clustering.agglomerative import link
from feddag.clustering.arrays import FloatArray, IntArray, canonical_labels
from feddag.clustering.confirm import FEW_ITEMS, MOST_ITEMS, confirmation
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.silhouette import best_cut, settled, silhouettes, sums_by_cluster
from feddag.clustering.similarity import min_max, normalised
from feddag.clustering.structure import cloud_silhouettes, least_size, mean_distance
from feddag.core.message import message, public


@dataclass(frozen=True)
class ViewMatrix:
    """One view of N items, as the fusion sees it."""

    name: str
    distances_NN: FloatArray
    """On the scale [0, 1]."""
    sines_NN: FloatArray | None = None
    """sin² of the angles, cleared of noise; None for labels, which have no noise."""
    errors_N: FloatArray | None = None
    typical_error: float = 0.0
    halves: Callable[[IntArray], tuple[FloatArray, ...]] | None = None
    """Angles between some items by half of the classes and by the others; None: there are no classes."""


@message
class Split:
    """One question of the fusion: do these items fall into parts, and which view shows it?"""

    members: np.ndarray = public()  # positions of the items
    parts: np.ndarray = public()  # the part of each member; all 0 if they stay together
    view: str = ""  # empty if no view splits them
    silhouette: float = 0.0
    clouds: float = 0.0  # best silhouette of the structureless clouds
    separation: float = 0.0  # how far the parts are apart, in errors

    @property
    def sizes(self) -> list[int]:
        """Members of each part."""
        return np.bincount(self.parts).tolist()


def compose(views: list[ViewMatrix], num_items: int, options: ClusteringOptions) -> tuple[Split, ...]:
    """All questions, from everybody to the final clusters; those without a view are the clusters."""
    waiting: list[IntArray] = [np.arange(num_items)]
    splits: list[Split] = []
    while waiting:
        members = waiting.pop(0)
        proposals = [found for view in views if (found := propose(view, members, options))]
        # The best first: whether a split is real is the expensive question.
        proposals.sort(key=lambda proposal: -proposal.silhouette)
        best = next((split for proposal in proposals if (split := real_split(proposal, options))), None)
        if best is None:
            best = Split(members=members, parts=np.zeros(len(members), dtype=np.int64))
        else:
            waiting += [members[best.parts == part] for part in range(len(best.sizes))]
        splits.append(best)
    return tuple(splits)


def labels_of(splits: tuple[Split, ...], num_items: int) -> IntArray:
    """The clusters that remain after all splits, numbered by smallest member."""
    labels_N = np.zeros(num_items, dtype=np.int64)
    for number, split in enumerate(s for s in splits if not s.view):
        labels_N[split.members] = number
    return canonical_labels(labels_N)


@dataclass(frozen=True)
class Proposal:
    """The best cut of some items by one view, before it is asked whether it is real."""

    view: ViewMatrix
    members: IntArray
    inner_NN: FloatArray  # distances of the members
    parts: IntArray
    silhouette: float
    weakest: float = 1.0  # least mean silhouette of a part
    few: bool = False  # whether it is the first split of few items


def propose(view: ViewMatrix, members: IntArray, options: ClusteringOptions) -> Proposal | None:
    """How one view would split some items; None if its parts do not hold together."""
    rule, whole = options.structure, len(members) == len(view.distances_NN)
    min_size = least_size(len(view.distances_NN), rule)
    inner = view.distances_NN if whole else view.distances_NN[np.ix_(members, members)]
    spread = mean_distance(inner)
    few = whole and len(members) < rule.few
    if len(members) < 2 * min_size or spread <= 0:
        return None
    if view.sines_NN is None:
        if spread < rule.label_spread:
            return None
        silhouette, parts = best_cut(inner, link(inner, options.linkage), min_size)
        clear = parts.max() > 0 and silhouette >= (rule.few_label_floor if few else rule.label_floor)
        return Proposal(view, members, inner, parts, silhouette) if clear else None
    inner = inner if whole else normalised(inner, min_max(inner, resolution=0.0))
    _, parts = best_cut(inner, link(inner, options.linkage), min_size)
    if not parts.max():
        return None
    silhouette, parts = settled(inner, parts, min_size)
    weakest = weakest_part(inner, parts)
    if weakest < rule.together:
        return None
    return Proposal(view, members, inner, parts, silhouette, weakest, few)


def real_split(proposal: Proposal, options: ClusteringOptions) -> Split | None:
    """The split, or None if chance would show it, too. Labels are counted, so their proposals are real."""
    view, members, silhouette = proposal.view, proposal.members, proposal.silhouette
    split = Split(members=members, parts=proposal.parts, view=view.name, silhouette=silhouette)
    if view.sines_NN is None:
        return split
    rule, few = options.structure, proposal.few
    min_size = least_size(len(view.distances_NN), rule)
    generator = np.random.default_rng(rule.seed)  # its own, so that what a view says depends on no other view

    @cache
    def certainty() -> float | None:
        return confirmed(view, members, min_size, options, generator)

    floor, together, margin = rule.clear_floor, rule.clear_together, rule.clear_margin
    if few:
        floor, together, margin = rule.floor, rule.few_together, rule.margin
    apart, enough = separation(view, members, split.parts), rule.separation + rule.few_items / len(members)
    clear = silhouette >= floor and proposal.weakest >= together and apart >= enough
    # By chance alone few items fall into parts that look clear.
    if few and (asked := certainty()) is not None:
        clear &= asked >= rule.few_certainty
    # Asked first, because many clouds cost more.
    if not clear and (certainty() or 0) < rule.certainty:
        return None
    limit = silhouette - rule.margin
    reached_R = cloud_silhouettes(
        proposal.inner_NN, rule.clouds, min_size, options.linkage, generator, until=limit
    )
    clouds = float(reached_R.max(initial=0))
    if clouds >= limit:
        return None
    clear_of_clouds = not clear or silhouette >= clouds + margin
    if not clear_of_clouds and (certainty() or 0) < rule.certainty:
        return None
    return replace(split, clouds=clouds, separation=apart)


def confirmed(
    view: ViewMatrix,
    members: IntArray,
    min_size: int,
    options: ClusteringOptions,
    generator: np.random.Generator,
) -> float | None:
    """How surely two halves of the classes show the same parts, in standard deviations; None: unknown."""
    if view.halves is None or len(members) < FEW_ITEMS:
        return None
    if len(members) > MOST_ITEMS:
        members = np.sort(generator.choice(members, MOST_ITEMS, replace=False))
    halves = view.halves(members)
    return confirmation(halves, min_size, options.linkage, generator) if halves else None


def separation(view: ViewMatrix, members: IntArray, parts_M: IntArray) -> float:
    """(mean sin² between parts - mean sin² within) / error; the error is that of the pairs between parts."""
    assert view.sines_NN is not None
    assert view.errors_N is not None
    inside_MP = (parts_M[:, None] == np.arange(parts_M.max() + 1)).astype(np.float64)
    sizes_P = inside_MP.sum(axis=0)
    sines_PP = inside_MP.T @ view.sines_NN[np.ix_(members, members)].astype(np.float64) @ inside_MP
    within, between = float(np.trace(sines_PP)), float(sines_PP.sum() - np.trace(sines_PP))
    pairs_within = float((sizes_P * (sizes_P - 1)).sum())
    pairs_between = float(len(members) ** 2 - (sizes_P**2).sum())
    difference = between / max(pairs_between, 1) - within / max(pairs_within, 1)
    # An item takes part in as many pairs between parts as there are items in other parts.
    others_M = len(members) - sizes_P[parts_M]
    error = float((view.errors_N[members] * others_M).sum() / max(others_M.sum(), 1))
    return difference / max(error, view.typical_error, 1e-30)


def weakest_part(distances_NN: FloatArray, labels_N: IntArray) -> float:
    """The least mean silhouette of a part: items that are odd, each in its own way, are no group."""
    sizes_Z = np.bincount(labels_N)
    silhouettes_N = silhouettes(sums_by_cluster(distances_NN, labels_N).T.copy(), labels_N, sizes_Z)
    return float((np.bincount(labels_N, weights=silhouettes_N) / sizes_Z).min())
