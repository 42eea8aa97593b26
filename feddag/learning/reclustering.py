# SPDX-License-Identifier: Apache-2.0
"""Clustering all of FedDAG's clients again: when, on which evidence, and what the new clusters inherit."""

from dataclasses import replace
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.again import overlaps, renumbered, separation, stability
from feddag.clustering.agglomerative import agreement
from feddag.clustering.kin import Kinship
from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.pipeline import ClusteringResult, cluster_signatures
from feddag.clustering.proximity import Frame
from feddag.clustering.tree import KeptTree
from feddag.core.algorithm import Server
from feddag.core.averaging import mean
from feddag.core.clusters import Clusters
from feddag.core.message import options
from feddag.core.params import Params
from feddag.learning.dual import EncoderOptions
from feddag.learning.signature import Signature, items_of


@options
class FollowOptions:
    """When clusters are looked at again."""

    storm: Annotated[float, Gt(0), Le(1)] = (
        0.3  # share of alarmed clients above which all are clustered again
    )
    # Share of clients with alarms since the last clustering before a new look; at least 3, a small cluster.
    alarmed: Annotated[float, Gt(0), Le(1)] = 0.1
    changed: Annotated[float, Gt(0), Le(1)] = 0.1  # share of new, moved and weak clients before a new look
    least_changed: Annotated[int, Ge(1)] = 3  # and their least number
    alike: Annotated[float, Gt(0), Le(1)] = 0.95  # a clustering that agrees as much (ARI) changes nothing
    gain: Annotated[float, Ge(0)] = 0.05  # growth of the silhouette that a new clustering needs
    stable: Annotated[float, Gt(0), Le(1)] = 0.9  # mean ARI with clusterings of 90% of the clients
    rest: Annotated[int, Ge(0)] = 4  # rounds between two looks
    heir: Annotated[float, Gt(0), Le(1)] = 0.6  # share of the samples that makes an old model the new one
    forget: bool = False  # delete the signatures of clients that leave
    idle: Annotated[int, Ge(0)] = 50  # rounds after which a cluster without anybody there teaches no other


class Method(Protocol):
    """What the responses need of FedDAG."""

    @property
    def clustering_options(self) -> ClusteringOptions: ...  # noqa: D102
    @property
    def graph(self) -> GraphOptions: ...  # noqa: D102
    @property
    def follow(self) -> FollowOptions: ...  # noqa: D102
    @property
    def encoders(self) -> EncoderOptions: ...  # noqa: D102


class FollowingState(Protocol):
    """What the responses need of a state."""

    clusters: Clusters
    models: tuple[Params, ...]
    sources: tuple[tuple[int, ...], ...]
    signatures: dict[str, Signature]
    mask: int
    frame: Frame
    tree: KeptTree
    changed: tuple[str, ...]  # clients that joined, moved or fit badly since the last clustering
    settled: int  # the round of the last look
    empty: dict[str, int] | None  # cluster of which nobody is there → since which round; None: no such one


State = TypeVar("State", bound=Any)


def evident(
    signatures: dict[str, Signature],
    state: FollowingState,
    method: Method,
    server: Server,
    rival: FollowingState | None = None,
) -> tuple[ClusteringResult | None, bool]:
    """A new clustering, if it is another one, a better one, and a stable one; or the clusters of now.

    And it must not join clusters of different kinds: those of now, or of another state that is to be had. The
    second answer is whether it is another one: if not, it has the clusters of now, measured anew.
    """
    items = items_of(signatures)
    found = cluster_signatures(items, method.clustering_options, method.graph, seed=state.mask)
    labels = state.clusters.labels()
    now_N, new_N = np.array([labels[c] for c in signatures]), np.asarray(found.labels_N)
    alike = agreement(new_N, now_N)
    now = separation(found.distances_NN, now_N)
    gain = separation(found.distances_NN, new_N) - now
    # One cluster has no silhouette: it is better when the clusters of now are not to be seen any more.
    better = gain >= method.follow.gain or (found.count == 1 and now < method.follow.gain)
    evidence = {"agreement": round(alike, 4), "gain": round(gain, 4), "clusters": found.count}
    accepted = alike < method.follow.alike and better
    if accepted and method.clustering_options.composes:
        rivals = (rival or state).clusters.labels()
        kinship = Kinship.of(items, method.clustering_options)
        accepted = not kinship.joins(new_N, np.array([rivals[c] for c in signatures]))
        evidence["joins"] = not accepted
    if accepted:
        clients = [*signatures]

        def cluster_rows(rows: np.ndarray) -> np.ndarray:
            some = {clients[i]: signatures[clients[i]] for i in rows}
            return np.asarray(
                cluster_signatures(
                    items_of(some), method.clustering_options, method.graph, seed=state.mask
                ).labels_N
            )

        generator = (server.seed / "settle" / server.round).numpy()
        evidence["stability"] = round(stability(new_N, cluster_rows, generator), 4)
        accepted = evidence["stability"] >= method.follow.stable
    server.note(recluster={**evidence, "accepted": accepted})
    return (found if accepted or alike == 1 else None), accepted


def adopted(
    state: State,
    signatures: dict[str, Signature],
    found: ClusteringResult,
    method: Method,
    server: Server,
) -> State:
    """The state with a new clustering: clusters renumbered by overlap, models carried over, a new graph."""
    labels, samples_N = (
        state.clusters.labels(),
        np.array([s.counts.sum() for s in signatures.values()], float),
    )
    old_N, raw_N = np.array([labels[c] for c in signatures]), np.asarray(found.labels_N)
    new_N = renumbered(raw_N, old_N, samples_N)
    number = dict(zip(raw_N.tolist(), new_N.tolist(), strict=True))
    sources: list[tuple[int, ...]] = [(z,) for z in range(found.count)]
    if method.encoders.sharing:
        for z, learned in enumerate(found.sources()):
            sources[number[z]] = tuple(number[s] for s in learned)
    models = tuple(
        model_of(state.models, brought, method.follow.heir) for brought in overlaps(new_N, old_N, samples_N)
    )
    members = [[c for c, z in zip(signatures, new_N, strict=True) if z == k] for k in range(found.count)]
    return replace(
        state,
        clusters=Clusters(members=tuple(tuple(group) for group in members)),
        models=models,
        sources=tuple(sources),
        signatures=dict(signatures),
        frame=found.frame,
        tree=KeptTree.of(signatures, found),
        changed=(),
        settled=server.round,
        sharing=(),
        partners=(),
        weights=(),
        empty=None,
    )


def measured_anew(state: State, found: ClusteringResult, method: Method, server: Server) -> State:
    """The state with the same clusters and models, and with constants, tree and graph of a new clustering."""
    new = adopted(state, state.signatures, found, method, server)
    kept = {
        "sharing": state.sharing,
        "partners": state.partners,
        "weights": state.weights,
        "settled": state.settled,
        "empty": state.empty,
    }
    return replace(new, **kept)


def model_of(models: tuple[Params, ...], brought_Z: np.ndarray, heir: float) -> Params:
    """The model of the old cluster that brings most samples, or else the mean by samples."""
    if not brought_Z.sum():
        return models[0]
    if brought_Z.max() >= heir * brought_Z.sum():
        return models[int(brought_Z.argmax())]
    used = np.flatnonzero(brought_Z)
    return mean([models[z] for z in used], brought_Z[used].tolist())
