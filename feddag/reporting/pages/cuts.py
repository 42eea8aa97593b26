# SPDX-License-Identifier: Apache-2.0
"""How the clusters in use relate to a plain cut of the tree, so that a page never contradicts itself."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from feddag.core.clustering import Clustering, Tree
from feddag.core.text import plural


@dataclass(frozen=True)
class CutFacts:
    """What is known about the cut that gave the clusters in use."""

    plain_count: int  # clusters of the plain cut at the threshold of the tree
    silhouette: float | None  # of the clusters in use; None where the tree has not scored this partition
    loss: float | None
    sentence: str  # why the clusters in use differ from the plain cut; empty where they do not


def cut_facts(clustering: Clustering) -> CutFacts | None:
    """Compare the clusters in use with the plain cut; None without a tree."""
    tree = clustering.tree
    if tree is None:
        return None
    used = clustering.clusters.labels()
    plain_L = plain_cut(tree, tree.threshold)
    silhouette, loss = _scores(tree, used)
    plain_count = len(np.unique(plain_L))
    return CutFacts(plain_count, silhouette, loss, _difference(tree, used, plain_L, len(clustering.clusters)))


def plain_cut(tree: Tree, threshold: float) -> np.ndarray:
    """One label per leaf when all merges at or below the threshold are made and nothing else."""
    from scipy.cluster.hierarchy import fcluster

    if len(tree.clients) < 2:
        return np.zeros(len(tree.clients), dtype=np.int64)
    linkage_matrix = np.asarray(tree.linkage_matrix, dtype=np.float64)
    return np.asarray(fcluster(linkage_matrix, threshold, criterion="distance"))


def _used_leaves(tree: Tree, used: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Which leaves are still in a cluster, and in which one."""
    kept = np.array([i for i, c in enumerate(tree.clients) if c in used], dtype=np.int64)
    return kept, np.array([used[tree.clients[i]] for i in kept], dtype=np.int64)


def _scores(tree: Tree, used: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Silhouette and loss of the scored cut that equals the clusters in use."""
    kept, used_K = _used_leaves(tree, used)
    if len(kept) < len(tree.clients):
        return None, None
    for t in np.argsort(np.abs(tree.thresholds_T - tree.threshold), kind="stable"):
        cut_K = plain_cut(tree, float(tree.thresholds_T[t]))
        if refines(cut_K, used_K) and refines(used_K, cut_K):
            return _known(tree.silhouettes_T, int(t)), _known(tree.losses_T, int(t))
    return None, None


def _known(values_T: np.ndarray, t: int) -> float | None:
    return float(values_T[t]) if t < len(values_T) and np.isfinite(values_T[t]) else None


def refines(fine_N: np.ndarray, coarse_N: np.ndarray) -> bool:
    """Whether every group of the first partition lies inside one group of the second."""
    pairs = set(zip(fine_N.tolist(), coarse_N.tolist(), strict=True))
    return len(pairs) == len(set(fine_N.tolist()))


def _difference(tree: Tree, used: Mapping[str, int], plain_L: np.ndarray, in_use: int) -> str:
    kept, used_K = _used_leaves(tree, used)
    plain_K = plain_L[kept]
    reasons = []
    if not refines(used_K, plain_K) or not refines(plain_K, used_K):
        if refines(plain_K, used_K):
            reasons.append(_merge_reason(plain_K, used_K))
        elif refines(used_K, plain_K):
            reasons.append("some clusters were split further")
        else:
            reasons.append("the method changed some clusters after the cut")
    outside = in_use - len(np.unique(used_K))
    if outside:
        hold = "holds" if outside == 1 else "hold"
        reasons.append(f"{plural(outside, 'cluster')} {hold} only clients that are not in the tree")
    if len(kept) < len(tree.clients):
        gone = len(tree.clients) - len(kept)
        reasons.append(f"{plural(gone, 'client')} of the tree left the clusters")
    if not reasons:
        return ""
    because, plain_count = " and ".join(reasons), len(np.unique(plain_L))
    if plain_count == in_use:
        return f"The clusters in use are not exactly those of a plain cut at {tree.threshold:.3g}: {because}."
    are = "is" if in_use == 1 else "are"
    return (
        f"A plain cut of the tree at {tree.threshold:.3g} gives {plural(plain_count, 'cluster')}, "
        f"but {plural(in_use, 'cluster')} {are} in use: {because}."
    )


def _merge_reason(plain_K: np.ndarray, used_K: np.ndarray) -> str:
    """The plain clusters that were merged: small ones into a larger one, or equals."""
    for z in np.unique(used_K):
        sizes = np.sort(np.unique(plain_K[used_K == z], return_counts=True)[1])
        if len(sizes) > 1 and sizes[-1] == sizes[-2]:
            return "some clusters were merged"
    return "small clusters joined their nearest larger one"
