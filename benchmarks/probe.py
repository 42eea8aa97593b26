# SPDX-License-Identifier: Apache-2.0
"""A fresh linear head over the features of finished runs: what do the encoders hold?

    python benchmarks/probe.py RUN [RUN ...] [--samples 1500]

For every cluster of a run, features of its clients' training samples (at most so many a class) under the
primary encoder, the secondary one and both; logistic regression on them; accuracy on the clients' test
samples, beside the accuracy of the head that the run has trained. Means are over clients.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from feddag.experiment.settings import Experiment
from feddag.runs.simulate import Simulation, build

COLUMNS = ("trained head", "primary", "secondary", "both")


def main() -> None:
    """Probe every run, print a line a cluster and a table of means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument(
        "--samples", type=int, default=1500, help="training samples a class, and a quarter of test"
    )
    options = parser.parse_args()
    console = Console()
    table = Table(title="accuracy % on the clients' test samples, mean over clients")
    for heading in ("run", "seed", "algorithm", *COLUMNS):
        table.add_column(heading)
    for folder in options.runs:
        experiment = Experiment.from_settings(json.loads((folder / "experiment.json").read_text()))
        sums = dict.fromkeys(COLUMNS, 0.0)
        prepared, members = build(experiment), members_of(folder)
        for file, clients in members.items():
            scores = probe(prepared, folder / "models" / file, clients, options.samples)
            console.print(f"{folder.name} {file} {len(clients)} clients", rounded(scores), highlight=False)
            for column, value in scores.items():
                sums[column] += value * len(clients) / sum(map(len, members.values()))
        settings = {
            k: v for k, v in experiment.settings()["algorithm"].items() if v is False or (v and k != "preset")
        }
        means = [f"{100 * sums[c]:.2f}" if sums[c] else "–" for c in COLUMNS]
        table.add_row(folder.name, str(experiment.seed), str(settings), *means)
    console.print(table)


def members_of(folder: Path) -> dict[str, list[str]]:
    """Model file → the clients that use it."""
    members: dict[str, list[str]] = {}
    for client, used in json.loads((folder / "models" / "clients.json").read_text())["clients"].items():
        members.setdefault(used["files"][0], []).append(client)
    return dict(sorted(members.items()))


def probe(prepared: Simulation, file: Path, clients: list[str], samples: int) -> dict[str, float]:
    """Accuracy of the trained head and of fresh heads over each set of encoders."""
    tensors = load_file(file)
    dual = any(name.startswith("secondary.") for name in tensors)
    network = prepared.site.network("dual" if dual else "single")
    network.load_state_dict(tensors)
    network.eval()
    generator = np.random.default_rng(0)
    x, y = pooled(prepared, clients, "train")
    kept = [generator.permutation(np.flatnonzero(y == label))[:samples] for label in np.unique(y)]
    x, y = x[np.concatenate(kept)], y[np.concatenate(kept)]
    x_test, y_test = pooled(prepared, clients, "test")
    tested = generator.permutation(len(y_test))[: 4 * samples]
    x_test, y_test = x_test[tested], y_test[tested]
    with torch.no_grad():
        guesses = torch.cat([network(part).argmax(1) for part in x_test.split(256)]).numpy()
        features = {name: encode(network, name, x) for name in network.encoder_names}
        features_test = {name: encode(network, name, x_test) for name in network.encoder_names}
    scores = {"trained head": float((guesses == y_test).mean())}
    sets = {"primary": ("primary",), "secondary": ("secondary",), "both": ("primary", "secondary")}
    for column, names in sets.items():
        if set(names) <= set(features):
            head = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
            head.fit(np.hstack([features[n] for n in names]), y)
            scores[column] = float(head.score(np.hstack([features_test[n] for n in names]), y_test))
    return scores


def pooled(prepared: Simulation, clients: list[str], split: str) -> tuple[torch.Tensor, np.ndarray]:
    """All samples of some clients."""
    held = [prepared.federation.examples(client, split) for client in clients]
    return torch.cat([e.inputs() for e in held]), np.concatenate([e.y for e in held])


def encode(network: torch.nn.Module, name: str, x: torch.Tensor) -> np.ndarray:
    """Features of all samples under one encoder."""
    return torch.cat([network.encode(name, part) for part in x.split(256)]).numpy()


def rounded(scores: dict[str, float]) -> dict[str, float]:
    """Percent with one digit."""
    return {column: round(100 * value, 1) for column, value in scores.items()}


if __name__ == "__main__":
    main()
