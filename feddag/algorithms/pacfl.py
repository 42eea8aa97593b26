# SPDX-License-Identifier: Apache-2.0
"""PACFL (Vahidian et al., 2023): cluster once, by angles between the clients' data subspaces; then FedAvg.

U_i holds the first p left singular vectors of every class of client i. Angles, in degrees:
  eq2       min over a, b of arccos |u_a · v_b|
  eq3       Σ over a ≤ min(p_i, p_j) of arccos |u_a · v_a|: same-position columns
  subspace  arccos σ_max(U_iᵀ U_j): as eq2, whatever basis spans the data
The absolute value is ours: singular vectors have no sign, and without it θ may become 180° − θ.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from feddag.clustering.agglomerative import cut, cut_into, link
from feddag.clustering.angles import class_angle_blocks, degrees
from feddag.clustering.options import Linkage
from feddag.clustering.subspaces import Subspaces
from feddag.core.algorithm import Server, algorithm, broadcast, place_cohort
from feddag.core.averaging import add_means
from feddag.core.clustering import Clustering, Tree, View
from feddag.core.clusters import Clusters
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, client_task
from feddag.learning.signature import SignatureOptions, data_view
from feddag.learning.train import train, train_own

Measure = Literal["eq2", "eq3", "subspace"]


@message
class Describe:
    """Tell the principal vectors of your classes."""

    vectors: int  # p: largest number per class


def _most_rows(known: Known) -> int:
    return known.problem.num_classes * known.request.vectors


@message
class Basis:
    """U_i: principal vectors as rows, class after class."""

    vectors_PD: np.ndarray = sensitive(
        "subspaces", shape=("rows", "features"), dtype="float32", least=-1.01, most=1.01, most_rows=_most_rows
    )


@message
class State:
    """Who belongs together, a model for each cluster, and what newcomers are compared with."""

    clusters: Clusters
    models: tuple[Params, ...] = public()
    bases: dict[str, Basis]
    threshold: float  # degrees


@client_task
def describe(request: Describe, client: Client) -> Basis:
    """A truncated SVD of each class of the raw samples."""
    asked = SignatureOptions(views=("pixels",), side=0, vectors=request.vectors)
    return Basis(vectors_PD=data_view("pixels", client, asked).vectors_PD)


def angles_between(bases: Mapping[str, Basis], measure: Measure) -> np.ndarray:
    """Symmetric matrix of angles in degrees, clients in the mapping's order."""
    vectors = [basis.vectors_PD for basis in bases.values()]
    angles_NN = np.full((len(vectors), len(vectors)), 90.0)  # a client without vectors is far from everyone
    if measure == "eq3":
        for i, u in enumerate(vectors):
            for j, v in enumerate(vectors[:i]):
                m = min(len(u), len(v))
                angles_NN[i, j] = angles_NN[j, i] = degrees(np.abs((u[:m] * v[:m]).sum(1))).sum()
    else:
        # All vectors under one class: PACFL compares whole data sets, not class by class.
        together = [Subspaces(v, np.zeros(len(v), dtype=np.int64)) for v in vectors]
        kind: Literal["pairs", "subspace"] = "pairs" if measure == "eq2" else "subspace"
        for block in class_angle_blocks(together, num_classes=1, angles=kind):
            angles_NN[np.ix_(block.rows_I, block.columns_J)] = block.degrees_IJ
            angles_NN[np.ix_(block.columns_J, block.rows_I)] = block.degrees_IJ.T
    np.fill_diagonal(angles_NN, 0)
    return angles_NN


def nearest_threshold(tree: np.ndarray, num_clusters: int, min_size: int = 1) -> float:
    """The middle of the range of thresholds that cut the tree into the wanted number (ties: fewer).

    Clusters below `min_size` do not count: singletons would use the number up.
    """
    counts = range(num_clusters, len(tree) + 2 if min_size > 1 else num_clusters + 1)
    cuts = [cut_into(tree, count) for count in counts]
    large = [int((np.bincount(labels_N) >= min_size).sum()) for labels_N, _ in cuts]
    best = min(range(len(cuts)), key=lambda i: (abs(large[i] - num_clusters), i))
    low = cuts[best][1]
    above = tree[tree[:, 2] > low, 2] if len(tree) else np.array([])
    return float((low + above.min()) / 2) if len(above) else max(low, 180.0)


def absorbed(labels_N: np.ndarray, angles_NN: np.ndarray, min_size: int) -> np.ndarray:
    """Labels in which every cluster below `min_size` has joined the large one of the least mean angle."""
    sizes = np.bincount(labels_N)
    large = np.flatnonzero(sizes >= min_size)
    result = labels_N.copy()
    for small in np.flatnonzero((sizes > 0) & (sizes < min_size)) if len(large) else []:
        rows = labels_N == small
        distance = [angles_NN[np.ix_(rows, labels_N == k)].mean() for k in large]
        result[rows] = large[int(np.argmin(distance))]
    return result


@algorithm
class PACFL:
    """One model per cluster; clusters found once, from principal angles between the clients' data."""

    local: LocalTraining = LocalTraining()
    vectors: Annotated[int, Ge(1)] = 3  # p, the authors' CIFAR-10 script (their option's default is 5)
    measure: Measure = "eq2"  # the one in the authors' code
    linkage: Linkage = "weighted"  # what the authors' code calls average: the mean of two rows (WPGMA)
    # Degrees up to which clusters merge; dataset-specific (authors: 4.9 on CIFAR-10, 3.5 as default).
    threshold: Annotated[float, Ge(0)] | None = None
    num_clusters: Annotated[int, Ge(1)] = 5  # without a threshold: the cut that is nearest to this number
    # Smaller clusters join the nearest other one, and are not counted in num_clusters; authors: 1.
    min_size: Annotated[int, Ge(1)] = 1
    warmup_rounds: Annotated[int, Ge(0)] = (
        0  # all clients train at the start; a control for FedDAG's warm start
    )

    tasks = (describe, train)
    clusters_at_start: ClassVar[bool] = True

    def start(self, server: Server) -> State:
        """Ask every client for its vectors, cluster, and give each cluster the same random model."""
        bases = server.ask(describe, broadcast(Describe(vectors=self.vectors), server.clients))
        angles_NN = angles_between(bases, self.measure)
        tree = link(angles_NN, self.linkage)
        threshold = self.threshold
        if threshold is None:
            threshold = nearest_threshold(tree, self.num_clusters, self.min_size)
        labels_N = absorbed(cut(tree, threshold), angles_NN, self.min_size)
        clusters = Clusters.from_labels([*bases], labels_N)
        server.note(num_clusters=len(clusters), threshold=threshold)
        models, labels = (server.initial_params(),) * len(clusters), clusters.labels()
        for _ in range(self.warmup_rounds):
            models = add_means(
                models, server.ask_mean(train, train_own(models, labels, bases, self.local), labels)
            )
        return State(clusters=clusters, models=models, bases=bases, threshold=threshold)

    def round(self, state: State, server: Server) -> State:
        """FedAvg within each cluster."""
        if server.spent(self.warmup_rounds):
            return state
        state, cohort = place_cohort(self.onboard, state, lambda s: s.clusters.labels(), server)
        known = state.clusters.labels()
        requests = train_own(state.models, known, cohort, self.local)
        models = add_means(state.models, server.ask_mean(train, requests, known))
        return State(clusters=state.clusters, models=models, bases=state.bases, threshold=state.threshold)

    def deploy(self, state: State, client: str) -> Deployment:
        """The model of the client's cluster; outside of all clusters, whichever fits its data best."""
        labels = state.clusters.labels()
        return Deployment(models=(state.models[labels[client]],) if client in labels else state.models)

    def clustering(self, state: State) -> Clustering:
        """The clusters, the angles between all bases, and the tree that newcomers are held to."""
        angles_NN, ids = angles_between(state.bases, self.measure), tuple(state.bases)
        return Clustering(
            clusters=state.clusters,
            how=f"Principal angles between the clients' data ({self.measure}), {self.linkage} linkage.",
            clients=ids,
            views={"Data angles": View(angles_NN, "degrees")},
            tree=Tree(ids, link(angles_NN, self.linkage), state.threshold),
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Cut again with the newcomers; each joins the cluster most of its group is in, else the nearest."""
        bases = server.ask(describe, broadcast(Describe(vectors=self.vectors), newcomers))
        everyone = {**state.bases, **bases}
        ids, labels = [*everyone], state.clusters.labels()
        angles_NN = angles_between(everyone, self.measure)
        groups = dict(zip(ids, cut(link(angles_NN, self.linkage), state.threshold), strict=True))
        clusters = state.clusters
        for newcomer in bases:
            to = dict(zip(ids, angles_NN[ids.index(newcomer)], strict=True))
            votes = [labels[c] for c in labels if groups[c] == groups[newcomer]]
            distance = [np.mean([to[c] for c in members]) for members in state.clusters.members]
            nearest = min(range(len(distance)), key=lambda k: (-votes.count(k), distance[k]))
            clusters = clusters.add(newcomer, nearest)
        return State(clusters=clusters, models=state.models, bases=everyone, threshold=state.threshold)
