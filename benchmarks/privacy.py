# SPDX-License-Identifier: Apache-2.0
"""What privacy costs and what it hides: the tables of docs/privacy-study.md.

    python benchmarks/privacy.py groups --data fashion-mnist --seeds 400 401 402 403 404
    python benchmarks/privacy.py audit --data fashion-mnist --seeds 400 401 402 403 404
    python benchmarks/privacy.py accuracy --seeds 400 401 --fraction 0.6
    python benchmarks/privacy.py dpsgd --seeds 400 --noises 0 0.6 1 2
    python benchmarks/privacy.py sums --seeds 400 401 402
    python benchmarks/privacy.py overhead
    python benchmarks/privacy.py plot --out docs/figures/privacy-curve.png --lines groups.jsonl accuracy.jsonl

Every line of output is one measurement as JSON; with --out it is also appended to a file.
Constants were chosen on seeds 1 to 29; figures are of seeds 400 and up.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from feddag.clustering.agglomerative import agreement
from feddag.core.algorithm import Server, broadcast
from feddag.core.deployment import LocalTraining
from feddag.core.seeds import Seed
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import open_site
from feddag.experiment.settings import Experiment
from feddag.learning.train import Train, train
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.guard import Protection
from feddag.privacy.sums import averaging_for
from feddag.runs.audit import audit
from feddag.runs.prepare import prepare
from feddag.runs.simulate import build, run
from feddag.runs.simulation import Simulation

Row = dict[str, Any]
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# About as many samples of every class that a client has: with 40 clients of Fashion-MNIST at least 100.
GROUPS = ["partition.kind=label-groups", "partition.label_share=0.3", "partition.alpha=100"]
ROWS = {
    "label skew": GROUPS,
    "concept": [
        "partition.kind=label-groups",
        "partition.groups=1",
        "partition.label_share=1",
        "partition.alpha=100",
        'partition.concept.maps=["identity", "reverse", "shift"]',
    ],
}


def experiment(data: str, row: str, seed: int, *settings: str) -> Experiment:
    """A federation with planted groups, clustered by FedDAG."""
    common = [f"data={data}", f"seed={seed}", "num_clients=40", "algorithm=feddag", "engine=inline"]
    return Experiment().with_overrides([*common, *ROWS[row], *settings])


def with_privacy(simulation: Simulation, *settings: str) -> Simulation:
    """The same federation under other privacy settings."""
    changed = simulation.experiment.with_overrides(settings)
    return Simulation(prepare(changed, simulation.federation.problem), simulation.federation)


def recovered(simulation: Simulation) -> Row:
    """How well the clusters of the method's start agree with the planted groups."""
    algorithm = replace(simulation.prepared.algorithm, encoders=_cold(simulation.prepared.algorithm.encoders))
    engine = InlineEngine(simulation.site)
    server = Server(
        engine=engine,
        clients=simulation.trainable,
        cohort=simulation.trainable,
        round=0,
        seed=Seed(simulation.experiment.seed),
        network=simulation.prepared.network,
        problem=simulation.prepared.problem,
    )
    labels = algorithm.clustering(algorithm.start(server)).clusters.labels()
    planted = [simulation.federation.groups[client] for client in sorted(labels)]
    found = [labels[client] for client in sorted(labels)]
    engine.close()
    return {"ari": round(float(agreement(found, planted)), 4), "clusters": len(set(found))}


def _cold(encoders: Any) -> Any:
    """Nobody trains before the clusters are known: they come from the data alone."""
    return replace(encoders, primary_start="random", secondary_start="random")


def _private(epsilon: float) -> list[str]:
    return ["privacy=private", f"privacy.subspaces.epsilon={epsilon}", "privacy.budget=20"]


def groups(data: str, seeds: list[int], epsilons: list[float]) -> Iterator[Row]:
    """Agreement with planted groups for each ε of the principal vectors; counts have ε = 0.5."""
    for seed in seeds:
        for row in ROWS:
            base = build(
                experiment(data, row, seed, 'algorithm.signature.views=["pixels", "shape", "texture"]')
            )
            sizes = np.concatenate([base.federation.examples(c).counts() for c in base.trainable])
            least = int(np.percentile(sizes[sizes > 0], 1))
            yield {"row": row, "seed": seed, "epsilon": None, "least_class": least, **recovered(base)}
            for epsilon in epsilons:
                simulation = with_privacy(base, *_private(epsilon))
                yield {"row": row, "seed": seed, "epsilon": epsilon, **recovered(simulation)}


def audits(data: str, seeds: list[int], levels: list[str], effort: float) -> Iterator[Row]:
    """The audit's worst values at each level."""
    for seed in seeds:
        base = build(experiment(data, "label skew", seed))
        for level in levels:
            found = audit(with_privacy(base, f"privacy={level}"), effort)
            values = {f.attack: [round(f.value, 4), round(f.error, 4), f.verdict] for f in found.findings}
            yield {"seed": seed, "level": level, "passed": found.passed, **values}


def accuracy(
    data: str, seeds: list[int], epsilons: list[float], folder: Path, fraction: float, more: list[str]
) -> Iterator[Row]:
    """Accuracy of FedDAG after ten rounds, without privacy and at level private for some ε."""
    short = ["num_rounds=10", f"fraction_train={fraction}", "training.local_epochs=2", "training.lr=0.05"]
    for seed in seeds:
        for epsilon in (None, *epsilons):
            private = _private(epsilon) if epsilon else []
            chosen = experiment(data, "label skew", seed, *short, *more, *private)
            yield {"seed": seed, "epsilon": epsilon, "fraction": fraction, **_run(chosen, folder)}


def dpsgd(
    data: str, seeds: list[int], noises: list[float], methods: list[str], folder: Path, more: list[str]
) -> Iterator[Row]:
    """Accuracy at level strict for some noises (0: no privacy), and the ε that the ledger shows.

    FedAvg with equal clients, and FedDAG with label skew.
    """
    short = ["num_clients=20", "num_rounds=10", "fraction_train=0.5", "training.local_epochs=1"]
    short += ["training.lr=0.1", "training.batch_size=64", "engine=inline", *more]
    federations = {"fedavg": ["partition.kind=iid"], "feddag": GROUPS}
    for seed in seeds:
        for method in methods:
            common = [f"data={data}", f"seed={seed}", f"algorithm={method}", *short, *federations[method]]
            for noise in noises:
                strict = ["privacy=strict", f"privacy.update.noise={noise}", "privacy.budget=1000"]
                chosen = Experiment().with_overrides([*common, *(strict if noise else [])])
                yield {"method": method, "seed": seed, "noise": noise, **_run(chosen, folder)}


def _run(settings: Experiment, folder: Path) -> Row:
    started = time.process_time()
    where = run(settings, folder=folder / f"run-{time.time_ns()}")
    result = json.loads((where / "result.json").read_text())
    private = result.get("privacy") or {}
    events = [json.loads(line) for line in (where / "events.jsonl").read_text().splitlines()]
    return {
        "accuracy": round(100 * result["final"]["before"]["accuracy"], 2),
        "clusters": result["clusters"],
        "epsilon_spent": private.get("largest"),
        "refused_sums": private.get("refused_sums"),
        "took_part": sum(len(e["cohort"]) for e in events if e["event"] == "round"),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def sums(data: str, seeds: list[int], folder: Path) -> Iterator[Row]:
    """Accuracy after ten rounds with secure sums and with plain means."""
    short = ["algorithm=fedavg", "num_clients=10", "num_rounds=10", "fraction_train=1"]
    short += ["training.local_epochs=1", "training.lr=0.05", "engine=inline", "privacy=guarded"]
    for seed in seeds:
        settings = [f"data={data}", f"seed={seed}", *short]
        plain = _run(Experiment().with_overrides(settings), folder)
        masked = _run(Experiment().with_overrides([*settings, "privacy.update.mode=secagg"]), folder)
        yield {"seed": seed, "plain": plain["accuracy"], "secagg": masked["accuracy"]}


def overhead(data: str, turns: int = 3) -> Iterator[Row]:
    """Processor time and bytes of one round with and without secure sums: the best of some turns."""
    for number in (10, 100):
        settings = [f"data={data}", "partition=iid", f"num_clients={number}", "seed=400"]
        federation = build(Experiment().with_overrides(settings)).federation
        plain_seconds, plain_bytes = min(_one_round(federation, None) for _ in range(turns))
        options = PrivacyOptions(level="guarded", update=replace(PrivacyOptions().update, mode="secagg"))
        seconds, traffic = min(_one_round(federation, options) for _ in range(turns))
        yield {
            "clients": number,
            "plain_cpu_seconds": round(plain_seconds, 3),
            "secagg_cpu_seconds": round(seconds, 3),
            "extra_per_client": round((seconds - plain_seconds) / number, 4),
            "plain_megabytes": round(plain_bytes / 1e6, 2),
            "secagg_megabytes": round(traffic / 1e6, 2),
        }


def _one_round(federation: Any, options: PrivacyOptions | None) -> tuple[float, int]:
    """Processor time and bytes of one mean over all clients, with one step of training each."""
    site = open_site(federation, "lenet", privacy=Protection(options) if options else None)
    engine, traffic = InlineEngine(site), []
    server = Server(
        engine=engine,
        clients=federation.ids,
        cohort=federation.ids,
        round=1,
        seed=Seed(1),
        network=site.network,
        problem=federation.problem,
        averaging=averaging_for(options) if options else None,
        on_answers=lambda task, round_, answers: traffic.extend(
            a.bytes_up + a.bytes_down for a in answers.values()
        ),
    )
    request = Train(params=server.initial_params(), local=LocalTraining(local_steps=1))
    started = time.process_time()
    server.ask_mean(train, broadcast(request, federation.ids))
    seconds = time.process_time() - started
    engine.close()
    return seconds, sum(traffic)


def plot(files: list[Path], picture: Path) -> None:
    """Agreement and accuracy against ε, from lines that were measured before; ∞ stands for no noise."""
    from matplotlib.figure import Figure

    from feddag.reporting.figures.save import save_png

    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    values = {"groups": "ari", "accuracy": "accuracy"}
    parts = [p for p in values if len({r["epsilon"] for r in rows if r["part"] == p}) > 1]
    figure = Figure(figsize=(4.5 * len(parts), 3.4), layout="constrained")
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        value = values[part]
        found = [r for r in rows if r["part"] == part]
        for k, name in enumerate(sorted({(r["data"], r.get("row", "label skew")) for r in found})):
            mine = [r for r in found if (r["data"], r.get("row", "label skew")) == name]
            at = sorted({r["epsilon"] or 16.0 for r in mine})
            means = [np.mean([r[value] for r in mine if (r["epsilon"] or 16.0) == e]) for e in at]
            # Lines that lie on one another stay visible: the later ones are thinner.
            size = {"markersize": max(13 - 3 * k, 3), "linewidth": max(6 - 1.6 * k, 1)}
            axes.plot(at, means, marker="o", label=", ".join(name), **size)
        axes.set_xscale("log", base=2)
        axes.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "∞"])
        axes.set_xlabel("ε of the views of the data")
        axes.set_ylabel("ARI with planted groups" if value == "ari" else "accuracy %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    save_png(figure, picture)


def main() -> None:
    """Measure one part and print it line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("groups", "audit", "accuracy", "dpsgd", "sums", "overhead", "plot"))
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--seeds", type=int, nargs="+", default=[400, 401, 402, 403, 404])
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--noises", type=float, nargs="+", default=[0.0, 0.6, 1.0, 2.0])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "feddag"], help="of `dpsgd`")
    parser.add_argument("--fraction", type=float, default=0.6, help="of `accuracy`: clients in a round")
    parser.add_argument("--set", nargs="+", default=[], help="of `accuracy` and `dpsgd`: more settings")
    parser.add_argument("--levels", nargs="+", default=["private"])
    parser.add_argument("--effort", type=float, default=1.0, help="of `audit`: multiplies the trials")
    parser.add_argument("--folder", type=Path, default=Path("runs/privacy-study"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--lines", type=Path, nargs="+", help="of `plot`: files that --out has written")
    chosen = parser.parse_args()
    if chosen.part == "plot":
        plot(chosen.lines, chosen.out)
        return
    rows = {
        "groups": lambda: groups(chosen.data, chosen.seeds, chosen.epsilons),
        "audit": lambda: audits(chosen.data, chosen.seeds, chosen.levels, chosen.effort),
        "accuracy": lambda: accuracy(
            chosen.data, chosen.seeds, chosen.epsilons, chosen.folder, chosen.fraction, chosen.set
        ),
        "dpsgd": lambda: dpsgd(
            chosen.data, chosen.seeds, chosen.noises, chosen.methods, chosen.folder, chosen.set
        ),
        "sums": lambda: sums(chosen.data, chosen.seeds, chosen.folder),
        "overhead": lambda: overhead(chosen.data),
    }[chosen.part]()
    for row in rows:
        line = json.dumps({"part": chosen.part, "data": chosen.data, **row})
        print(line, flush=True)
        if chosen.out:
            with chosen.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
