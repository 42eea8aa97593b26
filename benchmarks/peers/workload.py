# SPDX-License-Identifier: Apache-2.0
"""The workloads every contender trains, made once from a seed and shared as plain files.

Needs numpy and torch only, so that it can be imported inside each peer's own environment.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the driver prepares workloads without importing torch
    from torch import Tensor, nn

FASHION_MNIST_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # Debian package dataset-fashion-mnist
NUM_CLASSES = 10
ROUNDS_DRAWN = 64


@dataclass(frozen=True)
class Workload:
    """Shapes and numbers of one workload."""

    name: str
    title: str
    image_shape: tuple[int, int, int]
    num_clients: int
    samples_per_client: int  # the mean, where sizes are unequal
    cohort_size: int
    local_epochs: int
    label_concentration: float | None  # Dirichlet label skew; None: equal sizes, labels at random


WORKLOADS = {
    "w1": Workload("w1", "Fashion-MNIST shapes, LeNet-like", (1, 28, 28), 100, 600, 20, 10, 0.5),
    "w2": Workload("w2", "3×32×32, conv 64-128-256", (3, 32, 32), 40, 500, 8, 1, None),
}


@dataclass(frozen=True)
class Plan:
    """What one contender has to do in one run; the driver writes it, the contender reads it."""

    workload: str
    folder: str
    batch_size: int
    rounds: int
    local_epochs: int
    workers: int
    seed: int
    lr: float = 0.01
    momentum: float = 0.5
    weight_decay: float = 1e-4
    algorithm: str = "fedavg"  # of ours

    def save(self, path: Path) -> None:
        """Write this plan as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan written by `save`."""
        return Plan(**json.loads(Path(path).read_text()))

    @cached_property
    def data(self) -> Data:
        """The prepared images, labels, clients and cohorts."""
        return Data(Path(self.folder))

    def round_samples(self, round_index: int) -> int:
        """Samples trained in one round, every epoch counted."""
        return self.local_epochs * sum(self.data.size(client) for client in self.data.cohorts[round_index])

    def initial_model(self) -> nn.Module:
        """The network all contenders start from."""
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return build_model(self.workload)


class Data:
    """A prepared workload on disk; images stay memory-mapped bytes until a client asks for them."""

    def __init__(self, folder: Path):
        self.images = np.load(folder / "images.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        self.test_images = np.load(folder / "test_images.npy", mmap_mode="r")
        self.test_labels = np.load(folder / "test_labels.npy")
        self.order = np.load(folder / "order.npy")
        self.bounds = np.load(folder / "bounds.npy")
        self.cohorts: list[list[int]] = np.load(folder / "cohorts.npy").tolist()

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.bounds) - 1

    def size(self, client: int) -> int:
        """Number of samples of a client."""
        return int(self.bounds[client + 1] - self.bounds[client])

    def indices(self, client: int) -> np.ndarray:
        """Positions of a client's samples."""
        return self.order[self.bounds[client] : self.bounds[client + 1]]

    def client(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images as normalised floats, and its labels."""
        import torch

        rows = self.indices(client)
        return as_floats(self.images[rows]), torch.from_numpy(self.labels[rows])


def as_floats(images: np.ndarray) -> Tensor:
    """Bytes to floats in [-1, 1]."""
    import torch

    return torch.from_numpy(np.array(images, dtype=np.float32)).div_(127.5).sub_(1.0)


def build_model(workload: str) -> nn.Module:
    """LeNet-like (61,706 parameters) for w1, three convolutions (537,610) for w2."""
    from torch import nn

    if workload == "w1":
        return nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, NUM_CLASSES)),
        )
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 256, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1024, 128), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, NUM_CLASSES)),
    )


def flops_per_sample(workload: str) -> int:
    """Multiply-adds (counted as two) of the matrix products in one forward and backward pass."""
    import torch
    from torch import nn

    products: list[int] = []

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        per_output = layer.weight[0].numel()  # inputs each output value is a product over
        products.append(2 * per_output * output[0].numel())

    model = build_model(workload)
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(count)
    model(torch.zeros(1, *WORKLOADS[workload].image_shape))
    # Backward: one product for the weights and one for the inputs, which the first layer does not need.
    return 3 * sum(products) - products[0]


def train_client(model: nn.Module, images: Tensor, labels: Tensor, plan: Plan, seed: int) -> None:
    """Plain local SGD on preloaded tensors: the fastest loop a user of torch would write by hand."""
    import torch
    from torch.nn import functional

    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay
    )
    model.train()
    for _ in range(plan.local_epochs):
        for rows in torch.randperm(len(labels), generator=generator).split(plan.batch_size):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()


def accuracy(model: nn.Module, plan: Plan) -> float:
    """Share of test images named rightly: shows that a contender really trained."""
    import torch

    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(plan.data.test_labels), 500):
            guesses = model(as_floats(plan.data.test_images[start : start + 500])).argmax(1).numpy()
            right += int((guesses == plan.data.test_labels[start : start + 500]).sum())
    return right / len(plan.data.test_labels)


class Reporter:
    """Prints what a contender measured as JSON lines for the driver."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.round_index = 0
        self.started = 0.0

    def ready(self, **versions: str) -> None:
        """Set-up is over and the first round begins."""
        # Wall clock, since the driver's process noted when it launched this one.
        self._line("ready", seconds=time.time() - float(os.environ["BENCHMARK_LAUNCHED"]), versions=versions)
        self.started = time.perf_counter()

    def round_done(self) -> None:
        """The new global model of the current round exists; the next round begins."""
        seconds = time.perf_counter() - self.started
        self._line("round", seconds=seconds, samples=self.plan.round_samples(self.round_index))
        self.round_index += 1
        self.started = time.perf_counter()

    def finished(self, model: nn.Module) -> None:
        """Say how good the final model is."""
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self._line("finished", accuracy=accuracy(model, self.plan), parameters=parameters)

    def _line(self, event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), flush=True)


def prepare(name: str, root: Path, seed: int) -> Path:
    """Make a workload's files under root, once, and return their folder."""
    folder = root / f"{name}-seed{seed}"
    if (folder / "made.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    workload = WORKLOADS[name]
    random = np.random.default_rng(seed)
    source, (images, labels, test_images, test_labels) = load_images(workload, random)
    clients = list(split(labels, workload, random))
    write_images(folder, images, labels, test_images, test_labels)
    write_clients(folder, clients, draw_cohorts(workload.num_clients, workload.cohort_size, random))
    sizes = [len(rows) for rows in clients]
    made = {"source": source, "smallest": min(sizes), "largest": max(sizes), "total": sum(sizes)}
    (folder / "made.json").write_text(json.dumps(made))  # last: says that the rest is whole
    return folder


def prepare_scaled(num_clients: int, samples: int, share: float, root: Path, seed: int) -> Path:
    """Any number of w1 clients with equally many images each, drawn from the same pool with repetition.

    There are five kinds of clients, with two classes each.
    """
    folder = root / f"w1-{num_clients}-clients-of-{samples}-{share:g}-seed{seed}"
    if (folder / "made.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    pool = prepare("w1", root, seed)
    for name in ("images", "labels", "test_images", "test_labels"):
        (folder / f"{name}.npy").unlink(missing_ok=True)
        (folder / f"{name}.npy").symlink_to((pool / f"{name}.npy").resolve())
    random = np.random.default_rng([seed, num_clients])
    kinds = np.load(folder / "labels.npy") // 2
    rows = [np.flatnonzero(kinds == kind) for kind in range(5)]
    clients = [random.choice(rows[i % 5], samples, replace=False) for i in range(num_clients)]
    cohorts = draw_cohorts(num_clients, max(1, round(share * num_clients)), random)
    write_clients(folder, clients, cohorts)
    (folder / "made.json").write_text(json.dumps({"source": "images of w1, drawn with repetition"}))
    return folder


def draw_cohorts(num_clients: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Who trains in which round, `(ROUNDS_DRAWN, size)`."""
    rounds = [np.sort(random.choice(num_clients, size, replace=False)) for _ in range(ROUNDS_DRAWN)]
    return np.stack(rounds)


def write_images(folder: Path, *arrays: np.ndarray) -> None:
    """Training and test images with their labels."""
    for name, array in zip(("images", "labels", "test_images", "test_labels"), arrays, strict=True):
        np.save(folder / f"{name}.npy", array)


def write_clients(folder: Path, clients: list[np.ndarray], cohorts: np.ndarray) -> None:
    """Each client's sample positions and the cohort of each round."""
    np.save(folder / "order.npy", np.concatenate(clients))
    np.save(folder / "bounds.npy", np.cumsum([0, *map(len, clients)]))
    np.save(folder / "cohorts.npy", cohorts)


def load_images(workload: Workload, random: np.random.Generator) -> tuple[str, tuple[np.ndarray, ...]]:
    """Real Fashion-MNIST where installed and fitting, else one noisy pattern per class."""
    if workload.name == "w1" and FASHION_MNIST_FOLDER.is_dir():
        files = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
        images, labels, test_images, test_labels = (read_idx(name) for name in files)
        return "Fashion-MNIST", (
            images[:, None],
            labels.astype(np.int64),
            test_images[:, None],
            test_labels.astype(np.int64),
        )
    total = workload.num_clients * workload.samples_per_client
    patterns = random.integers(64, 192, (NUM_CLASSES, *workload.image_shape))
    parts: list[np.ndarray] = []
    for count in (total, 1000):
        labels = random.integers(0, NUM_CLASSES, count)
        noise = random.integers(-64, 64, (count, *workload.image_shape), dtype=np.int16)
        parts += [(patterns[labels] + noise).astype(np.uint8), labels.astype(np.int64)]
    return "noisy patterns", tuple(parts)


def read_idx(name: str) -> np.ndarray:
    """One file of the MNIST family's format."""
    with gzip.open(FASHION_MNIST_FOLDER / f"{name}-ubyte.gz") as file:
        raw = file.read()
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">u4", dimensions, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def split(labels: np.ndarray, workload: Workload, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Each client's sample positions: Dirichlet label skew (unequal sizes) or equal random shares."""
    if workload.label_concentration is None:
        yield from np.array_split(random.permutation(len(labels)), workload.num_clients)
        return
    shares: list[list[np.ndarray]] = [[] for _ in range(workload.num_clients)]
    for label in range(NUM_CLASSES):
        rows = random.permutation(np.flatnonzero(labels == label))
        weights = random.dirichlet(np.full(workload.num_clients, workload.label_concentration))
        cuts = (np.cumsum(weights)[:-1] * len(rows)).round().astype(int)
        for share, part in zip(shares, np.split(rows, cuts), strict=True):
            share.append(part)
    for share in shares:
        yield np.sort(np.concatenate(share))
