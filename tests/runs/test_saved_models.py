# SPDX-License-Identifier: Apache-2.0
import json

import torch

from feddag.core.deployment import Deployment
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.runs.saved_models import save_models


def test_equal_models_share_a_file_even_if_a_resumed_run_has_read_them_apart(tmp_path):
    def model(value):
        return Params.of({"head.bias": torch.full((2,), float(value))})

    served = {"a": model(1), "b": model(2), "c": model(1), "d": model(2), "e": model(3)}
    problem = Problem(input_shape=(2,), num_classes=2)
    uses = save_models(
        tmp_path / "models", "mlp", problem, {c: Deployment(models=(m,)) for c, m in served.items()}, {}
    )
    assert uses == {c: f"model-{n}.safetensors" for c, n in zip("abcde", (0, 1, 0, 1, 2), strict=True)}
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [
        "clients.json",
        *sorted({*uses.values()}),
    ]
    told = json.loads((tmp_path / "models" / "clients.json").read_text())["clients"]
    assert {client: entry["files"] for client, entry in told.items()} == {c: [f] for c, f in uses.items()}
