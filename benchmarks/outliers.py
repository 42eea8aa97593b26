# SPDX-License-Identifier: Apache-2.0
"""Clients that resemble nobody: are they named, and what are they served?

    python benchmarks/outliers.py --seeds 570 571 572 573 574

Forty clients of Fashion-MNIST, alike or in five groups by label. Two of them are odd: each has its own names
of the labels, or its images are negatives. The federation is written as a folder of own data and run twice:
odd clients are served what their validation samples choose (the default), or their nearest cluster's model.
"""

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from feddag.data.federation import Federation
from feddag.engines.perform import single_threaded
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import build, run

ODD = ("c000", "c001")
BASES = {
    "alike": {"kind": "iid"},
    "label groups": {"kind": "label-groups", "label_share": 0.3, "alpha": 1.0},
}
KINDS = ("other names", "negatives")
TRAINING = {
    "num_rounds": 12,
    "fraction_train": 0.5,
    "training": {"local_epochs": 2, "batch_size": 32, "lr": 0.05},
    "evaluation": {"every": 12},
    "engine": "inline",
}


def write(federation: Federation, kind: str, seed: int, folder: Path) -> None:
    """One file per client; the odd ones are changed in their training and test samples alike."""
    for number, client in enumerate(federation.ids):
        names = np.arange(federation.num_classes)
        if client in ODD and kind == "other names":
            names = np.random.default_rng((seed, number)).permutation(names)
        parts = {}
        for part, ending in (("train", ""), ("test", "_test")):
            held = federation.examples(client, part)
            x = np.asarray(held.x)
            parts[f"x{ending}"] = 255 - x if client in ODD and kind == "negatives" else x
            parts[f"y{ending}"] = names[np.asarray(held.y)]
        np.savez(folder / f"{client}.npz", **parts)


def play(base: str, kind: str, seed: int) -> dict:
    """Both runs of one federation: who was named, and accuracies in percent."""
    dealt = Experiment.from_settings(
        {"data": {"name": "fashion-mnist", "max_train": 12000, "max_test": 4000}, "num_clients": 40}
        | {"partition": {**BASES[base], "test_samples": 200}, "seed": seed}
    )
    row: dict = {"base": base, "kind": kind, "seed": seed}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "sites"
        folder.mkdir()
        write(build(dealt).federation, kind, seed, folder)
        for served in ("validation", "cluster"):
            experiment = Experiment.from_settings(
                {"data": {"name": "own", "path": folder}, "num_clients": 40, "seed": seed, **TRAINING}
                | {"algorithm": {"name": "feddag", "outliers": served}}
            )
            done = run(experiment, folder=Path(root) / served).folder
            with (done / "clients.csv").open() as file:
                rows = list(csv.DictReader(file))
            row["named"] = sorted(r["client"] for r in rows if "unlike" in r["note"])
            row["clusters"] = len({r["cluster"] for r in rows})
            for who, chosen in (("odd", True), ("others", False)):
                found = [float(r["accuracy"]) for r in rows if (r["client"] in ODD) == chosen]
                row[f"{who}, {served}"] = 100 * float(np.mean(found))
    return row


def show(rows: list[dict]) -> None:
    """One line per kind of federation, means over seeds."""
    print(
        "| clients | the odd ones have | named | others named | clusters | odd, validation | odd, cluster |"
    )
    print("|---|---|---|---|---|---|---|")
    cases = defaultdict(list)
    for row in rows:
        cases[row["base"], row["kind"]].append(row)
    for (base, kind), found in cases.items():
        named = sum(len(set(ODD) & set(r["named"])) for r in found)
        wrong = sum(len(set(r["named"]) - set(ODD)) for r in found)
        clusters = " ".join(str(r["clusters"]) for r in found)
        odd = [float(np.mean([r[f"odd, {served}"] for r in found])) for served in ("validation", "cluster")]
        cells = [base, kind, f"{named} of {len(ODD) * len(found)}", str(wrong), clusters]
        print(f"| {' | '.join(cells)} | {odd[0]:.1f} | {odd[1]:.1f} |")


def main() -> None:
    """Run all kinds of federations for all seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, help="write every line here as JSON, too")
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        for base in BASES:
            for kind in KINDS:
                with single_threaded():
                    rows.append(play(base, kind, seed))
                print(json.dumps(rows[-1]), flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
