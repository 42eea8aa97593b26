# SPDX-License-Identifier: Apache-2.0
"""The trained models as plain files: one .safetensors per distinct model, and which client uses which.

`models/clients.json` holds all that is needed to use the models without the run:

- `model`: the network family, or module:factory of the user's own network;
- `input_shape` of one sample, `num_classes`, `class_names` (output k means `class_names[k]`; empty if
  the classes have no names), `integer_codes` (samples are sequences of codes, not measurements);
- `scaling`: samples are scaled before they enter the network: (x / unit - mean) / std, with mean and std per
  channel or feature; an empty mean or std changes nothing;
- `columns` of tables, in the order of the features: a name with [], or with its texts, each of which is one
  feature;
- `clients`: client → `network` ("single", or "dual" with two encoders), `files`, `weights`, `shift`, `uses`,
  `adapt`.

`uses` is the one file of `files` that the client predicts with. Where a method offers several models, it is
the one that fits the client's own data best. `uses` is null if the client mixes the predicted probabilities
of all files by `weights`, or if it offers several models and the client's evaluation failed. With `adapt` the
client trains the model on its own data before it predicts; in a simulation this was done before saving.
`shift`, if not empty, is added to the outputs: labels that the client has never seen are less likely.
`feddag.runs.client_model` reads all this back.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from feddag.core.deployment import Deployment
from feddag.core.distinct import Distinct
from feddag.core.files import write_durably
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.core.task import ClientId


def save_models(
    folder: Path,
    model: str,
    problem: Problem,
    deployments: Mapping[ClientId, Deployment],
    chosen: Mapping[ClientId, int],
) -> dict[ClientId, str]:
    """Write what every client would use; returns the file of each client's model.

    `chosen` tells which of several models a client has found to be the best on its own data.
    """
    folder.mkdir(exist_ok=True)
    models = _Files()
    clients: dict[ClientId, Any] = {}
    for client, deployment in deployments.items():
        files = [models.file(m) for m in deployment.models]
        clients[client] = {
            "network": deployment.network,
            "files": files,
            "weights": list(deployment.weights),
            "shift": list(deployment.shift),
            "uses": _used(files, chosen.get(client, -1)),
            "adapt": deployment.adapt is not None,
        }
    for file, params in models.of.items():
        tensors = {name: np.ascontiguousarray(t.numpy()) for name, t in params.items()}
        write_durably(folder / file, save(tensors))
    description = {
        "model": model,
        "input_shape": problem.input_shape,
        "num_classes": problem.num_classes,
        "class_names": list(problem.class_names),
        "scaling": vars(problem.scaling),
        "integer_codes": problem.integer_codes,
        "columns": problem.columns,
        "clients": clients,
    }
    write_durably(folder / "clients.json", json.dumps(description, indent=1).encode())
    return {client: entry["uses"] or " + ".join(entry["files"]) for client, entry in clients.items()}


class _Files:
    """One file for each distinct model. Equal ones share it, even if a resumed run has read them apart."""

    def __init__(self) -> None:
        self.of: dict[str, Params] = {}  # file → model
        self._objects, self._files = Distinct[Params](), list[str]()  # an object is hashed once
        self._by_digest: dict[str, str] = {}

    def file(self, params: Params) -> str:
        if self._objects.number(params) == len(self._files):
            name = self._by_digest.setdefault(params.digest(), f"model-{len(self.of)}.safetensors")
            self.of.setdefault(name, params)
            self._files.append(name)
        return self._files[self._objects.number(params)]


def _used(files: list[str], chosen: int) -> str | None:
    """The file that a client predicts with; None for a mixture, or if nothing was chosen."""
    if len(files) == 1:
        return files[0]
    return files[chosen] if 0 <= chosen < len(files) else None
