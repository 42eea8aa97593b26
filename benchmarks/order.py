# SPDX-License-Identifier: Apache-2.0
"""The order of the paper: FedDAG, FedDAG* (one encoder), FedDAG† (no sharing), FedAvg, on the same clients.

python benchmarks/order.py --seeds 3       # Fashion-MNIST, Distribution I 20%, α' = 0.25, 30 rounds
python benchmarks/order.py --data cifar10 --rounds 10 --set training.local_epochs=2
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feddag.experiment.settings import Experiment
from feddag.runs.simulate import run

VARIANTS = {
    "FedDAG": ["algorithm=feddag", "algorithm.preset=two_encoders"],
    "FedDAG*": ["algorithm=feddag", "algorithm.preset=two_encoders", "algorithm.encoders.count=1"],
    "FedDAG†": ["algorithm=feddag", "algorithm.preset=no_sharing"],
    "FedAvg": ["algorithm=fedavg"],
}
SETTING = ["partition.kind=label-groups", "partition.label_share=0.2", "partition.alpha=0.25"]


def main() -> None:
    """Run every variant with every seed, print the table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(VARIANTS), help="comma-separated variants")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".data" / "order.json")
    options = parser.parse_args()
    common = [f"data={options.data}", f"num_rounds={options.rounds}", "num_clients=100", *SETTING]
    common += ["evaluation.every=5", "evaluation.after_training=false", *options.overrides]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict[str, float]]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in options.only.split(","):
            started = time.perf_counter()
            experiment = Experiment().with_overrides([*common, *VARIANTS[name], f"seed={seed}"])
            folder = run(experiment, root=options.out.parent / "runs")
            result = json.loads((folder / "result.json").read_text())
            row = {
                "seed": seed,
                "final": 100 * result["final"]["before"]["accuracy"],
                "chosen": 100 * result["chosen"]["before"]["accuracy"],
                "chosen_round": result["chosen"]["round"],
                "seconds": time.perf_counter() - started,
            }
            results.setdefault(name, []).append(row)
            options.out.write_text(json.dumps(results, indent=1))
            print(
                f"seed {seed}  {name:9s}",
                {k: round(v, 2) for k, v in row.items()},
                file=sys.stderr,
                flush=True,
            )
    table = Table(
        title=f"{options.data}: mean client accuracy %, {options.rounds} rounds, {options.seeds} seeds"
    )
    for heading in ("variant", "last round", "validation-chosen round", "seconds a run"):
        table.add_column(heading)
    for name, rows in results.items():
        cells = []
        for key in ("final", "chosen"):
            values = [r[key] for r in rows]
            cells.append(f"{statistics.mean(values):.2f} ± {statistics.pstdev(values):.2f}")
        table.add_row(name, *cells, f"{statistics.mean(r['seconds'] for r in rows):.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
