# SPDX-License-Identifier: Apache-2.0
"""The trained models as plain files: one .safetensors per distinct model, and which client uses which."""

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

    `clients.json` says which files a client uses and how inputs are scaled; `model-K.safetensors` hold the
    tensors. `chosen` tells which of several models a client has found to be the best on its own data.
    """
    folder.mkdir(exist_ok=True)
    models = Distinct[Params]()
    clients: dict[ClientId, Any] = {}
    for client, deployment in deployments.items():
        files = [f"model-{models.number(m)}.safetensors" for m in deployment.models]
        clients[client] = {
            "network": deployment.network,
            "files": files,
            "weights": list(deployment.weights),
            "uses": files[chosen[client]] if 0 <= chosen.get(client, -1) < len(files) else None,
            "adapt": deployment.adapt is not None,
        }
    for number, params in enumerate(models):
        tensors = {name: np.ascontiguousarray(t.numpy()) for name, t in params.items()}
        write_durably(folder / f"model-{number}.safetensors", save(tensors))
    description = {
        "model": model,
        "input_shape": problem.input_shape,
        "num_classes": problem.num_classes,
        "class_names": list(problem.class_names),
        "scaling": vars(problem.scaling),
        "integer_codes": problem.integer_codes,
        "clients": clients,
    }
    write_durably(folder / "clients.json", json.dumps(description, indent=1).encode())
    return {client: entry["uses"] or " + ".join(entry["files"]) for client, entry in clients.items()}
