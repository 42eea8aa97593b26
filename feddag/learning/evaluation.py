# SPDX-License-Identifier: Apache-2.0
"""The one evaluation task: a client scores what a Deployment gives it, on its own held-out samples."""

import dataclasses
from typing import Any

import numpy as np
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

MOST_SCORED = 64
_scored: dict[tuple[Any, ...], tuple[tuple[Any, ...], "Scores"]] = {}  # the latest of them


@message
class Evaluate:
    """What to score, and whether also after local training from there."""

    deployment: Deployment
    local: LocalTraining
    after_training: bool = False


@message
class Scores:
    """Per class: how many samples, how many predicted right; and the summed cross-entropy."""

    total: np.ndarray = sensitive("scores")
    correct: np.ndarray = sensitive("scores")
    loss: float = sensitive("scores")


@message
class Evaluated:
    """Scores on the validation and test samples, before and (if asked) after local training."""

    test: Scores
    validation: Scores
    test_after: Scores | None = None
    validation_after: Scores | None = None


@evaluation_task
def evaluate(request: Evaluate, client: Client) -> Evaluated:
    """Score the deployed model as it is (headline), and after the client has trained it further."""
    backend = request.local.backend
    served = serve(client, request.deployment, backend)
    scores = Evaluated(
        test=score(client, served, client.test, backend),
        validation=score(client, served, client.validation, backend),
    )
    if not request.after_training:
        return scores
    models = tuple(sgd(client, m, request.local, network=served.network) for m in served.models)
    trained = dataclasses.replace(served, models=models)
    return dataclasses.replace(
        scores,
        test_after=score(client, trained, client.test, backend),
        validation_after=score(client, trained, client.validation, backend),
    )


def serve(client: Client, deployment: Deployment, backend: str = "auto") -> Deployment:
    """The deployment made concrete for this client: remembered parts put back, model chosen, adapted."""
    recalled = deployment.recall(client.memory)
    models, shares = recalled.models, recalled.weights
    if len(models) > 1 and not shares:
        models = (models[least_loss(client, models, deployment.network, backend)],)
    if deployment.adapt is not None:
        adapt, train = deployment.adapt, deployment.adapt_prefixes
        models = tuple(sgd(client, m, adapt, network=deployment.network, train=train) for m in models)
    return Deployment(models=models, network=deployment.network, weights=shares)


def score(client: Client, served: Deployment, examples: Examples, backend: str = "auto") -> Scores:
    """Per-class counts and summed loss of a concrete deployment.

    In a simulation many clients hold the same model and the very same test samples: they are scored once.
    """
    if examples.origin is None:
        return _score(client, served, examples, backend)
    origin = (*examples.origin, client.network)
    models = tuple(model.digest() for model in served.models)
    key = (*map(id, origin), examples.y.tobytes(), models, served.weights, served.network, backend)
    if key not in _scored:
        if len(_scored) >= MOST_SCORED:
            del _scored[next(iter(_scored))]
        # Arrays and network are kept with their scores, so that their ids stay theirs.
        _scored[key] = (origin, _score(client, served, examples, backend))
    return _scored[key][1]


def _score(client: Client, served: Deployment, examples: Examples, backend: str) -> Scores:
    log_probabilities = [
        logits(client, model, examples, served.network, backend).double().log_softmax(1)
        for model in served.models
    ]
    if len(log_probabilities) > 1:
        shares = torch.tensor(served.weights, dtype=torch.float64)
        stacked = torch.stack(log_probabilities) + (shares / shares.sum()).log().view(-1, 1, 1)
        mixed = stacked.logsumexp(0)
    else:
        mixed = log_probabilities[0]
    right = examples.y[(mixed.argmax(1) == examples.labels).numpy()]
    loss = -mixed.gather(1, examples.labels.view(-1, 1)).sum() if len(examples) else torch.zeros(())
    return Scores(
        total=examples.counts(),
        correct=np.bincount(right, minlength=examples.num_classes).astype(np.int64),
        loss=float(loss),
    )


def logits(
    client: Client, params: Params, examples: Examples, network: str = "single", backend: str = "auto"
) -> Tensor:
    """Outputs of a model in evaluation mode, (n, classes)."""
    module = client.network(network)
    selected = select_backend(backend, module, examples.x.shape[1:])
    if selected.plan is not None:
        return native_logits(selected.plan, module, params, examples)
    model = LoadedNetwork(module, params)
    rows = torch.arange(len(examples))
    with torch.no_grad():
        parts = [model(Batch(examples, rows[chunk], NOTHING_KNOWN)) for chunk in chunks(len(examples))]
    return torch.cat(parts) if parts else torch.empty((0, examples.num_classes))


def sample_losses(client: Client, params: Params, network: str = "single", backend: str = "auto") -> Tensor:
    """Cross-entropy of every training sample under a model in evaluation mode, (n,)."""
    outputs = logits(client, params, client.train, network, backend)
    return torch.nn.functional.cross_entropy(outputs, client.train.labels, reduction="none")


def least_loss(
    client: Client, models: tuple[Params, ...], network: str = "single", backend: str = "auto"
) -> int:
    """Index of the model with the least mean loss on the client's training samples; ties to the lowest."""
    if len(client.train) == 0:
        return 0
    losses = [float(sample_losses(client, model, network, backend).double().mean()) for model in models]
    return int(np.argmin(losses))
