# SPDX-License-Identifier: Apache-2.0
"""Recovery of planted groups on Fashion-MNIST: adjusted Rand index and exact count, per row and view.

    python benchmarks/recovery.py --views data --seeds 10
    python benchmarks/recovery.py --views fused --seeds 5 --cache sketches

A row is a function `planted(row, x, y, seed) -> clients`; sketches come from `sketches_of(clients, seed)`.
Both can be replaced by the package's own federations and warm-up without touching the rest.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from planted import CLASSES, ROWS, Client, fashion_mnist, planted
from torch import nn

from feddag.clustering.agglomerative import agreement
from feddag.clustering.choice import Rule
from feddag.clustering.pipeline import PAPER, ClusteringOptions, cluster_signatures
from feddag.clustering.subspaces import class_subspaces

RECIPES = {
    "default": ClusteringOptions(),
    "paper": PAPER,
    "paper+silhouette": replace(PAPER, rule=Rule(name="silhouette")),
}
MASK = 0.02  # share of the update's coordinates that is kept


def network() -> nn.Sequential:
    """The LeNet-like network of the paper's Fashion-MNIST experiments: 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    )


def start_vector(seed: int) -> torch.Tensor:
    """The common start: uniform in +-1/sqrt(fan-in), as torch initialises these layers."""
    generator = np.random.default_rng([seed, 99])
    parts = []
    for layer in network():
        if hasattr(layer, "weight"):
            fan_in = layer.weight[0].numel()
            for size in (layer.weight.numel(), layer.bias.numel()):
                parts.append(generator.uniform(-1, 1, size) / np.sqrt(fan_in))
    return torch.tensor(np.concatenate(parts), dtype=torch.float32)


def warm_update(client: Client, number: int, seed: int, rounds: int, epochs: int) -> np.ndarray:
    """Its update after training alone: SGD 0.01, momentum 0.5 (fresh each round), decay 1e-4, batch 64."""
    start = start_vector(seed)
    x = torch.tensor((client.x / 255 - 0.2860) / 0.3530, dtype=torch.float32).reshape(-1, 1, 28, 28)
    y = torch.tensor(client.y)
    model = network()
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    for round_number in range(rounds):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-4)
        for epoch in range(epochs):
            order = np.random.default_rng([seed, round_number, number, epoch]).permutation(len(y))
            for batch in torch.tensor(order).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimiser.step()
    return (nn.utils.parameters_to_vector(model.parameters()).detach() - start).numpy()


def sketches_of(clients: list[Client], seed: int, rounds: int, epochs: int) -> np.ndarray:
    """The same random 2% of the coordinates of every client's update."""
    updates = np.stack([warm_update(c, i, seed, rounds, epochs) for i, c in enumerate(clients)])
    return updates[:, mask_of(seed, updates.shape[1])]


def mask_of(seed: int, size: int) -> np.ndarray:
    """The shared mask."""
    return np.random.default_rng([seed, 5]).choice(size, int(MASK * size), replace=False)


def main() -> None:
    """Run the rows and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--views", choices=("data", "gradient", "fused"), default="data")
    parser.add_argument("--recipe", choices=tuple(RECIPES), default="default")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cache", type=Path, help="folder that keeps sketches between runs")
    parser.add_argument("--cached-only", action="store_true", help="skip what the cache does not hold")
    parser.add_argument("--json", type=Path, help="write every single result here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = replace(RECIPES[arguments.recipe], views=arguments.views)
    x, y = fashion_mnist(arguments.data)
    results = []
    print(f"{arguments.views} view, recipe {arguments.recipe}, 100 clients, {arguments.seeds} seeds")
    print(f"{'row':<18} {'ARI mean':>8} {'ARI min':>8} {'exact':>7}  clusters found (planted)")
    for row in arguments.rows:
        found = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            cached = arguments.cache and arguments.cache / (
                f"{row.replace(' ', '_')}_{seed}_{arguments.rounds}x{arguments.epochs}.npy"
            )
            if arguments.views != "data" and arguments.cached_only and not (cached and cached.exists()):
                continue
            clients = planted(row, x, y, seed)
            truth = np.array([client.group for client in clients])
            sketches = None
            if arguments.views != "data":
                if cached and cached.exists():
                    sketches = np.load(cached)
                else:
                    sketches = sketches_of(clients, seed, arguments.rounds, arguments.epochs)
                    if cached:
                        cached.parent.mkdir(parents=True, exist_ok=True)
                        np.save(cached, sketches)
            begin = time.perf_counter()
            subspaces = [class_subspaces(c.x, c.y, CLASSES) for c in clients]
            counts = np.array([np.bincount(c.y, minlength=CLASSES) for c in clients])
            result = cluster_signatures(subspaces, counts, sketches, options)
            found.append(
                {
                    "row": row,
                    "seed": seed,
                    "ari": agreement(result.labels_N, truth),
                    "count": result.count,
                    "planted": len(set(truth)),
                    "weight": float(result.weights_N.mean()),
                    "tests": [
                        [
                            len(t.members),
                            round(t.silhouette, 3),
                            round(float(t.clouds.max(initial=0)), 3),
                            t.split,
                        ]
                        for t in result.choice.tests
                    ],
                    "seconds": round(time.perf_counter() - begin, 2),
                }
            )
        results += found
        if found:
            scores = [f["ari"] for f in found]
            exact = np.mean([f["count"] == f["planted"] for f in found])
            counts_found = " ".join(str(f["count"]) for f in found)
            print(
                f"{row:<18} {np.mean(scores):8.3f} {np.min(scores):8.3f} {exact:7.0%}  "
                f"{counts_found} ({found[0]['planted']})",
                flush=True,
            )
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
