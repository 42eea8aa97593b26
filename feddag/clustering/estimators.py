# SPDX-License-Identifier: Apache-2.0
"""The same clustering with scikit-learn's manners: fit, labels_, get_params, set_params."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin

from feddag.clustering.agglomerative import Linkage
from feddag.clustering.choice import Rule, RuleName, choose
from feddag.clustering.pipeline import ClusteringOptions, Fusion, Views, cluster_signatures
from feddag.clustering.subspaces import class_subspaces


class AgglomerativeByScore(ClusterMixin, BaseEstimator):
    """Hierarchical clustering of precomputed distances in [0, 1] that finds its number of clusters."""

    def __init__(
        self,
        rule: RuleName = "structure",
        linkage: Linkage = "average",
        n_clusters: int | None = None,
        threshold: float | None = None,
        min_size: int = 3,
        random_state: int = 0,
    ) -> None:
        self.rule = rule
        self.linkage = linkage
        self.n_clusters = n_clusters
        self.threshold = threshold
        self.min_size = min_size
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> "AgglomerativeByScore":
        """Cluster the distances X; sets labels_, n_clusters_, threshold_ and choice_."""
        rule = Rule(
            name=self.rule,
            linkage=self.linkage,
            count=self.n_clusters,
            threshold=self.threshold,
            min_size=self.min_size,
            seed=self.random_state,
        )
        self.choice_ = choose(X, rule)
        self.labels_ = self.choice_.labels_N
        self.n_clusters_ = self.choice_.count
        self.threshold_ = self.choice_.threshold
        self.n_features_in_ = len(self.labels_)
        return self


class SignatureClustering(ClusterMixin, BaseEstimator):
    """Clusters labelled data sets by class subspaces and, if given, by the direction of updates."""

    def __init__(
        self,
        num_classes: int = 10,
        p: int | float = 3,
        views: Views = "data",
        fusion: Fusion = "structure",
        rule: RuleName = "structure",
        sources: int = 1,
        random_state: int = 0,
    ) -> None:
        self.num_classes = num_classes
        self.p = p
        self.views = views
        self.fusion = fusion
        self.rule = rule
        self.sources = sources
        self.random_state = random_state

    def fit(
        self,
        X: Sequence[ArrayLike],
        y: Sequence[ArrayLike],
        sketches: ArrayLike | None = None,
    ) -> "SignatureClustering":
        """X and y: samples and labels of every data set; sets labels_, n_clusters_, threshold_, result_."""
        if len(X) != len(y):
            raise ValueError(f"{len(X)} data sets, but {len(y)} sets of labels")
        subspaces = [
            class_subspaces(x, labels, self.num_classes, self.p) for x, labels in zip(X, y, strict=True)
        ]
        counts = [np.bincount(np.asarray(labels, dtype=np.int64), minlength=self.num_classes) for labels in y]
        options = ClusteringOptions(
            views=self.views,
            fusion=self.fusion,
            rule=Rule(name=self.rule, seed=self.random_state),
            sources=self.sources,
            seed=self.random_state,
        )
        self.result_ = cluster_signatures(
            subspaces, np.array(counts).reshape(len(counts), self.num_classes), sketches, options
        )
        self.labels_ = self.result_.labels_N
        self.n_clusters_ = self.result_.count
        self.threshold_ = self.result_.threshold
        return self
