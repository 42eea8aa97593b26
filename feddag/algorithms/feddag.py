# SPDX-License-Identifier: Apache-2.0
"""FedDAG (ICLR 2026): clusters from data and gradient similarity, one model each, that learn from each other.

    start   sign           every client sends its signature, if asked after training alone (§3.1, §3.2)
            cluster        fused proximity matrix, hierarchical clustering, complementarity graph (§3.3–§4)
            share_warm     if wanted, models start as the cluster mean of the warmed-up ones (Eq. 22)
    round   train          with two encoders train_dual: primary (Eqs. 16–18) and secondary phase (Eqs. 19–21)
            share          if wanted, clusters average their models for some rounds (`shared_start`)
            mix            clients say which other clusters' models help theirs (`mixture`)

Where the paper is silent or ambiguous, a field of an options class says what is done.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from feddag.clustering.options import ClusteringOptions, GraphOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.proximity import Frame, shown_views
from feddag.clustering.tree import KeptTree
from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import add_means
from feddag.core.clustering import Clustering
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.learning import following
from feddag.learning.dual import EncoderOptions, start_models, train_both, train_dual
from feddag.learning.mixture import MixtureOptions, Weights, explain, mix, mixed
from feddag.learning.outliers import offered
from feddag.learning.presets import PRESETS, former_names
from feddag.learning.reclustering import FollowOptions
from feddag.learning.shared_start import SharedStartOptions, share, weigh
from feddag.learning.signature import Sign, Signature, SignatureOptions, items_of, share_warm, sign
from feddag.learning.signatures import SignatureReader, Unsigned, comparable
from feddag.learning.train import train, train_own

GROUPS: dict[str, Any] = {"signature": SignatureOptions, "clustering": ClusteringOptions}
GROUPS |= {"graph": GraphOptions, "encoders": EncoderOptions}


@message
class State:
    """Everything that rounds and newcomers need."""

    clusters: Clusters
    models: tuple[Params, ...] = public()
    sources: tuple[tuple[int, ...], ...]  # whom each cluster learns from; without sharing (FedDAG†) itself
    signatures: dict[str, Signature]
    start: Params = public()  # θ⁰ of the warm-up: the updates of newcomers are comparable only from here
    mask: int  # selects the coordinates of all sketches
    frame: Frame  # how the signatures were compared, in their order
    tree: KeptTree  # the hierarchical clustering, and where it was cut
    changed: tuple[str, ...] = ()  # clients that joined, moved or fit badly since the clustering
    settled: int = 0  # the round in which the clusters were last looked at
    sharing: tuple[int, ...] = ()  # the clusters whose models are still averaged (`shared_start`)
    partners: tuple[tuple[int, ...], ...] = ()  # while some share: with whom each cluster may
    unsigned: Unsigned | None = None  # of very many clients: those whose signatures are not kept, too
    empty: dict[str, int] | None = None  # cluster of which nobody is there → since which round
    weights: Weights = ()  # of the models that each cluster's clients use (`mixture`); (): their own


@algorithm
class FedDAG:
    """Clusters found from data and gradients, whose models learn from each other."""

    local: LocalTraining = LocalTraining()
    signature: SignatureOptions = SignatureOptions()
    # `algorithm.clustering` in settings; here `clustering` is what every method that finds clusters answers.
    clustering_options: Annotated[ClusteringOptions, Field(alias="clustering")] = ClusteringOptions()
    graph: GraphOptions = GraphOptions()
    encoders: EncoderOptions = EncoderOptions()
    follow: FollowOptions = FollowOptions()
    shared_start: SharedStartOptions = SharedStartOptions()
    mixture: MixtureOptions = MixtureOptions()
    seen_labels: bool = True  # clients lower outputs of labels they have never seen, if validation agrees
    # what clients that resemble nobody are served: the best by validation, or the nearest cluster's model
    outliers: Literal["validation", "cluster"] = "validation"

    tasks = (sign, share_warm, train, train_dual, weigh, explain)
    clusters_at_start: ClassVar[bool] = True
    MOVED: ClassVar[dict[str, str]] = former_names(GROUPS)
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    def suited(self, problem: Problem, noisy: bool = False) -> "FedDAG":
        """This method with the views that suit the data; `noisy`: they will carry noise for privacy."""
        return replace(self, signature=self.signature.suited(problem, noisy))

    def without_sketches(self) -> "FedDAG":
        """This method where updates of single clients may not be seen: clusters by the data alone."""
        return replace(self, signature=self.signature.without_gradient())

    def trainings(self) -> tuple[int, int]:
        """How often a client trains at the start, and in a round that it takes part in, at most."""
        return self.warmup(keep=self.encoders.primary_start == "warm"), self.encoders.count

    def start(self, server: Server) -> State:
        """Signatures of all clients, clusters, complementarity graph, models."""
        start, mask = server.initial_params(), (server.seed / "sketch").integer()
        request = self.signature_request(start, mask, keep=self.encoders.primary_start == "warm")
        reader = SignatureReader(server, request)
        found = cluster_signatures(reader, self.clustering_options, self.graph, seed=mask)
        clusters = reader.clusters(found)
        sources = found.sources() if self.encoders.sharing else tuple((z,) for z in range(found.count))
        server.note(**reader.notes(found))
        state = State(
            clusters=clusters,
            models=start_models(server, clusters, sources, self.encoders, reader.signed, found.opened_from),
            sources=sources,
            signatures=reader.kept(found),
            start=start,
            mask=mask,
            frame=found.kept_frame,
            tree=KeptTree.of(reader.names(found), found),
            unsigned=reader.unsigned(found),
            sharing=tuple(range(found.count)) if self.shared_start.rounds and found.count > 1 else (),
        )
        return share(state, state.models, None, self.encoders.network, self.shared_start, server)

    def warmup(self, keep: bool = False) -> int:
        """Rounds that everybody trains alone. Views of data need none, if no warm model is wanted either."""
        return self.signature.warmup_rounds if keep or "gradient" in self.signature.views else 0

    def signature_request(self, start: Params, mask: int, keep: bool) -> Sign:
        """What clients are asked at the start, and newcomers later."""
        signature = self.signature.asked(self.warmup(keep))
        return Sign(start=start, local=self.local, signature=signature, mask=mask, keep=keep)

    def round(self, state: State, server: Server) -> State:
        """All clusters start from the same snapshot of all models, so the order of clusters has no effect."""
        if server.spent(self.warmup(self.encoders.primary_start == "warm")):
            return state
        unsigned = tuple(c for c in server.cohort if c not in state.clusters)
        if unsigned:  # they did not answer at the start
            state = self.onboard(state, unsigned, server)
        state = following.who_is_there(state, server)
        labels, models = state.clusters.labels(), state.models
        sources = following.active_sources(state, self.follow.idle, server.round)
        members = {c: labels[c] for c in server.cohort if c in labels}
        if self.encoders.count == 1:
            trained: Any = server.ask_mean(train, train_own(models, members, members, self.local), members)
            own = add_means(models, trained)
        else:
            own, trained = train_both(models, sources, members, self.encoders, self.local, server)
        state = share(state, own, trained, self.encoders.network, self.shared_start, server)
        return mix(state, self.encoders.network, self.mixture, server)

    def deploy(self, state: State, client: str) -> Deployment:
        """The client's cluster's model, maybe with others mixed to it; the largest's for who never signed."""
        z = state.clusters.of(client) if client in state.clusters else state.clusters.largest
        served = self.encoders.served(state.models[z], seen_labels=self.seen_labels)
        alone = self.outliers == "validation" and client in state.tree.unlike
        return offered(served, state, self.local) if alone else mixed(served, state, z)

    def clustering(self, state: State) -> Clustering:
        """The clusters in use, and what they were decided by; angles are measured again, nothing else."""
        items, others = items_of(state.signatures), state.unsigned
        return Clustering(
            clusters=state.clusters,
            how=self.clustering_options.describe(bool(state.tree.splits)),
            clients=tuple(state.signatures),
            views=shown_views(items, state.frame),
            counts_NC=items.counts_NC,
            weights_N=state.frame.shown_weights,
            tree=state.tree.tree(),
            splits=state.tree.shown_splits(),
            unlike=state.tree.unlike,
            sources=state.sources,
            withheld=others.withheld if others else sum(s.withheld for s in state.signatures.values()),
            sampled=others.sampled() if others else None,
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers sign from the stored start and mask; who signed before stays in its cluster."""
        signed = self.signed(state, [c for c in newcomers if c not in state.clusters], server)
        return following.take_in(state, signed, self, server) if signed else state

    def signed(self, state: State, clients: Iterable[str], server: Server) -> dict[str, Signature]:
        """Fresh signatures, comparable with those of the start."""
        request = self.signature_request(state.start, state.mask, keep=False)
        return server.ask(sign, broadcast(comparable(request, state), clients), quorum=0.0)

    def depart(self, state: State, gone: tuple[str, ...], server: Server) -> State:
        """Who leaves keeps its place, unless signatures are to be forgotten."""
        return following.forget(state, gone) if self.follow.forget else state

    def drifted(self, state: State, alarmed: tuple[str, ...], server: Server) -> State:
        """Clients whose data changed sign again and are placed; a storm is one re-clustering."""
        signed = self.signed(state, [c for c in alarmed if c in state.clusters], server)
        return following.answer_drift(state, signed, self, server)

    def settle(self, state: State, server: Server) -> State:
        """After enough change, the whole choice of clusters again; accepted only with evidence."""
        return following.settle(state, self, server)
