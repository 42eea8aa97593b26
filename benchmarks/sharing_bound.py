# SPDX-License-Identifier: Apache-2.0
"""What other domains' samples add without a federation: all samples of a domain in one place.

    python benchmarks/sharing_bound.py office pacs --seeds 1 2 3

For each planted group (domain) one network is trained for so many steps. *own*: on its own samples alone.
*a quarter*, *a half*, *all the time*: so many of these steps are made on the samples of all groups, the rest
on its own. Network, batch size and learning rate are those of `sharing.py`. Accuracy in percent on the test
samples of the group, mean over groups and seeds; differences to *own* by seed.
"""

import argparse
import copy

import numpy as np
import torch
from sharing import SETTINGS

from feddag.core.deployment import LocalTraining
from feddag.core.seeds import Seed
from feddag.engines.perform import single_threaded
from feddag.experiment.settings import Experiment
from feddag.runs.simulation import build

PARTS = {"own": 0.0, "a quarter": 0.25, "a half": 0.5, "all the time": 1.0}
Samples = tuple[torch.Tensor, torch.Tensor]  # inputs and labels


def trained(network: torch.nn.Module, samples: Samples, steps: int, local: LocalTraining, seed: Seed) -> None:
    """So many steps of plain SGD on batches drawn from samples."""
    (x, y), generator = samples, seed.torch()
    optimiser = torch.optim.SGD(network.parameters(), lr=local.lr)
    for _ in range(steps):
        batch = torch.randint(len(y), (local.batch_size,), generator=generator)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimiser.step()


def accuracy(network: torch.nn.Module, samples: Samples) -> float:
    """In percent."""
    x, y = samples
    with torch.no_grad():
        right = [(network(x[i : i + 256]).argmax(1) == y[i : i + 256]).sum() for i in range(0, len(y), 256)]
    return 100 * float(sum(right)) / len(y)


def compared(setting: str, seed: int, steps: int) -> dict[str, float]:
    """Mean accuracy over the groups, for each part of the steps that is made on all samples."""
    experiment = Experiment().with_overrides([*SETTINGS[setting][2], f"seed={seed}"])
    simulation = build(experiment)
    federation = simulation.federation
    clients = {
        g: [c for c in federation.clients if federation.groups[c] == g] for g in federation.group_names
    }

    def samples(names: list[str], split: str) -> Samples:
        parts = [federation.examples(c, split) for c in names]
        return torch.cat([p.inputs() for p in parts]), torch.cat([p.labels for p in parts])

    own = {g: samples(of_g, "train") for g, of_g in clients.items()}
    tests = {g: samples(of_g, "test") for g, of_g in clients.items()}
    everything = samples([*federation.clients], "train")
    found = {}
    for name, part in PARTS.items():
        with (Seed(seed) / "initial").ambient():
            start = simulation.prepared.network.fresh("single")
        trained(start, everything, round(part * steps), experiment.training, Seed(seed) / "all")
        scores = []
        for group, of_g in own.items():
            network = copy.deepcopy(start)
            trained(network, of_g, steps - round(part * steps), experiment.training, Seed(seed) / str(group))
            scores.append(accuracy(network, tests[group]))
        found[name] = float(np.mean(scores))
    return found


def main() -> None:
    """One table: rows are settings and steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="+", choices=["office", "pacs"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, nargs="+", default=[240, 720, 2160])
    options = parser.parse_args()
    print(f"| | steps | {' | '.join(PARTS)} |", "|---" * (len(PARTS) + 2) + "|", sep="\n")
    for setting in options.settings:
        for steps in options.steps:
            with single_threaded():
                rows = [compared(setting, seed, steps) for seed in options.seeds]
            cells = []
            for name in PARTS:
                gains = " ".join(f"{row[name] - row['own']:+.1f}" for row in rows)
                mean = float(np.mean([row[name] for row in rows]))
                cells.append(f"{mean:.1f}" + (f" ({gains})" if name != "own" else ""))
            print(f"| {setting} | {steps} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
