# SPDX-License-Identifier: Apache-2.0
"""The clustering as scikit-learn estimators: fit, fit_predict, labels_, get_params, set_params."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_array

from feddag.clustering.arrays import IntArray
from feddag.clustering.cut import choose_cut
from feddag.clustering.items import Items
from feddag.clustering.options import (
    ClusteringOptions,
    CutRule,
    Fusion,
    GraphOptions,
    Linkage,
    StructureRule,
)
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.subspaces import class_subspaces


class AgglomerativeByScore(ClusterMixin, BaseEstimator):
    """Hierarchical clustering of a matrix of distances in [0, 1] that finds the number of clusters.

    Parameters: `metric` is always "precomputed", as in scikit-learn: X is the distance matrix. `cut_rule`,
    `linkage` and `min_size` are those of `ClusteringOptions` and `StructureRule`. `n_clusters` or `threshold`
    give the cut directly, instead of the rule.

    Fitted attributes: `labels_`, `n_clusters_`, `threshold_`, `n_features_in_`, and `cut_` with the linkage
    matrix, the scores of all cuts and the tests of rule "structure".

    >>> import numpy as np
    >>> points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    >>> distances = np.abs(points[:, None] - points[None])
    >>> found = AgglomerativeByScore().fit(distances / distances.max())
    >>> found.labels_.tolist(), found.n_clusters_
    ([0, 0, 0, 1, 1, 1], 2)
    """

    def __init__(
        self,
        cut_rule: CutRule = "structure",
        linkage: Linkage = "average",
        n_clusters: int | None = None,
        threshold: float | None = None,
        min_size: int = 3,
        random_state: int = 0,
        metric: Literal["precomputed"] = "precomputed",
    ) -> None:
        self.cut_rule = cut_rule
        self.linkage = linkage
        self.n_clusters = n_clusters
        self.threshold = threshold
        self.min_size = min_size
        self.random_state = random_state
        self.metric = metric

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that X is a matrix of distances."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags

    def fit(self, X: ArrayLike, y: None = None) -> "AgglomerativeByScore":
        """Cluster the distances X, a symmetric matrix with a zero diagonal."""
        if self.metric != "precomputed":
            raise ValueError(f"metric = {self.metric!r}: expected precomputed, X must hold distances")
        if self.n_clusters is not None and self.n_clusters < 1:
            raise ValueError(f"n_clusters = {self.n_clusters}: expected at least 1")
        options = ClusteringOptions(
            linkage=self.linkage,
            cut_rule=self.cut_rule,
            num_clusters=self.n_clusters or 0,
            threshold=self.threshold or 0.0,
            structure=StructureRule(min_size=self.min_size, seed=self.random_state),
        )
        self.cut_ = choose_cut(check_array(X, dtype=np.float64), options)
        self.labels_ = self.cut_.labels_N
        self.n_clusters_ = self.cut_.count
        self.threshold_ = self.cut_.threshold
        self.n_features_in_ = len(self.labels_)
        return self


class SignatureClustering(ClusterMixin, BaseEstimator):
    """Clusters labelled data sets by class subspaces and, if given, by the direction of model updates.

    Parameters: `num_classes` is the number of classes; None infers it from the labels. Labels may be strings.
    `vectors` is the number of principal vectors per class, below 1 a share of the class. The others are those
    of `ClusteringOptions` and `GraphOptions`.

    Fitted attributes: `labels_`, `n_clusters_`, `threshold_`, `classes_` (the labels found in y),
    `names_` (the keys of X, or the positions), and `result_` with all steps, graph of sources included.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.tile(["cat", "dog"], 20)
    >>> pattern = np.where(labels == "cat", 0.0, 6.0)[:, None] * np.eye(8)[0]
    >>> x = {f"client {i}": rng.normal(size=(40, 8)) + (pattern if i < 4 else 6 - pattern) for i in range(8)}
    >>> found = SignatureClustering().fit(x, {name: labels for name in x})
    >>> found.labels_.tolist(), found.classes_.tolist()
    ([0, 0, 0, 0, 1, 1, 1, 1], ['cat', 'dog'])
    """

    def __init__(
        self,
        num_classes: int | None = None,
        vectors: float = 3,
        fusion: Fusion = "views",
        cut_rule: CutRule = "structure",
        num_sources: int = 1,
        random_state: int = 0,
    ) -> None:
        self.num_classes = num_classes
        self.vectors = vectors
        self.fusion = fusion
        self.cut_rule = cut_rule
        self.num_sources = num_sources
        self.random_state = random_state

    def fit(
        self,
        X: Sequence[ArrayLike] | Mapping[str, ArrayLike],
        y: Sequence[ArrayLike] | Mapping[str, ArrayLike],
        sketches: ArrayLike | None = None,
    ) -> "SignatureClustering":
        """X and y: the samples and labels of every data set, as lists or as name → array.

        `sketches` holds one row per data set: its model update, or some coordinates of it; one more view.
        """
        self.names_: list[Any] = list(X) if isinstance(X, Mapping) else list(range(len(X)))
        samples = [np.asarray(x) for x in (X.values() if isinstance(X, Mapping) else X)]
        targets = self._targets(y)
        if len(samples) != len(targets):
            raise ValueError(f"{len(samples)} data sets, but {len(targets)} sets of labels")
        if any(labels.ndim != 1 for labels in targets) or any(x.ndim < 2 for x in samples):
            raise ValueError("X and y must hold one array of samples and one list of labels per data set")
        codes, num_classes = self._encoded(targets)
        subspaces = [
            class_subspaces(x, labels, num_classes, self.vectors)
            for x, labels in zip(samples, codes, strict=True)
        ]
        counts = [np.bincount(labels, minlength=num_classes) for labels in codes]
        options = ClusteringOptions(
            fusion=self.fusion,
            cut_rule=self.cut_rule,
            structure=StructureRule(seed=self.random_state),
        )
        self.result_ = cluster_signatures(
            Items.of(subspaces, np.array(counts).reshape(len(counts), num_classes), sketches),
            options,
            GraphOptions(num_sources=self.num_sources),
            seed=self.random_state,
        )
        self.labels_ = self.result_.labels_N
        self.n_clusters_ = self.result_.count
        self.threshold_ = self.result_.cut.threshold
        return self

    def _targets(self, y: Sequence[ArrayLike] | Mapping[str, ArrayLike]) -> list[np.ndarray]:
        """The labels of every data set, in the order of X."""
        if not isinstance(y, Mapping):
            return [np.asarray(labels) for labels in y]
        if set(y) != set(self.names_):
            odd = sorted(map(str, set(y) ^ set(self.names_)))
            raise ValueError(f"X and y must have the same names; only one of them has {', '.join(odd)}")
        return [np.asarray(y[name]) for name in self.names_]

    def _encoded(self, targets: list[np.ndarray]) -> tuple[list[IntArray], int]:
        """Labels as numbers from 0, and the number of classes."""
        filled = [labels for labels in targets if len(labels)]
        self.classes_ = np.unique(np.concatenate(filled)) if filled else np.zeros(0, dtype=np.int64)
        if self.num_classes is not None and self.classes_.dtype.kind in "iu":
            self.classes_ = np.arange(self.num_classes)
            return [labels.astype(np.int64) for labels in targets], self.num_classes
        num_classes = len(self.classes_) if self.num_classes is None else self.num_classes
        if len(self.classes_) > num_classes:
            raise ValueError(f"y has {len(self.classes_)} different labels, but num_classes = {num_classes}")
        return [np.searchsorted(self.classes_, labels) for labels in targets], num_classes
