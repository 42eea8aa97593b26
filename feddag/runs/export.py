# SPDX-License-Identifier: Apache-2.0
"""A client's model as one file that needs no feddag: torch (.pt2) or ONNX.

The file takes samples as they are stored and gives the probability of every class: scaling, mixture and the
client's own parts are inside. Before it is kept, its outputs are compared with those of the model itself.
"""

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from feddag.core.errors import FederationError, InvalidInput, cannot_write
from feddag.core.files import write_durably
from feddag.core.params import Params, state_tensors
from feddag.learning.evaluation import mixed_log_probabilities
from feddag.runs.client_model import ClientModel

Format = Literal["torch", "onnx"]
SUFFIX = {"torch": ".pt2", "onnx": ".onnx"}
CLOSE = 1e-4  # largest difference of a probability that is taken for rounding


class ServedModel(nn.Module):
    """Stored samples → probabilities, (samples, classes) float32, as one module."""

    def __init__(self, model: ClientModel) -> None:
        super().__init__()
        self.scaling, self.weights = model.problem.scaling, model.deployment.weights
        self.shift = model.deployment.shift
        kind = model.deployment.network
        # The network of this process is loaded anew for every model: each copy keeps its own parameters.
        self.networks = nn.ModuleList(_loaded(model, kind, params) for params in model.deployment.models)

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities of a batch."""
        scaled = self.scaling(x)
        outputs = [network(scaled) for network in self.networks]
        return mixed_log_probabilities(outputs, self.weights, self.shift).exp().float()


def _loaded(model: ClientModel, kind: str, params: Params) -> nn.Module:
    network = copy.deepcopy(model.networks(kind))
    for name, tensor in state_tensors(network).items():
        tensor.data = params[name].clone()
    for name, child in list(network.named_modules()):
        if getattr(child, "equals_its_layers", False):  # a faster form that exporters need not know
            parent, _, last = name.rpartition(".")
            setattr(network.get_submodule(parent), last, nn.Sequential(*child.children()))
    return network.eval()


def export_model(model: ClientModel, path: Path, format_: Format) -> float:
    """Write the file; the largest difference of a probability from the model's own, on random samples."""
    served = ServedModel(model).eval()
    example = torch.from_numpy(random_samples(model, 3))
    batch = torch.export.Dim("samples")
    try:
        with _quiet():
            program = torch.export.export(served, (example,), dynamic_shapes=({0: batch},))
            data = _torch_bytes(program, model) if format_ == "torch" else _onnx_bytes(program, model)
    except FederationError:
        raise
    except Exception as error:  # torch's exporters raise dozens of types of error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"the network '{model.networks.name}' cannot be exported: {reason}") from error
    x = random_samples(model, 20)
    outputs = _run_torch(data, x) if format_ == "torch" else _run_onnx(data, x)
    difference = float(np.abs(outputs - model.predict_proba(x)).max())
    if not difference <= CLOSE:
        raise FederationError(f"the exported file gives other probabilities (up to {difference:.2g} apart)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)
    except OSError as error:
        raise cannot_write(path, error) from error
    return difference


def random_samples(model: ClientModel, number: int) -> np.ndarray:
    """Samples that could be real ones, as stored."""
    rng, problem = np.random.default_rng(0), model.problem
    shape = (number, *problem.input_shape)
    if problem.integer_codes:
        return rng.integers(0, 64, size=shape)
    if problem.scaling.unit == 255.0:
        return rng.integers(0, 256, size=shape).astype(np.uint8)
    return rng.normal(scale=problem.scaling.unit, size=shape).astype(np.float32)


def description(model: ClientModel) -> dict[str, Any]:
    """What a user of the file must know."""
    problem = model.problem
    kind = "int64" if problem.integer_codes else "uint8" if problem.scaling.unit == 255.0 else "float32"
    return {
        "client": model.client,
        "input": {"shape": ["samples", *problem.input_shape], "type": kind, "columns": problem.columns},
        "classes": list(model.classes),
        "output": "probability of each class, float32",
    }


def _torch_bytes(program: Any, model: ClientModel) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"about.json": json.dumps(description(model))})
    return buffer.getvalue()


def _onnx_bytes(program: Any, model: ClientModel) -> bytes:
    try:
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise InvalidInput("--format onnx needs onnx (pip install 'feddag[onnx]')") from error
    exported = torch.onnx.export(program, input_names=["x"], output_names=["probability"], verbose=False)
    assert exported is not None
    made = exported.model_proto
    for key, value in description(model).items():
        made.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    return made.SerializeToString()


def _run_torch(data: bytes, x: np.ndarray) -> np.ndarray:
    with _quiet(), torch.no_grad():
        return torch.export.load(io.BytesIO(data)).module()(torch.from_numpy(x)).numpy()


def _run_onnx(data: bytes, x: np.ndarray) -> np.ndarray:
    try:
        import onnxruntime
    except ImportError as error:
        raise InvalidInput("--format onnx needs onnxruntime (pip install 'feddag[onnx]')") from error
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters tell much that a user cannot act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
