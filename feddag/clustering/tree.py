# SPDX-License-Identifier: Apache-2.0
"""The tree of a clustering in use, small enough to be kept with a run."""

from collections.abc import Iterable

import numpy as np

from feddag.clustering.cut import Cut
from feddag.core.clustering import Tree
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

    @classmethod
    def of(cls, clients: Iterable[str], cut: Cut) -> "KeptTree":
        """The tree of a cut."""
        return cls(
            clients=tuple(clients),
            linkage_matrix=cut.linkage_matrix,
            threshold=cut.threshold,
            thresholds_T=cut.scored.thresholds_T,
            counts_T=cut.scored.counts_T,
            losses_T=cut.scored.losses_T,
            silhouettes_T=np.nan_to_num(cut.scored.silhouettes_T),
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
