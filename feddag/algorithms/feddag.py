# SPDX-License-Identifier: Apache-2.0
"""FedDAG (ICLR 2026): clusters from data and gradient similarity, then one two-encoder model per cluster.

    start   sign           every client trains alone from a common start, sends its signature (§3.1, §3.2)
            cluster        fused proximity matrix, hierarchical clustering, complementarity graph (§3.3–§4)
            share_warm     primary encoders start as the cluster mean of the warmed-up ones (Eq. 22)
    round   train_dual     primary phase on own data (Eqs. 16–18), secondary phase for learners (Eqs. 19–21)

Every place where the paper is silent or ambiguous is a field below; presets: `recommended`, `paper`.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.choice import Rule
from feddag.clustering.complementarity import ComplementarityGraph
from feddag.clustering.fusion import Entropy
from feddag.clustering.newcomers import place_newcomers
from feddag.clustering.pipeline import (
    ClusteringOptions,
    ClusteringResult,
    Frame,
    cluster_signatures,
    newcomer_distances,
)
from feddag.clustering.reliable import Noise
from feddag.clustering.similarity import CountWeights, MinMax
from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.averaging import mean, step
from feddag.core.clusters import Clusters
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.learning.dual import PRIMARY, SECONDARY, TrainDual, TrainedDual, train_dual, widened
from feddag.learning.signature import ShareWarm, Sign, Signature, columns, share_warm, sign
from feddag.learning.train import Train, train


@message
class State:
    """Everything rounds, newcomers and drift need."""

    clusters: Clusters
    models: tuple[Params, ...] = public()
    sources: tuple[tuple[int, ...], ...]  # for each cluster, the clusters it learns from
    signatures: dict[str, Signature]
    start: Params = public()  # θ⁰ of the warm-up: a newcomer's angles are comparable only from here
    mask: int
    weights: np.ndarray = public()  # w, fusion weight of each signature, in their order
    noise: np.ndarray = public()  # clients × classes: what sampling does to the angles
    ranges: tuple[float, ...]  # normalisation constants of `ranges_of`
    threshold: float  # α*


@algorithm
class FedDAG:
    """Clusters found from data and gradients; two encoders each, the second learns from other clusters."""

    local: LocalTraining = LocalTraining()
    # signatures
    warmup_rounds: Annotated[int, Ge(1)] = 2  # t_g, rounds of training alone before the signature
    warmup_update: Literal["total", "last"] = "total"  # which update is sketched: of all rounds, of the last
    sketch_share: Annotated[float, Gt(0), Le(1)] = 0.02  # share of the update's coordinates that is sent
    vectors: Annotated[float, Gt(0)] = 3.0  # p, principal vectors a class; below 1: a share of the class
    svd: Literal["exact", "randomised", "subsampled"] = "exact"
    min_samples_per_vector: Annotated[float, Ge(0)] = 0.0  # 50 where signatures leave real sites
    # clustering
    similarity: Literal["fused", "data", "gradient"] = "fused"
    angles: Literal["subspace", "pairs"] = "subspace"  # least angle of the subspaces, or of basis vectors
    weighting: Literal["reliability", "frequency"] = "reliability"  # of a shared class; frequency: Eqs. 5, 6
    delta: Annotated[float, Ge(0), Le(1)] = 0.6  # class-frequency weights lie in [1 − δ, 1 + δ]
    weigh_absent: bool = False  # whether they also multiply the 90° of a class that only one client has
    fusion: Literal["structure", "entropy", "mlp", "mean"] = "structure"  # how both views are weighed
    fusion_rule: Literal["symmetric", "row"] = "symmetric"  # w_ij = (w_i + w_j)/2, or the paper's w_i, i < j
    linkage: Literal["average", "single", "complete", "weighted"] = "average"
    rule: Literal["structure", "silhouette", "loss", "plateau"] = "structure"  # how the cut is chosen
    num_clusters: Annotated[int, Ge(0)] = 0  # if > 0: this many, instead of the rule
    threshold: Annotated[float, Ge(0)] = 0.0  # if > 0: cut here, instead of the rule
    # complementarity graph
    num_sources: Annotated[int, Ge(1)] = 2  # k, clusters that each cluster learns from
    alignment: bool = True  # Γ: a source counts for a class as far as its features of it are aligned
    lacking_classes: bool = True  # a class that a client lacks is what it demands most; paper: undefined
    shared_alignment: bool = True  # Γ over pairs that both have the class; paper: over all pairs
    # two encoders
    encoders: Annotated[int, Ge(1), Le(2)] = 2  # 1: FedDAG*
    sharing: bool = True  # False: FedDAG†, the secondary encoder learns from the own cluster
    combine: Literal["mean", "sum"] = "mean"  # Θ^{2f'} of several learners; the paper sums
    source_updates: Literal["mean", "sum"] = "mean"  # of a learner's several sources; the paper sums
    # in turn: the secondary phase under the primary encoder and head just trained; both phases from the same
    # round-start model ("parallel", Eqs. 17 and 20) move head and features against each other, and diverge
    phases: Literal["in turn", "parallel"] = "in turn"
    secondary_epochs: Annotated[int, Ge(0)] = 0  # of the secondary phase; 0: as many as the primary phase
    primary_start: Literal["warm", "random"] = "warm"  # Eq. 22, or the appendix's alternative
    head_start: Literal["warm", "random"] = "warm"  # warm: as well, not looking at the second encoder yet
    # sources: mean of the source clusters' warmed-up encoders, so features of other clusters' data from the
    # first round on; common: one random encoder for all; random: one each; copy: of the own primary encoder
    secondary_start: Literal["sources", "common", "random", "copy"] = "sources"
    diversity: Annotated[float, Ge(0)] = 0.0  # λ_div; 0.1 goes with primary_start = "random"
    schedule: Annotated[int, Ge(0)] = 0  # K: K primary rounds, then a secondary one; 0: both every round

    tasks = (sign, share_warm, train, train_dual)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "recommended": {},
        "paper": {  # to the letter, wherever the letter can be computed
            "vectors": 0.01,
            "angles": "pairs",
            "weighting": "frequency",
            "weigh_absent": True,
            "fusion": "mlp",
            "fusion_rule": "row",
            "rule": "loss",
            "lacking_classes": False,
            "shared_alignment": False,
            "combine": "sum",
            "phases": "parallel",
            "source_updates": "sum",
            "head_start": "random",
            "secondary_start": "random",
        },
    }

    def start(self, server: Server) -> State:
        """Signatures of all clients, clusters, complementarity graph, warm-started models."""
        start, mask = self.common_start(server)
        signatures, clustering = self.find_clusters(server)
        frame = clustering.frame
        clusters = Clusters.from_labels(list(signatures), clustering.labels_N)
        sources = self.sources(clustering.graph, len(clusters))
        server.note(
            num_clusters=len(clusters),
            sizes=[len(members) for members in clusters.members],
            threshold=clustering.threshold,
            fusion_weight=float(frame.weights_N.mean()),
            withheld=sum(s.withheld for s in signatures.values()),
        )
        return State(
            clusters=clusters,
            models=self.initial_models(signatures, clusters, sources, server),
            sources=sources,
            signatures=signatures,
            start=start,
            mask=mask,
            weights=frame.weights_N,
            noise=frame.noise.levels_NC if frame.noise else np.zeros((0, 0), dtype=np.float32),
            ranges=ranges_of(frame),
            threshold=frame.threshold,
        )

    def common_start(self, server: Server) -> tuple[Params, int]:
        """θ⁰ and the mask of the sketches, the same for all clients, now and later."""
        return server.initial_params(), (server.seed / "sketch").integer()

    def find_clusters(self, server: Server) -> tuple[dict[str, Signature], ClusteringResult]:
        """Ask all clients to sign, and cluster them: the answer to "which of my clients are alike?"."""
        start, mask = self.common_start(server)
        request = self.question(start, mask, keep=self.primary_start == "warm")
        signatures = server.ask(sign, broadcast(request, server.clients))
        return signatures, self.cluster(signatures, mask)

    def cluster(self, signatures: dict[str, Signature], seed: int) -> ClusteringResult:
        """Everything between signatures and clusters (§3.3, §3.4, §4)."""
        return cluster_signatures(*columns(signatures), self.options(seed))

    def options(self, seed: int) -> ClusteringOptions:
        """The clustering choices of this algorithm."""
        rule = Rule(self.rule, self.linkage)
        if self.num_clusters:
            rule = Rule("count", self.linkage, count=self.num_clusters)
        elif self.threshold:
            rule = Rule("threshold", self.linkage, threshold=self.threshold)
        return ClusteringOptions(
            views=self.similarity,
            kind=self.angles,
            weighting=self.weighting,
            delta=self.delta,
            weigh_absent=self.weigh_absent,
            fusion=self.fusion,
            entropy=Entropy(rule=self.fusion_rule),
            rule=rule,
            sources=self.num_sources,
            align=self.alignment,
            lacking_classes=self.lacking_classes,
            shared_only=self.shared_alignment,
            seed=seed,
        )

    def sources(self, graph: ComplementarityGraph, num_clusters: int) -> tuple[tuple[int, ...], ...]:
        """Whom every cluster learns from; itself without sharing (FedDAG†) and where there is nobody else."""
        if not self.sharing or num_clusters == 1:
            return tuple((z,) for z in range(num_clusters))
        return tuple(tuple(graph.sources_of(z)) for z in range(num_clusters))

    def question(self, start: Params, mask: int, keep: bool) -> Sign:
        """What clients are asked at the start, and newcomers later."""
        # Data angles need no update: without a warm model to keep, nobody trains.
        trains = keep or self.similarity != "data"
        return Sign(
            start=start,
            local=self.local,
            warmup_rounds=self.warmup_rounds if trains else 0,
            update=self.warmup_update,
            mask=mask,
            sketch_share=self.sketch_share,
            vectors=self.vectors,
            svd=self.svd,
            min_samples_per_vector=self.min_samples_per_vector,
            keep=keep,
        )

    @property
    def network(self) -> str:
        """The kind of network every cluster trains."""
        return "dual" if self.encoders == 2 else "single"

    def initial_models(
        self,
        signatures: dict[str, Signature],
        clusters: Clusters,
        sources: tuple[tuple[int, ...], ...],
        server: Server,
    ) -> tuple[Params, ...]:
        """Θ_z^{1f} is the mean of the members' warmed-up encoders, weighted by samples (Eq. 22)."""
        models = [server.initial_params(self.network, f"cluster {z}") for z in range(len(clusters))]
        if self.primary_start == "warm":
            parts = ("primary.",) if self.encoders == 2 and self.head_start == "random" else PRIMARY
            replies = server.ask(share_warm, broadcast(ShareWarm(prefixes=parts), signatures))
            for z, members in clusters.group(replies).items():
                warm = mean([r.params for r in members.values()], [signatures[c].examples for c in members])
                models[z] = models[z].replace(warm if self.encoders == 1 else widened(warm, models[z]))
        if self.encoders == 2 and self.secondary_start == "common":
            models = [m.replace(models[0].select(*SECONDARY)) for m in models]
        if self.encoders == 2 and self.secondary_start in ("copy", "sources"):
            warm_Z = [m.select("primary.").rename("primary.", "secondary.") for m in models]
            if self.secondary_start == "sources":
                warm_Z = [mean([warm_Z[q] for q in sources[z]]) for z in range(len(models))]
            models = [m.replace(warm) for m, warm in zip(models, warm_Z, strict=True)]
        return tuple(models)

    def round(self, state: State, server: Server) -> State:
        """Every cluster from one snapshot of all models, so that the order of clusters plays no part."""
        strangers = tuple(c for c in server.cohort if c not in state.signatures)
        if strangers:  # they could not be asked at the start
            state = self.onboard(state, strangers, server)
        labels = state.clusters.labels()
        cohort = [c for c in server.cohort if c in labels]
        if self.encoders == 1:
            plain = [Train(params=model, local=self.local) for model in state.models]
            trained = state.clusters.group(server.ask(train, {c: plain[labels[c]] for c in cohort}))
            models = [step(m, trained.get(z, {})) for z, m in enumerate(state.models)]
            return replace(state, models=tuple(models))
        lessons = [self.lesson(state, z, server.round) for z in range(len(state.models))]
        requests = {c: lesson for c in cohort if (lesson := lessons[labels[c]]) is not None}
        return self.learn(state, state.clusters.group(server.ask(train_dual, requests)))

    def lesson(self, state: State, z: int, round_: int) -> TrainDual | None:
        """What cluster z is asked to do in a round: its own phase, its learners' phase, both or nothing."""
        # A K:1 schedule is K rounds of the primary phase, then one of the secondary phase.
        enriching = self.schedule > 0 and round_ % (self.schedule + 1) == 0
        primary = not enriching
        learners = [p for p, sources in enumerate(state.sources) if z in sources]
        visiting = None
        if learners and (enriching or self.schedule == 0):
            encoders = [state.models[p].select(*SECONDARY) for p in learners]
            visiting = mean(encoders) * (len(encoders) if self.combine == "sum" else 1)
        if not primary and visiting is None:
            return None
        return TrainDual(
            model=state.models[z],
            visiting=visiting,
            primary=primary,
            in_turn=self.phases == "in turn",
            diversity=self.diversity,
            local=self.local,
            secondary_epochs=self.secondary_epochs,
        )

    def learn(self, state: State, replies: dict[int, dict[str, TrainedDual]]) -> State:
        """Primary encoders and heads by Eq. 18, secondary encoders of all learners by Eq. 21."""
        models = list(state.models)
        visited: dict[int, Params] = {}
        for z, members in replies.items():
            shares = [r.examples for r in members.values()]
            primary = [r.update for r in members.values() if r.update is not None]
            if primary:
                models[z] = models[z].replace(models[z].select(*PRIMARY) + mean(primary, shares))
            secondary = [r.visiting for r in members.values() if r.visiting is not None]
            if secondary:
                visited[z] = mean(secondary, shares)
        for p, sources in enumerate(state.sources):
            updates = [visited[q] for q in sources if q in visited]
            if updates:
                total = mean(updates) * (len(updates) if self.source_updates == "sum" else 1)
                models[p] = models[p].replace(models[p].select(*SECONDARY) + total)
        return replace(state, models=tuple(models))

    def deploy(self, state: State, client: str) -> Deployment:
        """The model of the client's cluster; of the largest one for a client that never signed."""
        sizes = [len(members) for members in state.clusters.members]
        z = state.clusters.labels().get(client, int(np.argmax(sizes)))
        return Deployment(models=(state.models[z],), network=self.network)

    def explain(self, state: State) -> ClusteringResult:
        """Every step from the signatures to the clusters, for people who ask why.

        Shown are the clusters and sources in use: newcomers have joined them since, old clients stayed.
        """
        result, labels = self.cluster(state.signatures, state.mask), state.clusters.labels()
        used_N = np.array([labels[c] for c in state.signatures])
        edges = [(p, q) for p, sources in enumerate(state.sources) for q in sources if p != q]
        learners_E, sources_E = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return replace(
            result,
            labels_N=used_N,
            choice=replace(result.choice, labels_N=used_N),
            graph=replace(result.graph, learners_E=learners_E, sources_E=sources_E),
        )

    def onboard(self, state: State, newcomers: tuple[str, ...], server: Server) -> State:
        """Newcomers sign from the stored start and mask; old clients stay where they are (G1–G3)."""
        strangers = [c for c in newcomers if c not in state.signatures]  # who signed before stays as it is
        request = self.question(state.start, state.mask, keep=False)
        replies = server.ask(sign, broadcast(request, strangers), quorum=0.0)
        if not replies:
            return state
        labels, frame = state.clusters.labels(), self.frame(state)
        old, new = columns(state.signatures), columns(replies)
        known = frame.noise.levels_NC if frame.noise else None
        distances_NN = newcomer_distances(frame, *old, *old, known)[0]
        old_labels = np.array([labels[c] for c in state.signatures])
        placement = place_newcomers(new, old, distances_NN, old_labels, frame)
        clusters, models, sources = state.clusters, list(state.models), list(state.sources)
        for client, label, nearest in zip(replies, placement.labels_M, placement.nearest_M, strict=True):
            clusters = clusters.add(client, int(label))
            if label == len(models):  # newcomers on their own: they start from the nearest cluster's model
                models.append(models[nearest])
                sources.append(sources[nearest] if self.sharing else (int(label),))
        server.note(
            placed={c: int(z) for c, z in zip(replies, placement.labels_M, strict=True)},
            weak=[c for c, weak in zip(replies, placement.weak_M, strict=True) if weak],
        )
        return replace(
            state,
            clusters=clusters,
            models=tuple(models),
            sources=tuple(sources),
            signatures={**state.signatures, **replies},
            weights=np.concatenate([state.weights, placement.weights_M]),
            noise=np.concatenate([state.noise, placement.noise_MC]) if frame.noise else state.noise,
        )

    def frame(self, state: State) -> Frame:
        """How proximity was measured when the state's clusters were found."""
        data, gradient, (low, high) = (state.ranges[i : i + 2] for i in (0, 2, 4))
        noise = Noise(state.noise, state.ranges[6]) if len(state.noise) else None
        return Frame(
            data_scale=MinMax(*data),
            gradient_scale=MinMax(*gradient),
            count_weights=CountWeights(low, high, self.delta, weigh_absent=self.weigh_absent),
            noise=noise,
            weights_N=state.weights,
            threshold=state.threshold,
            options=self.options(state.mask),
        )


def ranges_of(frame: Frame) -> tuple[float, ...]:
    """Low and high of data angles, gradient angles and class-frequency ratios; the angles' typical error."""
    counts = frame.count_weights or CountWeights(1.0, 1.0)
    ranges = [v for r in (frame.data_scale, frame.gradient_scale, counts) for v in (r.low, r.high)]
    return *ranges, frame.noise.typical if frame.noise else 0.0
