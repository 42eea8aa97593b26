# SPDX-License-Identifier: Apache-2.0
"""What is kept of a clustering with a run: its tree, who split whom, and who resembles nobody."""

from collections.abc import Iterable

import numpy as np

from feddag.clustering.compose import Split
from feddag.clustering.pipeline import ClusteringResult
from feddag.core.clustering import SplitBy, Tree
from feddag.core.message import message, public


@message
class KeptTree:
    """The linkage that was cut, where it was cut, and the scores of other cuts: O(N) numbers."""

    clients: tuple[str, ...]  # the leaves, in the order of the linkage matrix
    linkage_matrix: np.ndarray = public()
    threshold: float
    thresholds_T: np.ndarray = public()
    counts_T: np.ndarray = public()
    losses_T: np.ndarray = public()
    silhouettes_T: np.ndarray = public()  # 0 where it is not defined, because messages hold no NaN
    splits: tuple[Split, ...] = ()  # which view split whom; members are positions of `clients`
    unlike: tuple[str, ...] = ()  # clients that resemble nobody

    @classmethod
    def of(cls, clients: Iterable[str], found: ClusteringResult) -> "KeptTree":
        """The tree of a clustering of these clients; of very many, the tree of the landmarks."""
        ids, cut, everyone = tuple(clients), found.cut, found.everyone
        leaves = ids
        if everyone is not None:
            leaves = tuple(ids[i] for i in np.searchsorted(everyone.rows_N, everyone.landmarks))
        return cls(
            clients=leaves,
            splits=tuple(split for split in found.splits if split.view),
            unlike=tuple(c for c, alone in zip(ids, found.unlike_N, strict=True) if alone),
            linkage_matrix=cut.linkage_matrix,
            threshold=cut.threshold,
            thresholds_T=cut.scored.thresholds_T,
            counts_T=cut.scored.counts_T,
            losses_T=cut.scored.losses_T,
            silhouettes_T=np.nan_to_num(cut.scored.silhouettes_T),
        )

    def shown_splits(self) -> tuple[SplitBy, ...]:
        """The splits by client, in the form of all methods."""
        return tuple(
            SplitBy(
                view=split.view,
                parts=tuple(
                    tuple(sorted(self.clients[i] for i in split.members[split.parts == part]))
                    for part in range(len(split.sizes))
                ),
                silhouette=split.silhouette,
            )
            for split in self.splits
        )

    def tree(self) -> Tree:
        """The tree in the form of all methods; NaN where a silhouette is not defined."""
        defined_T = (self.counts_T > 1) & (self.counts_T < len(self.clients))
        return Tree(
            clients=self.clients,
            linkage_matrix=self.linkage_matrix,
            threshold=self.threshold,
            thresholds_T=self.thresholds_T,
            counts_T=self.counts_T,
            losses_T=self.losses_T,
            silhouettes_T=np.where(defined_T, self.silhouettes_T, np.nan),
        )
