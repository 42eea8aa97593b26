# SPDX-License-Identifier: Apache-2.0
"""Clusters help each other when it counts: their clients use a mixture of several clusters' models.

    p_z(y | x) = Σ_q w_zq · p(y | x, Θ_q)        over the cluster z itself and its partners q

Partners hold the same labels, since a model for other labels is a model for another task. Every client finds
the weights under which its *validation* samples are most likely (expectation–maximisation, as if it had seen
a little more that only its own model explains); w_z is the mean over the members of z. Nothing is trained for
this, and training goes on as if there were no mixture. A cluster that others do not help has its own model.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import scipy
import torch
from annotated_types import Ge, Le

from feddag.core.algorithm import Server
from feddag.core.deployment import Deployment
from feddag.core.message import message, options, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, validation_task
from feddag.learning.evaluation import logits
from feddag.learning.partners import label_counts, with_same_labels

FIRST = 8  # the first round after which clients are asked: models must have learnt something
STEPS = 20  # of expectation and maximisation
LEAST_LOG = -1e4  # of a likelihood: no single sample, and no model that diverged, decides alone

Weights = tuple[tuple[float, ...], ...]  # for each cluster, the weights of all clusters' models


@options
class MixtureOptions:
    """Whether and with whom clusters mix the models that they use."""

    most: Annotated[int, Ge(0)] = 4  # partners of a cluster, those with the most samples; 0: no mixtures
    # a partner holds the labels of at least this share of a cluster's samples, and the other way round
    same_labels: Annotated[float, Ge(0), Le(1)] = 0.75
    own: Annotated[float, Ge(0)] = 0.5  # samples that speak for the own model, added to each client's
    least: Annotated[float, Ge(0), Le(1)] = 0.05  # a model with less weight is left out


@message
class Explain:
    """Say in which shares these models explain your validation samples; the first is your cluster's."""

    models: tuple[Params, ...] = public()
    network: str
    own: float


@message
class Explained:
    """The best weights of the models, and on how many samples."""

    weights: np.ndarray = sensitive("scores", shape=("#models",), dtype="float64", least=0, most=1 + 1e-9)
    samples: int = sensitive("scores", least=0)


@validation_task
def explain(request: Explain, client: Client) -> Explained:
    """Weights under which the client's validation samples are most likely."""
    held = client.validation
    outputs = [logits(client, model, held, request.network) for model in request.models]
    losses = [torch.nn.functional.cross_entropy(o.double(), held.labels, reduction="none") for o in outputs]
    return Explained(weights=likeliest(-torch.stack(losses, 1).numpy(), request.own), samples=len(held))


def likeliest(log_likelihood_NK: np.ndarray, own: float) -> np.ndarray:
    """Weights (K,) of a mixture by expectation–maximisation; `own` samples more belong to the first model."""
    n, k = log_likelihood_NK.shape
    first_K = np.eye(k)[0]
    if not n:
        return first_K
    fit_NK = np.maximum(np.nan_to_num(log_likelihood_NK, nan=-np.inf), LEAST_LOG)
    weights_K = np.full(k, 1 / k)
    for _ in range(STEPS):
        shares_NK = scipy.special.softmax(fit_NK + np.log(np.maximum(weights_K, 1e-300)), axis=1)
        weights_K = (shares_NK.sum(axis=0) + own * first_K) / (n + own)
    return weights_K


# -- the server's side -----------------------------------------------------------------------------------


def partners_of(state: Any, options: MixtureOptions) -> list[list[int]]:
    """For each cluster, those with the same labels, the largest first."""
    counts_ZC = np.stack(label_counts(state))
    alike_ZZ = with_same_labels(counts_ZC, options.same_labels)
    by_size = np.argsort(-counts_ZC.sum(axis=1), kind="stable").tolist()
    return [[q for q in by_size if q != z and alike_ZZ[z, q]][: options.most] for z in range(len(counts_ZC))]


def mix(state: Any, network: str, options: MixtureOptions, server: Server) -> Any:
    """The state with new weights: the cohort is asked after rounds 8, 16, 32, …, and everybody at the end.

    If the clusters have changed since, the cohort is asked at once.
    """
    last = server.round >= server.num_rounds
    known = len(state.weights) == len(state.models)
    if not options.most or len(state.models) < 2:
        return replace(state, weights=()) if state.weights else state
    due = server.round >= FIRST and not (known and server.round & (server.round - 1))
    if not last and not due:
        return state
    partners, labels = partners_of(state, options), state.clusters.labels()
    offers = {z: (z, *of_z) for z, of_z in enumerate(partners) if of_z}
    requests = {
        z: Explain(models=tuple(state.models[q] for q in offer), network=network, own=options.own)
        for z, offer in offers.items()
    }
    asked = {
        c: requests[labels[c]]
        for c in (server.clients if last else server.cohort)
        if labels.get(c) in requests
    }
    replies = server.ask(explain, asked, quorum=0.0) if asked else {}
    weights_ZZ = np.array(state.weights) if known else np.eye(len(state.models))
    for z, offer in offers.items():
        heard = [replies[c] for c in sorted(replies) if labels[c] == z]
        if any(reply.samples for reply in heard):
            weights_ZZ[z] = 0
            weights_ZZ[z, list(offer)] = cluster_weights(heard, options.least)
    if offers:
        server.note(mixture=[[round(float(w), 3) for w in weights_Z] for weights_Z in weights_ZZ])
    return replace(state, weights=tuple(tuple(map(float, weights_Z)) for weights_Z in weights_ZZ))


def cluster_weights(heard: Sequence[Explained], least: float) -> np.ndarray:
    """The mean of the members' weights by their samples, without small ones; the first model always stays."""
    weights_K = np.average([r.weights for r in heard], axis=0, weights=[r.samples for r in heard])
    kept_K = weights_K >= least
    kept_K[0] = True
    weights_K = np.where(kept_K, weights_K, 0)
    return weights_K / weights_K.sum() if weights_K.sum() else np.eye(len(weights_K))[0]


def mixed(served: Deployment, state: Any, z: int) -> Deployment:
    """What a client of cluster z is served: its cluster's model, and those that are mixed to it."""
    weights = state.weights[z] if len(state.weights) == len(state.models) else ()
    others = [q for q, weight in enumerate(weights) if weight > 0 and q != z]
    if not others:
        return served
    used = [z, *others]
    return replace(
        served, models=tuple(state.models[q] for q in used), weights=tuple(weights[q] for q in used)
    )
