# SPDX-License-Identifier: Apache-2.0
"""Share first, then specialise: clusters begin with one model and keep each other near in the first rounds.

A cluster *shares* as long as its model is drawn, after every round, to the mean of its partners' models:

    Θ_z ← (1 − pull) · Θ_z + pull · Σ_q n_q Θ_q / Σ_q n_q        over the cluster z itself and its partners q

Partners hold the same labels and mean the same by them, since a model for other labels is a model for another
task. This ends after `rounds`; then every cluster trains alone.

With `evidence` validation samples decide who shares. The *own step* of a cluster is what the updates of its
own clients alone would have made of the same model; from time to time its members weigh both:

    warm start       a cluster that the common model tells too little leaves at once, with its own warm model
    shared rounds    who shares leaves when there is evidence against the shared step
    after them       who shares leaves unless there is evidence for it

Nothing else is trained for this: the shared step is the mean of the own steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from annotated_types import Ge, Le

from feddag.core.algorithm import Server
from feddag.core.averaging import Mean, mean
from feddag.core.message import message, options, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, validation_task
from feddag.learning.evaluation import logits
from feddag.learning.partners import Grouped, Partners, label_counts, possible_partners


@options
class SharedStartOptions:
    """Whether, with whom and for how long clusters share their whole models before they specialise."""

    # share of all rounds, those of the warm-up included; 0: clusters train alone from the start
    rounds: Annotated[float, Ge(0), Le(1)] = 0.5
    # how far a shared round moves a model from its own step to the mean of all partners'; 1: they are equal
    pull: Annotated[float, Ge(0), Le(1)] = 0.5
    partners: Literal["all", "graph", "random"] = "all"  # all clusters; its sources; as many by chance
    # a partner holds the labels of at least this share of a cluster's samples, and the other way round
    same_labels: Annotated[float, Ge(0), Le(1)] = 0.75
    same_names: bool = True  # and calls the same things by the same names (`clustering/meaning.py`)
    evidence: bool = False  # True: members are asked, and a cluster leaves when validation samples say so
    # ρ: the shared step must tell this part of what the own step tells about labels, else a cluster leaves
    enough: Annotated[float, Ge(0), Le(1)] = 0.5
    certainty: Annotated[float, Ge(0)] = 2.0  # standard errors by which a difference is evidence

    def last(self, num_rounds: int) -> int:
        """The last of the shared rounds."""
        return round(self.rounds * num_rounds)

    def due(self, round_: int, num_rounds: int) -> bool:
        """Whether models are weighed: soon and then ever less often, in the last shared round, and later."""
        last = max(self.last(num_rounds), 1)
        return round_ % last == 0 if round_ >= last else round_ & (round_ - 1) == 0  # 0, 1, 2, 4, 8, …


@message
class Weigh:
    """Compare two models on your validation samples."""

    shared: Params = public()
    own: Params = public()
    network: str
    log_prior: np.ndarray = public()  # (classes,): log label shares of the cluster, all that ignorance knows
    enough: float


@message
class Weighed:
    """Sums over a client's validation samples; `lack` is what the shared model lacks, see `weigh`."""

    samples: int = sensitive("scores", least=0)
    shared: float = sensitive("scores", least=-1e-3, most=1e300)  # losses
    own: float = sensitive("scores", least=-1e-3, most=1e300)
    prior: float = sensitive("scores", least=-1e-3, most=1e300)
    lack: float = sensitive("scores", least=-1e300, most=1e300)
    squares: float = sensitive("scores", least=0, most=1e300)  # of `lack`


@validation_task
def weigh(request: Weigh, client: Client) -> Weighed:
    """What the shared model lacks of a sample: ρ·(prior loss − own loss) − (prior loss − shared loss)."""
    y = client.validation.labels
    shared, own = (
        torch.nn.functional.cross_entropy(
            logits(client, model, client.validation, request.network).double(), y, reduction="none"
        )
        for model in (request.shared, request.own)
    )
    prior = -torch.from_numpy(request.log_prior)[y]
    lack = request.enough * (prior - own) - (prior - shared)
    return Weighed(
        samples=len(y),
        shared=float(shared.sum()),
        own=float(own.sum()),
        prior=float(prior.sum()),
        lack=float(lack.sum()),
        squares=float((lack**2).sum()),
    )


# -- the server's side -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What the members of one cluster found, all samples alike."""

    samples: int
    shared: float  # mean losses
    own: float
    prior: float
    lack: float  # mean, and its standard error
    error: float

    @classmethod
    def of(cls, replies: Sequence[Weighed]) -> "Evidence":
        """From the sums of several clients."""
        n = sum(reply.samples for reply in replies)
        if n < 2:
            return cls(n, math.nan, -math.inf, math.inf, math.inf, 0.0)  # without evidence nobody shares
        shared, own, prior, lack, squares = (
            sum(getattr(reply, name) for reply in replies) / n
            for name in ("shared", "own", "prior", "lack", "squares")
        )
        variance = max(squares - lack**2, 0.0) * n / (n - 1)
        return cls(n, shared, own, prior, lack, math.sqrt(variance / n))

    def leaves(self, certainty: float, shares_by_default: bool) -> bool:
        """A cluster that shares by default needs evidence against it; another one needs evidence for it.

        An own step that tells no more than the label shares do is no evidence for anything.
        """
        if shares_by_default:
            return self.own < self.prior and self.lack > certainty * self.error
        return not self.lack < -certainty * self.error


def partners_of(state: "Sharers", options: SharedStartOptions, server: Server) -> Partners:
    """For each cluster, whose models are averaged to its own: those of its partners that still share."""
    # A cluster of which nobody is there keeps its model bit for bit.
    sharing = [z for z in state.sharing if str(z) not in (state.empty or {})]
    found: list[tuple[int, ...]] = []
    for z, of_z in enumerate(state.sources):
        others = [q for q in range(len(state.sources)) if q != z]
        if options.partners == "graph":
            others = [q for q in of_z if q != z]
        elif options.partners == "random":
            number = sum(1 for q in of_z if q != z)
            drawn = (server.seed / "partners" / z).numpy().permutation(others)[:number]
            others = [int(q) for q in drawn]
        # A cluster that newcomers opened has no partners, and is nobody's.
        known = state.partners[z] if z in sharing else ()
        found.append(tuple(sorted({z, *(q for q in others if q in sharing and q in known)})))
    return tuple(found)


def not_alone(state: Any, options: SharedStartOptions, server: Server) -> Any:
    """The state in which nobody shares alone."""
    partners = partners_of(state, options, server)
    return replace(state, sharing=tuple(z for z in state.sharing if len(partners[z]) > 1))


def averaged(
    models: Sequence[Params], examples: Mapping[int, int], partners: Partners, pull: float = 1.0
) -> tuple[Params, ...]:
    """(1 − pull) · its own model + pull · the mean over its partners, by the samples that were trained on."""
    result = []
    for z, of_z in enumerate(partners):
        samples = {q: examples.get(q, 0) for q in of_z}
        total = sum(samples.values())
        alone = of_z == (z,) or not total
        weights = [pull * n + (1 - pull) * total * (q == z) for q, n in samples.items()]
        result.append(models[z] if alone else mean([models[q] for q in of_z], weights))
    return tuple(result)


class Sharers(Grouped, Protocol):
    """What is needed of a state: who is where, learns from whom, holds which labels, and still shares."""

    sources: tuple[tuple[int, ...], ...]
    sharing: tuple[int, ...]
    partners: Partners
    empty: dict[str, int] | None


def share(
    state: Any,
    own: Sequence[Params],
    means: Mapping[int, Mean[Any]] | None,
    network: str,
    options: SharedStartOptions,
    server: Server,
) -> Any:
    """The state after a round, given the own steps of all clusters and their replies (None: the start).

    A cluster that leaves keeps its own step; the others are averaged without it.
    """
    last = options.last(server.num_rounds)
    if means is None and state.sharing:
        partners = possible_partners(state, options.same_labels, options.same_names)
        state = not_alone(replace(state, partners=partners), options, server)
        server.note(partners=[list(of_z) for of_z in partners])
    if not state.sharing:
        return replace(state, models=tuple(own), partners=())
    if means is None:
        examples = {z: int(counts.sum()) for z, counts in enumerate(label_counts(state))}
    else:
        examples = {z: found.reply.examples for z, found in means.items()}
    together = averaged(own, examples, partners_of(state, options, server), options.pull)
    if not options.evidence:
        state = replace(state, models=together)
        return state if server.round < last else replace(state, sharing=(), partners=())
    if means is None and all(model == own[0] for model in own):
        return state  # from a common start nobody has a step of its own yet
    if options.due(server.round, server.num_rounds):
        default = server.round < last
        found = weighed(own, together, state, network, options.enough if default else 1.0, server)
        # A cluster that is not heard is judged another time; if nobody is, there is no evidence to be had.
        early = 0 < server.round < last and any(e.samples > 1 for e in found.values())
        unheard = {z for z in state.sharing if early and found[z].samples < 2}
        leaves = {z for z in state.sharing if found[z].leaves(options.certainty, default)} - unheard
        stay = replace(state, sharing=tuple(z for z in state.sharing if z not in leaves))
        state = not_alone(stay, options, server)
        together = averaged(own, examples, partners_of(state, options, server), options.pull)
    server.note(sharing=list(state.sharing))
    return replace(state, models=together)


def weighed(
    own: Sequence[Params],
    together: Sequence[Params],
    state: Sharers,
    network: str,
    enough: float,
    server: Server,
) -> dict[int, Evidence]:
    """Ask those of the cohort (at the start: of all clients) whose clusters share to compare both models."""
    labels, counts = state.clusters.labels(), label_counts(state)
    requests = {
        z: Weigh(
            shared=together[z],
            own=own[z],
            network=network,
            log_prior=np.log((counts[z] + 1) / (counts[z] + 1).sum()),  # one sample is added to each class
            enough=enough,
        )
        for z in state.sharing
    }
    asked = {c: requests[labels[c]] for c in server.cohort if labels.get(c) in requests}
    replies = server.ask(weigh, asked, quorum=0.0)
    found = {z: Evidence.of([r for c, r in replies.items() if labels[c] == z]) for z in state.sharing}
    server.note(
        weighed={
            str(z): {n: getattr(e, n) for n in ("samples", "shared", "own", "prior", "lack", "error")}
            for z, e in found.items()
            if e.samples > 1
        }
    )
    return found
