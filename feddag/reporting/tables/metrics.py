# SPDX-License-Identifier: Apache-2.0
"""Accuracies from evaluation counts: per client, and their mean and spread over clients."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

PROTOCOL = (
    "accuracy: share of correct predictions on a client's own test samples; balanced accuracy: mean recall "
    "over the classes in the client's test samples; both are averaged over clients without weights; std is "
    "the standard deviation over clients. 'before' is the model that the server gives the client (this is "
    "the main result), 'after' is the same model after one round of local training on the client's training "
    "samples; methods that adapt a model before use (`adapts`) have had that round in 'before' already. "
    "Test samples are dealt as partition.test says; proportional accuracy weighs the recalls of the classes "
    "by their shares in the client's training samples. 'last_five' is the mean over the last five evaluated "
    "rounds. client_epochs counts passes of a client over its training samples in all training, evaluation "
    "and adaptation before use not included; samples counts gradients of single samples. "
    "'final' is the last round, 'chosen' is the round with the best mean balanced accuracy on validation "
    "samples, which are held out from the training data; test samples choose nothing."
)


def client_scores(total: ArrayLike, correct: ArrayLike, loss: float) -> dict[str, float] | None:
    """Accuracy, balanced accuracy and mean loss of one client; None without samples."""
    total_C, correct_C = np.asarray(total), np.asarray(correct)
    n = int(total_C.sum())
    if n == 0:
        return None
    present = total_C > 0
    return {
        "accuracy": float(correct_C.sum() / n),
        "balanced_accuracy": float(np.mean(correct_C[present] / total_C[present])),
        "loss": loss / n,
        "samples": n,
    }


def summary(scores: Mapping[str, dict[str, float] | None]) -> dict[str, Any]:
    """Mean and spread over the clients that have samples."""
    known = [s for s in scores.values() if s is not None]
    result: dict[str, Any] = {"clients": len(known)}
    for key in ("accuracy", "balanced_accuracy", "loss"):
        values = np.array([s[key] for s in known])
        result[key] = float(values.mean()) if known else None
        if key != "loss":
            result[f"{key}_std"] = float(values.std()) if known else None
    if shares := [s["proportional_accuracy"] for s in known if "proportional_accuracy" in s]:
        result["proportional_accuracy"] = float(np.mean(shares))
    return result
