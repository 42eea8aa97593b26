# SPDX-License-Identifier: Apache-2.0
"""Models of two encoders: their start (Eq. 22), training (Eqs. 16–20) and averaging (Eqs. 18 and 21).

A *learner* is a cluster that learns from another cluster, its *source*. In the secondary phase the clients of
a source train the secondary encoder that was borrowed from its learners.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le

from feddag.core.algorithm import Server, broadcast
from feddag.core.averaging import Mean, mean
from feddag.core.clusters import Clusters
from feddag.core.contract import Known
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.message import message, options, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, sgd_task
from feddag.learning.losses import Loss, cross_entropy
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.sgd import sgd
from feddag.learning.signature import ShareWarm, share_warm

PRIMARY, SECONDARY = ("primary.", "head."), ("secondary.",)
Sources = tuple[tuple[int, ...], ...]  # for each cluster, the clusters that it learns from


@options
class EncoderOptions:
    """How the models of the clusters start and train."""

    count: Annotated[int, Ge(1), Le(2)] = 1  # encoders per model; the paper has 2, and calls 1 FedDAG*
    sharing: bool = True  # False is FedDAG†: the secondary encoder learns from its own cluster
    combine_learners: Literal["mean", "sum"] = "mean"  # Θ^{2f'} of several learners; the paper sums
    source_updates: Literal["mean", "sum"] = "mean"  # of several sources of one learner; the paper sums
    # sequential: train the secondary encoder on top of this round's primary encoder and head.
    # parallel: train both from the same round-start model (Eqs. 17 and 20); this was seen to diverge.
    phases: Literal["sequential", "parallel"] = "sequential"
    secondary_epochs: Annotated[int, Ge(0)] = 0  # of the secondary phase; 0: as in the primary phase
    # warm: the mean of the members' warmed-up models (Eq. 22); common: θ⁰, the same for all, so that nobody
    # warms up and one cluster is FedAvg; random: one random model per cluster (the appendix's alternative).
    primary_start: Literal["common", "warm", "random"] = "common"
    head_start: Literal["warm", "random"] = "warm"  # warm: from the warm-up; the second encoder counts 0
    # sources: the mean of the source clusters' warmed-up encoders; common: one random encoder for all;
    # random: one random encoder per cluster; copy: the cluster's own primary encoder.
    secondary_start: Literal["sources", "common", "random", "copy"] = "sources"
    diversity: Annotated[float, Ge(0)] = 0.0  # λ_div; 0.1 belongs to primary_start = "random"
    primary_rounds: Annotated[int, Ge(0)] = 0  # K primary rounds, then a secondary one; 0: both each round

    @property
    def network(self) -> Literal["single", "dual"]:
        """The kind of network that every cluster trains."""
        return "dual" if self.count == 2 else "single"

    def served(self, model: Params, seen_labels: bool) -> Deployment:
        """What a client does with the model of its cluster."""
        return Deployment(models=(model,), network=self.network, seen_labels=seen_labels)


@message
class TrainDual:
    """Train the cluster's primary encoder and head, and the secondary encoder borrowed from its learners."""

    phase: ClassVar[str] = "primary"
    parts: ClassVar[Mapping[str, str]] = {"borrowed_secondary": "secondary"}

    model: Params = public()
    borrowed_secondary: Params | None = public()  # Θ^{2f'}, the learners' combined secondary encoder
    primary: bool  # whether this round has a primary phase
    sequential: bool  # whether the secondary phase starts from the result of the primary phase
    diversity: float
    local: LocalTraining
    secondary_epochs: int  # 0: as in the primary phase


def _primary_part(known: Known) -> Params | None:
    return known.request.model.select(*PRIMARY) if known.request.primary else None


@message
class TrainedDual:
    """What both phases changed."""

    parts: ClassVar[Mapping[str, str]] = {"borrowed_secondary": "secondary"}

    update: Params | None = sensitive("update", like=_primary_part)  # of primary encoder and head
    borrowed_secondary: Params | None = sensitive("update", like="borrowed_secondary")  # of that encoder
    examples: int = sensitive("counts", least=0)


@sgd_task
def train_dual(request: TrainDual, client: Client) -> TrainedDual:
    """Primary phase on own data (Eq. 17); then the borrowed encoder, with primary and head fixed (Eq. 20)."""
    model, borrowed = request.model, request.borrowed_secondary
    trained, update, borrowed_update = model, None, None
    if request.primary:
        loss = diverse(request.diversity) if request.diversity else cross_entropy
        trained = sgd(client, model, request.local, network="dual", train=PRIMARY, loss=loss)
        update = (trained - model).select(*PRIMARY)
    if borrowed is not None:
        local = request.local
        if request.secondary_epochs:
            local = replace(local, local_epochs=request.secondary_epochs, local_steps=0)
        around = (trained if request.sequential else model).replace(borrowed)
        seed = client.seed / "secondary"
        with client.work.phase("secondary"):
            around = sgd(client, around, local, network="dual", train=SECONDARY, seed=seed)
        borrowed_update = around.select(*SECONDARY) - borrowed
    return TrainedDual(update=update, borrowed_secondary=borrowed_update, examples=len(client.train))


def diverse(weight: float) -> Loss:
    """Cross-entropy + λ_div·E[cos²(φ¹(x), φ²(x))]: pushes both encoders' features apart (appendix)."""

    def loss(model: LoadedNetwork, batch: Batch) -> torch.Tensor:
        primary = model.module.encode("primary", batch.seen)  # type: ignore[operator]
        known = {**batch.known, "primary": primary}
        cosine = torch.nn.functional.cosine_similarity(primary, batch.known["secondary"], dim=1)
        logits = model.module(batch.seen, known)
        return torch.nn.functional.cross_entropy(logits, batch.y) + weight * (cosine**2).mean()

    return loss


# -- the server's side -----------------------------------------------------------------------------------


def start_models(
    server: Server,
    clusters: Clusters,
    sources: Sources,
    options: EncoderOptions,
    warm_clients: Collection[str],
    opened_from: Mapping[int, int],
) -> tuple[Params, ...]:
    """Θ_z^{1f} is θ⁰, or the mean of the members' warmed-up encoders, weighted by samples (Eq. 22).

    Of very many clients only some have warmed up; a cluster without any (`opened_from`) starts as another.
    """
    common = server.initial_params()
    if options.primary_start == "common" and options.count == 1:
        return (common,) * len(clusters)
    models = [server.initial_params(options.network, f"cluster {z}") for z in range(len(clusters))]
    if options.primary_start == "common":
        models = [model.replace(widened(common, model)) for model in models]
    if options.primary_start == "warm":
        parts = ("primary.",) if options.count == 2 and options.head_start == "random" else PRIMARY
        labels = clusters.labels()
        requests = broadcast(ShareWarm(prefixes=parts), sorted(c for c in labels if c in warm_clients))
        for z, found in server.ask_mean(share_warm, requests, labels).items():
            warm = found.reply.params
            models[z] = models[z].replace(warm if options.count == 1 else widened(warm, models[z]))
        for z, old in opened_from.items():
            models[z] = models[old]
    if options.count == 1 or options.secondary_start == "random":
        return tuple(models)
    if options.secondary_start == "common":
        return tuple(model.replace(models[0].select(*SECONDARY)) for model in models)
    starts = [model.select("primary.").rename("primary.", "secondary.") for model in models]
    if options.secondary_start == "sources":
        starts = [mean([starts[q] for q in sources[z]]) for z in range(len(models))]
    return tuple(model.replace(start) for model, start in zip(models, starts, strict=True))


def train_both(
    models: Sequence[Params],
    sources: Sources,
    labels: Mapping[str, int],
    options: EncoderOptions,
    local: LocalTraining,
    server: Server,
) -> tuple[tuple[Params, ...], Mapping[int, Mean[TrainedDual]]]:
    """One round of both phases: the models of all clusters after it, and the mean replies."""
    asked = training_requests(models, sources, options, local, server.round)
    requests = {c: request for c, z in labels.items() if (request := asked[z]) is not None}
    means = server.ask_mean(train_dual, requests, labels)
    return aggregate(models, sources, means, options), means


def training_requests(
    models: Sequence[Params], sources: Sources, options: EncoderOptions, local: LocalTraining, round_: int
) -> list[TrainDual | None]:
    """What the clients of each cluster do in a round; None where there is nothing to do."""
    numbers = range(len(models))
    return [training_request(z, models, sources, options, local, round_) for z in numbers]


def training_request(
    z: int,
    models: Sequence[Params],
    sources: Sources,
    options: EncoderOptions,
    local: LocalTraining,
    round_: int,
) -> TrainDual | None:
    """What the clients of cluster z do in a round: primary phase, secondary phase, both or nothing."""
    # K primary rounds are followed by one secondary round.
    secondary_round = options.primary_rounds > 0 and round_ % (options.primary_rounds + 1) == 0
    learns = secondary_round or options.primary_rounds == 0
    borrowed = borrowed_secondary(z, models, sources, options) if learns else None
    if secondary_round and borrowed is None:
        return None
    return TrainDual(
        model=models[z],
        borrowed_secondary=borrowed,
        primary=not secondary_round,
        sequential=options.phases == "sequential",
        diversity=options.diversity,
        local=local,
        secondary_epochs=options.secondary_epochs,
    )


def borrowed_secondary(
    z: int, models: Sequence[Params], sources: Sources, options: EncoderOptions
) -> Params | None:
    """Θ^{2f'}, the secondary encoders of all learners of cluster z combined; None without a learner."""
    learners = [p for p, of_p in enumerate(sources) if z in of_p]
    if not learners:
        return None
    return combined([models[p].select(*SECONDARY) for p in learners], options.combine_learners)


def aggregate(
    models: Sequence[Params],
    sources: Sources,
    means: Mapping[int, Mean[TrainedDual]],
    options: EncoderOptions,
) -> tuple[Params, ...]:
    """Primary encoders and heads by Eq. 18; the secondary encoder of each learner by Eq. 21.

    The updates of Eq. 21 were made from the encoder that a source borrowed, and are added to the learner's.
    Buffers cannot be treated so: the learner takes the mean of the values that the sources' clients found.
    """
    result = list(models)
    for z, found in means.items():
        if found.reply.update is not None:
            result[z] = result[z].replace(result[z].select(*PRIMARY) + found.reply.update)
    borrowed = {z: found.reply.borrowed_secondary for z, found in means.items()}
    for p, of_p in enumerate(sources):
        updates = {q: update for q in of_p if (update := borrowed.get(q)) is not None}
        if updates:
            secondary = result[p].select(*SECONDARY) + combined([*updates.values()], options.source_updates)
            if secondary.layout.buffers:
                lent = {q: borrowed_secondary(q, models, sources, options) for q in updates}
                values = [start + updates[q] for q, start in lent.items() if start is not None]
                secondary = secondary.with_buffers(mean(values))
            result[p] = result[p].replace(secondary)
    return tuple(result)


def combined(parts: Sequence[Params], how: Literal["mean", "sum"]) -> Params:
    """The mean or the sum of several encoders or updates, each counted once; of buffers always the mean."""
    average = mean(parts)
    return (average * len(parts)).with_buffers(average) if how == "sum" else average


def widened(warm: Params, dual: Params) -> Params:
    """A one-encoder model as part of a two-encoder model, whose head ignores the second encoder for now."""
    if "head.weight" not in warm:
        return warm
    weight = torch.zeros_like(dual["head.weight"])
    weight[:, : weight.shape[1] // 2] = warm["head.weight"]
    return Params.of({**warm, "head.weight": weight}, warm.layout.buffers)
