# SPDX-License-Identifier: Apache-2.0
"""What clusters gain from each other, at equal compute: FedDAG with a shared start against other methods.

python benchmarks/sharing.py office --seeds 400-404        # one setting, all methods, table and JSON
python benchmarks/sharing.py office pacs --methods "FedDAG*,shared start" --seeds 1-3
python benchmarks/sharing.py --table                       # only the tables of what has been run

Compute is counted in client-epochs: one pass of one client over its training samples. Every method may spend
what FedDAG* spends in its warm-up and R rounds; so methods without a warm-up run more rounds, and two
encoders, which train twice a round, run fewer. Evaluation and adaptation at the end are not counted. Results
are of the last round, on test samples; intervals are of paired differences over seeds (Student's t, 95%).
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from feddag.core.algorithm import Server
from feddag.core.seeds import Seed
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import single_threaded
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import Evaluate, evaluate
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
# setting → (R, planted groups or what PACFL and IFCA are told, settings)
SETTINGS: dict[str, tuple[int, int, list[str]]] = {
    "office": (16, 4, ["data=office-caltech10", *SMALL]),
    "pacs": (16, 4, ["data=pacs", "data.max_train=2000", "data.max_test=1000", *SMALL]),
    "concepts": (12, 3, [*FASHION, "partition.kind=lda", "partition.alpha=1", CONCEPTS]),
    "labels": (12, 5, [*FASHION, "partition.kind=label-groups", "partition.alpha=0.25"]),
    "pairs": (16, 5, [*CIFAR, "partition.kind=label-groups", "partition.alpha=1"]),
    "lda 0.25": (12, 4, [*FASHION, "partition.kind=lda", "partition.alpha=0.25"]),
    "lda 1": (12, 4, [*FASHION, "partition.kind=lda", "partition.alpha=1"]),
}
ONE = ["algorithm=feddag", "algorithm.encoders.count=1"]
BLIND = [*ONE, "algorithm.shared_start.rounds=0.4", "algorithm.shared_start.evidence=false"]
# method → (settings, epochs of a client in a round, whether it has FedDAG's warm-up)
METHODS: dict[str, tuple[list[str], int, bool]] = {
    "FedDAG*": ([*ONE, "algorithm.shared_start.rounds=0"], 1, True),
    "shared start": ([*ONE, "algorithm.shared_start.rounds=0.4"], 1, True),
    "two encoders": (["algorithm=feddag", "algorithm.encoders.count=2"], 2, True),
    "FedAvg": (["algorithm=fedavg"], 1, False),
    "tuned FedAvg": (["algorithm=fedavg_ft"], 1, False),
    "PACFL": (["algorithm=pacfl", "algorithm.num_clusters={groups}"], 1, False),
    "IFCA": (["algorithm=ifca", "algorithm.num_clusters={groups}"], 1, False),
    # what the parts of the shared start are worth
    "always": ([*BLIND, "algorithm.shared_start.partners=all"], 1, True),
    "sources": ([*BLIND, "algorithm.shared_start.partners=graph"], 1, True),
    "random": ([*BLIND, "algorithm.shared_start.partners=random"], 1, True),
}  # fmt: skip
WARMUP = 2  # rounds of training of all clients, SignatureOptions.warmup_rounds
REFERENCE = "FedDAG*"


def rounds_of(method: str, rounds: int, fraction: float) -> int:
    """How many rounds cost as many client-epochs as the reference's rounds and warm-up."""
    _, passes, warm = METHODS[method]
    if not warm:
        return math.floor(rounds + WARMUP / fraction + 1e-9)
    return WARMUP + max(1, rounds // passes)  # in the first ones, the warm-up's, nobody is asked


def play(setting: str, method: str, seed: int, extra: list[str], given: int = 0) -> dict[str, Any]:
    """One run, its scores and its cost."""
    rounds, groups, settings = SETTINGS[setting]
    rounds = given or rounds
    own = [text.format(groups=groups) if "{groups}" in text else text for text in METHODS[method][0]]
    experiment = Experiment().with_overrides(["engine=inline", *settings, *own, f"seed={seed}", *extra])
    rounds = rounds_of(method, rounds, experiment.fraction_train)
    simulation, started = build(experiment), time.process_time()
    engine, clients, cost = InlineEngine(simulation.site), simulation.trainable, {"epochs": 0, "bytes": 0}
    algorithm, notes = simulation.algorithm, []

    def record(task: Any, round_: int, answers: Any) -> None:
        cost["bytes"] += sum(a.bytes_down + a.bytes_up for a in answers.values())
        passes = {"sign": WARMUP, "train_dual": 2}.get(task.name, 1 if task.name.startswith("train") else 0)
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
        asked = {
            c: Evaluate(deployment=algorithm.deploy(state, c), local=experiment.training) for c in clients
        }
        replies = server(rounds, (), "evaluation").ask(evaluate, asked)
    accuracy = {c: 100 * r.test.correct.sum() / max(r.test.total.sum(), 1) for c, r in replies.items()}
    planted = simulation.federation.groups
    by_group: dict[str, list[float]] = {}
    for c, value in accuracy.items():
        name = simulation.federation.group_names.get(planted.get(c, 0), str(planted.get(c, 0)))
        by_group.setdefault(name, []).append(value)
    row: dict[str, Any] = {
        "mean": float(np.mean([*accuracy.values()])),
        "worst": float(min(accuracy.values())),
        "groups": {name: float(np.mean(values)) for name, values in sorted(by_group.items())},
        "rounds": rounds,
        "epochs": cost["epochs"] / len(clients),
        "megabytes": cost["bytes"] / len(clients) / 1e6,
        "seconds": time.process_time() - started,
    }
    if hasattr(state, "clusters"):
        labels = state.clusters.labels()
        known = [c for c in clients if c in labels]
        row["clusters"] = len(state.clusters)
        if planted:
            row["ari"] = adjusted_rand_score([planted[c] for c in known], [labels[c] for c in known])
    row["sharing"] = [note["sharing"] for note in notes if "sharing" in note]
    row["weighed"] = [note["weighed"] for note in notes if "weighed" in note]
    return row


def difference(values: np.ndarray) -> str:
    """Mean and 95% interval of paired differences."""
    if len(values) < 2:
        return f"{values.mean():+.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return f"{values.mean():+.1f} ± {half:.1f}"


def table(setting: str, results: dict[str, dict[str, Any]]) -> str:
    """The rows of one setting, as Markdown."""
    base = results.get(REFERENCE, {})
    poorest = ""
    if base:
        names = next(iter(base.values()))["groups"]
        poorest = min(
            names, key=lambda name: float(np.mean([row["groups"].get(name, 0) for row in base.values()]))
        )
    lines = [
        f"| {setting} | mean | over {REFERENCE} | poorest group ({poorest}) | over {REFERENCE} "
        "| worst client | rounds | epochs a client | MB a client | clusters | ARI |",
        "|---" * 11 + "|",
    ]  # fmt: skip
    for method, rows in results.items():
        seeds = sorted(rows)
        both = [s for s in seeds if s in base]

        def column(key: str, rows: Any = rows, seeds: Any = seeds) -> np.ndarray:
            return np.array([rows[s].get(key, math.nan) for s in seeds], dtype=float)

        means = np.array([rows[s]["mean"] - base[s]["mean"] for s in both])
        poor = np.array([rows[s]["groups"].get(poorest, math.nan) for s in seeds])
        gains = np.array([rows[s]["groups"][poorest] - base[s]["groups"][poorest] for s in both])
        clusters = " ".join(str(rows[s].get("clusters", "–")) for s in seeds)
        lines.append(
            f"| {method} | {column('mean').mean():.1f} | {difference(means) if len(both) else ''} "
            f"| {poor.mean():.1f} | {difference(gains) if len(both) else ''} "
            f"| {column('worst').mean():.1f} | {column('rounds').mean():.0f} | {column('epochs').mean():.0f} "
            f"| {column('megabytes').mean():.1f} | {clusters} | {column('ari').mean():.2f} |"
        )
    return "\n".join(lines).replace(" nan |", " – |")


def main() -> None:
    """Run what is not there yet, save after every run, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--methods", default=",".join([*METHODS][:7]), help="separated by commas")
    parser.add_argument("--seeds", default="400-404", help="first-last")
    parser.add_argument("--rounds", type=int, default=0, help="R, instead of the setting's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="extra")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".data" / "sharing.json")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(options.out.read_text()) if options.out.exists() else {}
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
                rows = done.setdefault(setting, {}).setdefault(method, {})
                if seed in rows:
                    continue
                rows[seed] = play(setting, method, int(seed), options.extra, options.rounds)
                options.out.write_text(json.dumps(done, indent=1))
                shown = {k: v if k == "groups" else round(v, 2) for k, v in rows[seed].items() if k in
                         ("mean", "worst", "groups", "rounds", "seconds", "clusters", "ari")}  # fmt: skip
                print(setting, seed, method, shown, rows[seed]["sharing"], file=sys.stderr, flush=True)
    for setting in settings:
        kept = {m: {s: r for s, r in rows.items() if s in seeds} for m, rows in done.get(setting, {}).items()}
        print(table(setting, {m: rows for m, rows in kept.items() if rows}), end="\n\n")


if __name__ == "__main__":
    main()
