# SPDX-License-Identifier: Apache-2.0
"""Predictions for files: which model, which samples, and the table of classes and probabilities."""

import csv
import io
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import listed, plural
from feddag.data.datasets.own import own_settings
from feddag.data.own.samples import SampleSet, read_samples
from feddag.runs.client_model import ClientModel
from feddag.runs.run import Run


def read_for(run: Run, path: Path) -> SampleSet:
    """Samples in a file or folder, as the models of a run take them."""
    return read_samples(path, run.models.problem, own_settings(run.experiment.data))


def model_like(run: Run, path: Path) -> tuple[ClientModel, str]:
    """The model that fits the labelled samples of a new client best, and a sentence that says which."""
    known = read_for(run, path)
    if known.labels is None:
        raise InvalidInput(
            f"--like {path}: expected samples with their classes (class folders, an array y in an .npz file, "
            f"or a column '{run.experiment.data.label}' in a table)"
        )
    model, users, loss = run.models.best_for(known.x, list(known.labels))
    right = float(np.mean(model.predict(known.x) == known.labels))
    return model, (
        f"of {plural(len(run.models.users()), 'different model')}, that of {listed(users)} fits these "
        f"{plural(len(known), 'sample')} best: loss {loss:.3f}, {right:.1%} right"
    )


def predictions_csv(model: ClientModel, samples: SampleSet, every_class: bool = False) -> str:
    """One row per sample: its name, the most probable class and its probability; maybe of all classes."""
    probabilities = model.predict_proba(samples.x)
    best = probabilities.argmax(1)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    more = [f"p({name})" for name in model.classes] if every_class else []
    table.writerow(["sample", "class", "probability", *more])
    for name, k, row in zip(samples.names, best, probabilities, strict=True):
        rest = [f"{p:.6f}" for p in row] if every_class else []
        table.writerow([name, model.classes[k], f"{row[k]:.6f}", *rest])
    return text.getvalue()


def share_right(model: ClientModel, samples: SampleSet) -> float | None:
    """Accuracy on samples whose classes are known, else None."""
    if samples.labels is None:
        return None
    return float(np.mean(model.predict(samples.x) == samples.labels))
