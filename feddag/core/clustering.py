# SPDX-License-Identifier: Apache-2.0
"""Clustering: what a method found out about its clients, in one form for pages, programs and dashboards.

Only what a server may know is in it. Planted groups and data sources are a simulation's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from feddag.core.clusters import Clusters


@dataclass(frozen=True)
class View:
    """One way to look at the clients: how far apart each two of them are."""

    matrix_NN: np.ndarray
    unit: str  # for example "degrees"


@dataclass(frozen=True)
class Tree:
    """A hierarchical clustering, where it was cut, and what other cuts would have given."""

    clients: tuple[str, ...]  # the leaves, in the order of the linkage matrix
    linkage_matrix: np.ndarray  # as scipy has it
    threshold: float
    thresholds_T: np.ndarray = field(default_factory=lambda: np.zeros(0))
    counts_T: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    losses_T: np.ndarray = field(default_factory=lambda: np.zeros(0))
    silhouettes_T: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class SplitBy:
    """Clients that one view told apart."""

    view: str
    parts: tuple[tuple[str, ...], ...]
    silhouette: float


@dataclass(frozen=True)
class Sampled:
    """Of very many clients only some were compared with each other; the others joined the nearest cluster."""

    landmarks: int  # clients that were compared with each other
    confidence: Mapping[str, tuple[float, int]]  # of everybody: how sure its cluster is, and the second one
    counts_ZC: np.ndarray  # samples of every class in each cluster


@dataclass(frozen=True)
class Clustering:
    """Who belongs to whom, and what that was decided by."""

    clusters: Clusters
    how: str  # one sentence for people
    clients: tuple[str, ...] = ()  # rows of views, counts and weights; may lack clients that never told
    views: Mapping[str, View] = field(default_factory=dict)
    counts_NC: np.ndarray | None = None  # class counts, where clients told them
    weights_N: np.ndarray | None = None  # how much the second view counted for each client
    tree: Tree | None = None
    sources: tuple[tuple[int, ...], ...] | None = None  # for each cluster the clusters it learns from
    splits: tuple[SplitBy, ...] = ()  # which view split whom, from everybody to the clusters
    unlike: tuple[str, ...] = ()  # clients that resemble nobody; each is in the nearest cluster
    withheld: int = 0  # class signatures that were not sent, for privacy
    sampled: Sampled | None = None  # then `clients` are some of every cluster
