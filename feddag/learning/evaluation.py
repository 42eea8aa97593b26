# SPDX-License-Identifier: Apache-2.0
"""The one evaluation task: a client scores what a Deployment gives it, on its own held-out samples."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import scipy
import torch
from torch import Tensor

from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.examples import Examples
from feddag.core.message import message, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, evaluation_task
from feddag.learning.backends import native_logits, select_backend
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork, chunks
from feddag.learning.sgd import sgd

LEAST_MARGINAL = 1e-8  # authors' code of FedRC


@message
class Evaluate:
    """What to score, and whether also after local training from there."""

    # Clients adapt a model before use, also after the last round: no part of a schedule over rounds.
    scheduled: ClassVar[bool] = False

    deployment: Deployment
    local: LocalTraining
    after_training: bool = False


@message
class Scores:
    """Per class: how many samples, how many predicted right; and the summed cross-entropy."""

    total: np.ndarray = sensitive("scores", shape=("classes",), dtype="int64", least=0)
    correct: np.ndarray = sensitive("scores", dtype="int64", least=0, at_most_field="total")
    loss: float = sensitive("scores", least=-1e-3, most=1e300)  # rounding may give less than 0


@message
class Evaluated:
    """Scores on the validation and test samples, before and (if asked) after local training."""

    test: Scores
    validation: Scores
    test_after: Scores | None = None
    validation_after: Scores | None = None
    # Accuracy if the labels had the shares that they have in the client's training samples; -1: not known.
    test_proportional: float = sensitive("scores", default=-1.0, least=-1, most=1)
    test_after_proportional: float = sensitive("scores", default=-1.0, least=-1, most=1)
    # Which of several models the client has chosen.
    model: int = sensitive("cluster", default=-1, least=-1, below="#deployment.models")


@evaluation_task
def evaluate(request: Evaluate, client: Client) -> Evaluated:
    """Score the deployed model as it is (headline), and after the client has trained it further."""
    chosen = chosen_model(client, request.deployment)
    served = serve(client, request.deployment, chosen)
    test = score(client, served, client.test)
    scores = Evaluated(
        test=test,
        validation=score(client, served, client.validation),
        test_proportional=proportional_accuracy(client, test),
        model=chosen,
    )
    if not request.after_training:
        return scores
    if request.deployment.adapt is not None:  # one local round for everybody: who adapts has had it
        test_after, validation_after = test, scores.validation
    else:
        models = tuple(sgd(client, m, request.local, network=served.network) for m in served.models)
        trained = dataclasses.replace(served, models=models)
        # Nobody else has this model: its scores are not kept, and others' stay.
        test_after, validation_after = (_score(client, trained, e) for e in (client.test, client.validation))
    return dataclasses.replace(
        scores,
        test_after=test_after,
        test_after_proportional=proportional_accuracy(client, test_after),
        validation_after=validation_after,
    )


def proportional_accuracy(client: Client, scores: Scores) -> float:
    """Σ_c share of class c in the training samples · recall of class c, over the classes in both; else -1.

    The test samples of a client hold its classes in equal numbers (label view). Weighted like this, the same
    predictions give the accuracy on samples in the proportions that the client has.
    """
    both_C = (scores.total > 0) & (client.train.counts() > 0)
    if not both_C.any():
        return -1.0
    shares_C = client.train.counts()[both_C]
    recalls_C = scores.correct[both_C] / scores.total[both_C]
    return float(shares_C @ recalls_C / shares_C.sum())


def chosen_model(client: Client, deployment: Deployment) -> int:
    """Which of several models without weights fits the client's training data best; -1 without a choice."""
    recalled = deployment.recall(client.memory)
    if len(recalled.models) == 1 or recalled.weights or recalled.choose == "validation":
        return -1
    return least_loss(client, recalled.models, deployment.network)


def serve(client: Client, deployment: Deployment, chosen: int | None = None) -> Deployment:
    """The deployment made concrete for this client: remembered parts put back, model chosen, adapted."""
    recalled = deployment.recall(client.memory)
    models, shares = recalled.models, recalled.weights
    chosen = chosen_model(client, deployment) if chosen is None else chosen
    if chosen >= 0:
        models = (models[chosen],)
    if deployment.marginals:
        shares = tuple(map(float, expected_shares(client, recalled)))
    if deployment.choose == "validation":
        models = (best_on_validation(client, recalled),)
    elif deployment.adapt is not None:
        adapt, train = deployment.adapt, deployment.adapt_prefixes
        models = tuple(sgd(client, m, adapt, network=deployment.network, train=train) for m in models)
    served = Deployment(models=models, network=deployment.network, weights=shares)
    return with_seen_labels(client, served) if deployment.seen_labels else served


def with_seen_labels(client: Client, served: Deployment) -> Deployment:
    """A concrete deployment in which labels without a training sample are unlikely, if validation agrees.

    After n samples the next one has a label that was never seen with a chance of about 1 / (n + 1).
    """
    unseen_C, held = client.train.counts() == 0, client.validation
    if unseen_C.all() or not unseen_C.any() or not len(held):
        return served
    chance = 1 / (len(client.train) + 1)
    lowered = dataclasses.replace(served, shift=tuple(np.where(unseen_C, math.log(chance), 0.0).tolist()))
    before, after = (score(client, tried, held).loss for tried in (served, lowered))
    return lowered if after < before else served


def best_on_validation(client: Client, deployment: Deployment) -> Params:
    """The model with the least loss on the validation samples, the first one adapted included; ties: first.

    Without validation samples, the first one as it is.
    """
    models, network = deployment.models, deployment.network
    if not len(client.validation):
        return models[0]
    if deployment.adapt is not None:
        parts = deployment.adapt_prefixes
        models = (*models, sgd(client, models[0], deployment.adapt, network=network, train=parts))
    alone = [Deployment(models=(model,), network=network) for model in models]
    losses = [score(client, served, client.validation).loss for served in alone]
    return models[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]  # training may have diverged


def score(client: Client, served: Deployment, examples: Examples) -> Scores:
    """Per-class counts and summed loss of a concrete deployment.

    In a simulation many clients hold the same model and the same test samples: they are scored once.
    """
    if client.known_scores is None or not examples.origin:
        return _score(client, served, examples)
    models = tuple(model.digest() for model in served.models)
    key = (examples.origin, examples.y.tobytes(), models, served.weights, served.network, served.shift)
    if key not in client.known_scores:
        client.known_scores[key] = _score(client, served, examples)
    return client.known_scores[key]


def log_probabilities(client: Client, served: Deployment, examples: Examples) -> Tensor:
    """Log-probabilities of all classes under a concrete deployment, a mixture mixed, (n, classes) float64."""
    outputs = [logits(client, model, examples, served.network) for model in served.models]
    return mixed_log_probabilities(outputs, served.weights, served.shift)


def mixed_log_probabilities(
    outputs: Sequence[Tensor], weights: Sequence[float], shift: Sequence[float] = ()
) -> Tensor:
    """From the outputs of each model to the log-probabilities of their mixture."""
    added = torch.tensor(shift, dtype=torch.float64) if shift else 0.0
    single = [(output.double() + added).log_softmax(1) for output in outputs]
    if len(single) == 1:
        return single[0]
    shares = torch.tensor(weights, dtype=torch.float64)
    return (torch.stack(single) + (shares / shares.sum()).log().view(-1, 1, 1)).logsumexp(0)


def _score(client: Client, served: Deployment, examples: Examples) -> Scores:
    mixed = log_probabilities(client, served, examples)
    right = examples.y[(mixed.argmax(1) == examples.labels).numpy()]
    loss = -mixed.gather(1, examples.labels.view(-1, 1)).sum() if len(examples) else torch.zeros(())
    return Scores(
        total=examples.counts(),
        correct=np.bincount(right, minlength=examples.num_classes).astype(np.int64),
        loss=float(loss),
    )


def logits(client: Client, params: Params, examples: Examples, network: str = "single") -> Tensor:
    """Outputs of a model in evaluation mode, (n, classes)."""
    module = client.network(network)
    selected = select_backend(client.backend, module, examples.x.shape[1:])
    if selected.plan is not None:
        return native_logits(selected.plan, module, params, examples)
    model = LoadedNetwork(module, params)
    placed, rows = model.placed(examples), torch.arange(len(examples), device=model.device)
    with torch.no_grad():
        parts = [model(Batch(placed, rows[chunk], NOTHING_KNOWN)) for chunk in chunks(len(examples))]
    return torch.cat(parts).cpu() if parts else torch.empty((0, examples.num_classes))


def sample_losses(client: Client, params: Params, network: str = "single") -> Tensor:
    """Cross-entropy of every training sample under a model in evaluation mode, (n,)."""
    outputs = logits(client, params, client.train, network)
    return torch.nn.functional.cross_entropy(outputs, client.train.labels, reduction="none")


def responsibilities(
    client: Client, models: tuple[Params, ...], marginals_KC: np.ndarray, shares_K: np.ndarray
) -> np.ndarray:
    """An expectation step: γ_jk ∝ ω_k · exp(−f_jk) / C_yk for every training sample j and model k, (N, K)."""
    losses_NK = torch.stack([sample_losses(client, model) for model in models], 1).double().numpy()
    fit_NK = -losses_NK - np.log(np.maximum(marginals_KC, LEAST_MARGINAL)).T[client.train.y]
    return scipy.special.softmax(np.log(shares_K) + fit_NK, axis=1)


def expected_shares(client: Client, deployment: Deployment) -> np.ndarray:
    """ω after an expectation step with the models as they are now; a client without samples keeps its ω."""
    before_K = np.maximum(deployment.weights, np.finfo(np.float64).tiny)
    if len(client.train) == 0:
        return before_K
    return responsibilities(client, deployment.models, np.array(deployment.marginals), before_K).mean(0)


def least_loss(client: Client, models: tuple[Params, ...], network: str = "single") -> int:
    """Index of the model with the least mean loss on the client's training samples; ties to the lowest."""
    if len(client.train) == 0:
        return 0
    losses = [float(sample_losses(client, model, network).double().mean()) for model in models]
    return int(np.argmin(losses))
