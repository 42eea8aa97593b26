# SPDX-License-Identifier: Apache-2.0
"""A client's trained model, read back from a run folder and ready to predict.

model = load_run(folder).model("c03")
model.predict(x)                         # class names
model.predict_proba(x)                   # (samples, classes)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from feddag.core.deployment import Deployment
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples, Scaling
from feddag.core.params import Layout, Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import Client, ClientId
from feddag.core.text import listed
from feddag.learning.evaluation import log_probabilities
from feddag.models import Networks


@dataclass(frozen=True, eq=False)
class ClientModel:
    """What one client predicts with: one model or a mixture, its own parts in place, scaling included."""

    client: ClientId
    files: tuple[str, ...]
    problem: Problem
    deployment: Deployment
    networks: Networks

    def for_others(self) -> "ClientModel":
        """The same without what depends on the labels that this client has seen."""
        return replace(self, deployment=replace(self.deployment, shift=()))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities; numbers if they have no names."""
        return self.problem.class_names or tuple(map(str, range(self.problem.num_classes)))

    def predict_proba(self, x: Any) -> np.ndarray:
        """Probability of every class, (samples, classes); `x` holds samples as they were stored."""
        return self.log_probabilities(x).exp().numpy()

    def predict(self, x: Any) -> np.ndarray:
        """The most probable class of every sample, by name."""
        return np.array(self.classes)[self.log_probabilities(x).argmax(1).numpy()]

    def loss(self, x: Any, y: np.ndarray) -> float:
        """Mean cross-entropy of samples with class numbers `y`."""
        return float(-self.log_probabilities(x).gather(1, torch.from_numpy(y).view(-1, 1)).mean())

    def log_probabilities(self, x: Any) -> torch.Tensor:
        """As in the evaluation of a run, to the bit, (samples, classes)."""
        stored = self._as_stored(np.asarray(x))
        examples = Examples(
            stored, np.zeros(len(stored), dtype=np.int64), self.problem.num_classes, self.problem.scaling
        )
        nothing = examples.take(np.empty(0, dtype=np.int64))
        seed = Seed(0)
        client = Client(self.client, nothing, nothing, examples, self.networks, seed, seed)
        return log_probabilities(client, self.deployment, examples)

    def _as_stored(self, x: np.ndarray) -> np.ndarray:
        """Samples in the shape and type that the network was trained on."""
        problem, shape = self.problem, self.problem.input_shape
        if x.shape == shape:
            raise InvalidInput(f"x: expected several samples, (number, {_axes(shape)}), got one; use x[None]")
        if x.shape[1:] != shape and shape[:1] == (1,) and x.shape[1:] == shape[1:]:
            x = x[:, None]  # grey images without an axis for their one channel
        if x.ndim == 0 or x.shape[1:] != shape:
            raise InvalidInput(f"x: expected samples of shape ({_axes(shape)}), got an array {x.shape}")
        if x.dtype.kind not in "fiub":
            raise InvalidInput(f"x: expected numbers, got {x.dtype}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise InvalidInput("x: holds values that are missing or infinite")
        if problem.integer_codes:
            return x.astype(np.int64)
        if problem.scaling.unit == 255.0:
            return _pixels(x)
        return x.astype(np.float32)


def _axes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _pixels(x: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 255; a picture with values from 0 to 1 would be taken for a black one."""
    if x.dtype == np.uint8:
        return x
    if len(x) and (x.min() < 0 or x.max() > 255 or not (x == np.round(x)).all()):
        raise InvalidInput(
            f"x: expected pixels, whole numbers from 0 to 255, got values from {x.min():g} to {x.max():g}"
        )
    return x.astype(np.uint8)


@dataclass(frozen=True)
class SavedModels:
    """The folder `models` of a run."""

    folder: Path

    @cached_property
    def description(self) -> dict[str, Any]:
        """The contents of clients.json."""
        path = self.folder / "clients.json"
        try:
            return json.loads(path.read_text())
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise InvalidInput(f"{path} is damaged: {error}") from error

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Everybody who has a model, sorted."""
        return tuple(sorted(self.description["clients"]))

    @cached_property
    def problem(self) -> Problem:
        """What goes in and what comes out."""
        said = self.description
        scaling = said["scaling"]
        return Problem(
            tuple(said["input_shape"]),
            said["num_classes"],
            tuple(said["class_names"]),
            Scaling(scaling["unit"], tuple(scaling["mean"]), tuple(scaling["std"])),
            said["integer_codes"],
            tuple((name, tuple(words)) for name, words in said.get("columns", ())),
        )

    @cached_property
    def networks(self) -> Networks:
        """The networks that the files are loaded into."""
        return Networks(self.description["model"], self.problem)

    def of(self, client: ClientId) -> ClientModel:
        """The model of a client that took part."""
        if client not in self.description["clients"]:
            raise InvalidInput(
                f"client '{client}' took no part in this run, which has {listed(self.clients)}: "
                "for a new client use --like with labelled samples of it, or feddag newcomer"
            )
        entry = self.description["clients"][client]
        if entry["adapt"]:
            raise InvalidInput(
                f"client '{client}' trains its model on its own data before it predicts, and this run "
                "has only the model before that"
            )
        if entry["uses"] is None and not entry["weights"]:
            raise InvalidInput(
                f"client '{client}' was offered several models and its evaluation failed: "
                "nobody knows which one it uses"
            )
        files = tuple(entry["files"]) if entry["uses"] is None else (entry["uses"],)
        weights = tuple(entry["weights"]) if entry["uses"] is None else ()
        params = tuple(self._params(name, entry["network"]) for name in files)
        shift = tuple(entry.get("shift", ()))
        deployment = Deployment(models=params, network=entry["network"], weights=weights, shift=shift)
        return ClientModel(client, files, self.problem, deployment, self.networks)

    def users(self) -> list[list[ClientId]]:
        """Clients that predict with the same model, or the same mixture, stand together."""
        found: dict[tuple, list[ClientId]] = {}
        for client, entry in sorted(self.description["clients"].items()):
            mixture = (*entry["files"], *entry["weights"])
            found.setdefault((entry["uses"],) if entry["uses"] else mixture, []).append(client)
        return list(found.values())

    def best_for(self, x: Any, labels: Sequence[Any]) -> tuple[ClientModel, list[ClientId], float]:
        """For a client that was not there: the model that fits its labelled samples best.

        Returns the model, the clients that use it, and its mean cross-entropy on these samples.
        """
        y = self.class_numbers(labels)
        if len(y) == 0:
            raise InvalidInput("no labelled samples were given: at least one is needed to choose a model")
        models = [(self.of(clients[0]).for_others(), clients) for clients in self.users()]
        losses = [model.loss(x, y) for model, _ in models]
        best = int(np.argmin(losses))
        return *models[best], losses[best]

    def class_numbers(self, labels: Sequence[Any]) -> np.ndarray:
        """Class names as the numbers of the network's outputs."""
        names = self.problem.class_names or tuple(map(str, range(self.problem.num_classes)))
        number = {name: k for k, name in enumerate(names)}
        if unknown := sorted({str(label) for label in labels} - number.keys()):
            raise InvalidInput(f"class '{unknown[0]}' is none of this run's: {listed(names, 20)}")
        return np.array([number[str(label)] for label in labels], dtype=np.int64)

    def _params(self, name: str, network: str) -> Params:
        path = self.folder / name
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from error
        layout = Layout.of_module(self.networks(network))
        shapes = {n: tuple(t.shape) for n, t in tensors.items()}
        if shapes != dict(zip(layout.names, layout.shapes, strict=True)):
            raise InvalidInput(f"{path} does not fit the network '{self.networks.name}' of this run")
        return Params(torch.cat([tensors[n].reshape(-1) for n in layout.names]), layout)
