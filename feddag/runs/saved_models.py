# SPDX-License-Identifier: Apache-2.0
"""The trained models as plain files: one .safetensors a distinct model, and which client uses which."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from feddag.core.files import write_durably
from feddag.core.params import Params


def save_models(
    folder: Path, prepared: Any, state: Any, memory: Mapping[str, Mapping[str, Params | np.ndarray]]
) -> None:
    """Write what every client would use: `clients.json` names files, `model-K.safetensors` hold tensors."""
    folder.mkdir(exist_ok=True)
    files: dict[int, str] = {}
    kept: list[Params] = []  # keeps the objects alive, so that ids stay distinct
    clients: dict[str, Any] = {}
    for client in prepared.clients:
        deployment = prepared.algorithm.deploy(state, client)
        recalled = deployment.recall(memory.get(client, {}))
        for model in recalled.models:
            if id(model) not in files:
                files[id(model)] = f"model-{len(files)}.safetensors"
                kept.append(model)
                tensors = {name: np.ascontiguousarray(t.numpy()) for name, t in model.items()}
                write_durably(folder / files[id(model)], save(tensors))
        clients[client] = {
            "network": deployment.network,
            "files": [files[id(m)] for m in recalled.models],
            "weights": list(recalled.weights),
            "adapt": deployment.adapt is not None,
        }
    description = {
        "model": prepared.site.network.name,
        "input_shape": prepared.federation.input_shape,
        "num_classes": prepared.federation.num_classes,
        "scaling": vars(prepared.federation.scaling),
        "clients": clients,
    }
    write_durably(folder / "clients.json", json.dumps(description, indent=1).encode())
