# SPDX-License-Identifier: Apache-2.0
"""What clusters gain from each other, at equal compute: FedDAG, which mixes models, against other methods.

python benchmarks/sharing.py office --seeds 400-404        # one setting, all methods, table and JSON
python benchmarks/sharing.py office pacs --methods "FedDAG*,shared start" --seeds 1-3
python benchmarks/sharing.py --table                       # only the tables of what has been run

Compute is counted in client-epochs: one pass of one client over its training samples. Every method may spend
what FedAvg spends in R rounds; so methods that warm all clients up run fewer rounds, and so do two encoders,
which train twice a round. Evaluation and adaptation at the end are not counted. Results are of the last
round, on test samples; intervals are of paired differences over seeds (Student's t, 95%). Every run is one
line of the file of results: what is there is not run again.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from feddag.core.algorithm import Server
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.seeds import Seed
from feddag.data.federation import Federation
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import single_threaded
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import Evaluate, Evaluated, evaluate
from feddag.runs.simulation import build

SMALL = ["num_clients=20", "fraction_train=0.5", "model=lenet", "training.local_epochs=2"]
SMALL += ["training.batch_size=16", "training.lr=0.05"]
FASHION = ["data=fashion-mnist", "data.max_train=10000", "data.max_test=2000", "num_clients=40"]
FASHION += ["fraction_train=0.25", "training.local_epochs=2", "training.batch_size=32", "training.lr=0.05"]
FASHION += ["training.prior_correction=1"]
CIFAR = [
    "data=cifar10",
    "data.max_train=10000",
    "data.max_test=2000",
    "num_clients=40",
    "fraction_train=0.25",
]
CIFAR += ["training.local_epochs=2", "training.batch_size=32", "training.lr=0.02", "model=lenet"]
CIFAR += ["training.prior_correction=1"]
CONCEPTS = 'partition.concept.maps=["identity","reverse","shift"]'
STYLES = [
    "partition.kind=iid",
    'partition.feature.types=["clean", "gaussian_noise", "gaussian_blur", "contrast"]',
]
# setting → (R, planted groups or what PACFL and IFCA are told, settings)
SETTINGS: dict[str, tuple[int, int, list[str]]] = {
    "office": (20, 4, ["data=office-caltech10", *SMALL]),
    "pacs": (20, 4, ["data=pacs", "data.max_train=2000", "data.max_test=1000", *SMALL]),
    "concepts": (20, 3, [*FASHION, "partition.kind=lda", "partition.alpha=1", CONCEPTS]),
    "styles": (20, 4, [*FASHION, *STYLES]),
    "photo styles": (24, 4, [*CIFAR, *STYLES]),
    "labels": (20, 5, [*FASHION, "partition.kind=label-groups", "partition.alpha=0.25"]),
    "pairs": (24, 5, [*CIFAR, "partition.kind=label-groups", "partition.alpha=1"]),
    "lda 0.25": (20, 4, [*FASHION, "partition.kind=lda", "partition.alpha=0.25"]),
    "lda 1": (20, 4, [*FASHION, "partition.kind=lda", "partition.alpha=1"]),
}
SHARED = ["algorithm=feddag", "algorithm.preset=shared_start"]
ALL = [*SHARED, "algorithm.shared_start.evidence=false"]
METHODS: dict[str, list[str]] = {
    "FedDAG": ["algorithm=feddag"],
    "FedDAG*": ["algorithm=feddag", "algorithm.preset=one_encoder"],
    "FedAvg": ["algorithm=fedavg"],
    "PACFL": ["algorithm=pacfl", "algorithm.num_clusters={groups}"],
    "IFCA": ["algorithm=ifca", "algorithm.num_clusters={groups}"],
    # what the parts are worth
    "mixtures alone": ["algorithm=feddag", "algorithm.shared_start.rounds=0"],
    "shared start alone": ["algorithm=feddag", "algorithm.mixture.most=0"],
    "one model at first": ["algorithm=feddag", "algorithm.shared_start.pull=1"],
    "shared quarter": ["algorithm=feddag", "algorithm.shared_start.rounds=0.25"],
    "by validation": SHARED,
    "warm FedDAG*": ["algorithm=feddag", "algorithm.preset=two_encoders", "algorithm.encoders.count=1"],
    "two encoders": ["algorithm=feddag", "algorithm.preset=two_encoders"],
    "always": [*ALL, "algorithm.shared_start.partners=all"],
    "sources": [*ALL, "algorithm.shared_start.partners=graph"],
    "random": [*ALL, "algorithm.shared_start.partners=random"],
}
# method → what else its models are scored as: (name, what clients are served)
ALSO: dict[str, list[tuple[str, Callable[[Deployment, LocalTraining], Deployment]]]] = {
    "FedDAG": [("FedDAG, all labels", lambda d, local: replace(d, seen_labels=False))],
    "FedDAG*": [("FedDAG*, all labels", lambda d, local: replace(d, seen_labels=False))],
    "FedAvg": [
        ("tuned FedAvg", lambda d, local: replace(d, adapt=local)),  # this is the method fedavg_ft
        ("FedAvg, seen labels", lambda d, local: replace(d, seen_labels=True)),
    ],
}
REFERENCE = "FedDAG*"


def rounds_of(algorithm: Any, rounds: int, fraction: float) -> int:
    """How many rounds cost as many client-epochs as this number of FedAvg's rounds."""
    warmup, passes = algorithm.trainings() if hasattr(algorithm, "trainings") else (0, 1)
    rest = max(1, math.floor((rounds - warmup / fraction) / passes + 1e-9))
    return warmup + rest  # in the first ones, the warm-up's, nobody is asked


def play(setting: str, method: str, seed: int, extra: list[str], given: int = 0) -> dict[str, dict[str, Any]]:
    """One run: its cost, and its scores by how it is served."""
    rounds, groups, settings = SETTINGS[setting]
    own = [text.format(groups=groups) if "{groups}" in text else text for text in METHODS[method]]
    experiment = Experiment().with_overrides(["engine=inline", *settings, *own, f"seed={seed}", *extra])
    simulation, started = build(experiment), time.process_time()
    rounds = rounds_of(simulation.algorithm, given or rounds, experiment.fraction_train)
    engine, clients, cost = InlineEngine(simulation.site), simulation.trainable, {"epochs": 0, "bytes": 0}
    algorithm, notes = simulation.algorithm, []
    warmup = algorithm.trainings()[0] if hasattr(algorithm, "trainings") else 0

    def record(task: Any, round_: int, answers: Any) -> None:
        cost["bytes"] += sum(a.bytes_down + a.bytes_up for a in answers.values())
        passes = {"sign": warmup, "train_dual": 2}.get(task.name, 1 if "train" in task.name else 0)
        cost["epochs"] += passes * len(answers) * experiment.training.local_epochs

    def server(round_: int, members: tuple[str, ...], purpose: str = "round") -> Server:
        made = Server(
            engine=engine,
            clients=clients,
            cohort=members,
            round=round_,
            seed=Seed(seed),
            network=simulation.prepared.network,
            problem=simulation.federation.problem,
            num_rounds=rounds,
            quorum=experiment.engine.quorum,  # a client whose training diverges is left out, as in every run
            purpose=purpose,
            on_answers=(lambda *_: None) if purpose == "evaluation" else record,
        )
        notes.append(made.notes)
        return made

    with single_threaded():
        state = algorithm.start(server(0, clients))
        for round_ in range(1, rounds + 1):
            generator = (Seed(seed) / "cohort" / round_).numpy()
            size = experiment.cohort_size(len(clients))
            drawn = sorted(map(str, generator.choice(clients, size=size, replace=False)))
            state = algorithm.round(state, server(round_, tuple(drawn)))
        replies = {}
        for name, serve in [(method, lambda d, local: d), *ALSO.get(method, [])]:
            served = {c: serve(algorithm.deploy(state, c), experiment.training) for c in clients}
            asked = {c: Evaluate(deployment=d, local=experiment.training) for c, d in served.items()}
            replies[name] = server(rounds, (), "evaluation").ask(evaluate, asked)
    row: dict[str, Any] = {
        "rounds": rounds,
        "epochs": cost["epochs"] / len(clients),
        "megabytes": cost["bytes"] / len(clients) / 1e6,
        "seconds": time.process_time() - started,
        "sharing": [note["sharing"] for note in notes if "sharing" in note],
        "mixture": [note["mixture"] for note in notes if "mixture" in note][-1:],
        "weighed": [note["weighed"] for note in notes if "weighed" in note],
    }
    planted = simulation.federation.groups
    if hasattr(state, "clusters"):
        labels = state.clusters.labels()
        known = [c for c in clients if c in labels]
        row["clusters"] = len(state.clusters)
        if planted:
            row["ari"] = adjusted_rand_score([planted[c] for c in known], [labels[c] for c in known])
    rows = {name: {**scored(simulation.federation, found), **row} for name, found in replies.items()}
    if method == "FedDAG" and not row["mixture"]:  # then it is FedDAG*, bit for bit: a test says so
        rows |= {name.replace("FedDAG", "FedDAG*"): values for name, values in rows.items()}
    return rows


def scored(federation: Federation, replies: Mapping[str, Evaluated]) -> dict[str, Any]:
    """Test accuracy in percent: mean over clients, worst client, mean of every planted group."""
    accuracy = {c: 100 * r.test.correct.sum() / max(r.test.total.sum(), 1) for c, r in replies.items()}
    by_group: dict[str, list[float]] = {}
    samples: dict[str, int] = {}
    for c, value in accuracy.items():
        group = federation.groups.get(c, 0)
        name = federation.group_names.get(group, str(group))
        by_group.setdefault(name, []).append(value)
        samples[name] = samples.get(name, 0) + len(federation.clients[c].train)
    return {
        "mean": float(np.mean([*accuracy.values()])),
        "worst": float(min(accuracy.values())),
        "groups": {name: float(np.mean(values)) for name, values in sorted(by_group.items())},
        "samples": samples,
    }


def difference(values: list[float]) -> str:
    """Mean and 95% interval of paired differences."""
    if len(values) < 2:
        return f"{values[0]:+.1f}" if values else "–"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):+.1f} ± {half:.1f}"


def table(setting: str, results: dict[str, dict[str, Any]]) -> str:
    """The rows of one setting, as Markdown; differences over the reference are paired by seed.

    "lowest" is, for each seed, the planted group where the reference is worst; "fewest" the one that has the
    fewest training samples.
    """
    base = results.get(REFERENCE, {})
    samples = {s: row["samples"] for rows in results.values() for s, row in rows.items() if "samples" in row}
    lowest = {s: min(row["groups"], key=row["groups"].__getitem__) for s, row in base.items()}
    fewest = {s: min(of_s, key=of_s.__getitem__) for s, of_s in samples.items()}
    titles = ["mean", "Δ mean", "Δ lowest", "Δ fewest", "worst client", "rounds", "epochs", "MB", "clusters"]
    lines = [f"| {setting} | {' | '.join(titles)} | ARI |", "|---" * (len(titles) + 2) + "|"]
    for method, rows in results.items():
        seeds = sorted(rows)
        both = [s for s in seeds if s in base]

        def column(key: str, rows: Any = rows, seeds: Any = seeds) -> float:
            return float(np.mean([rows[s].get(key, math.nan) for s in seeds]))

        def gain(group: dict[str, str], rows: Any = rows, both: Any = both) -> str:
            known = [s for s in both if s in group]
            return difference([rows[s]["groups"][group[s]] - base[s]["groups"][group[s]] for s in known])

        clusters = " ".join(str(rows[s].get("clusters", "–")) for s in seeds)
        cells = [method, f"{column('mean'):.1f}"]
        cells += [difference([rows[s]["mean"] - base[s]["mean"] for s in both]), gain(lowest), gain(fewest)]
        cells += [f"{column('worst'):.1f}", f"{column('rounds'):.0f}", f"{column('epochs'):.0f}"]
        cells += [f"{column('megabytes'):.1f}", clusters, f"{column('ari'):.2f}"]
        lines.append("| " + " | ".join("–" if cell == "nan" else cell for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is not there yet, save after every run, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--methods", default=",".join([*METHODS][:5]), help="separated by commas")
    parser.add_argument("--seeds", default="510-514", help="first-last")
    parser.add_argument("--rounds", type=int, default=0, help="R, instead of the setting's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="extra")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".data" / "sharing.jsonl")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, dict[str, dict[str, Any]]] = {}
    for line in options.out.read_text().splitlines() if options.out.exists() else []:
        row = json.loads(line)
        done.setdefault(row["setting"], {}).setdefault(row["method"], {})[row["seed"]] = row
    first, _, last = options.seeds.partition("-")
    seeds = [str(seed) for seed in range(int(first), int(last or first) + 1)]
    settings = options.settings or [*done]
    methods = [name.strip() for name in options.methods.split(",")]
    for unknown in [s for s in settings if s not in SETTINGS] + [m for m in methods if m not in METHODS]:
        parser.error(
            f"'{unknown}' is unknown: settings are {', '.join(SETTINGS)}; methods {', '.join(METHODS)}"
        )
    for seed in [] if options.table else seeds:
        for setting in settings:
            for method in methods:
                if seed in done.get(setting, {}).get(method, {}):
                    continue
                for name, row in play(setting, method, int(seed), options.extra, options.rounds).items():
                    done.setdefault(setting, {}).setdefault(name, {})[seed] = row
                    with options.out.open("a") as file:
                        file.write(
                            json.dumps({"setting": setting, "method": name, "seed": seed, **row}) + "\n"
                        )
                    shown = (
                        f"{row['mean']:.2f}, worst {row['worst']:.1f}, {row.get('clusters', '-')} clusters"
                    )
                    print(
                        setting, seed, name, shown, row["groups"], row["mixture"], file=sys.stderr, flush=True
                    )
    for setting in settings:
        kept = {m: {s: r for s, r in rows.items() if s in seeds} for m, rows in done.get(setting, {}).items()}
        print(table(setting, {m: rows for m, rows in kept.items() if rows}), end="\n\n")


if __name__ == "__main__":
    main()
