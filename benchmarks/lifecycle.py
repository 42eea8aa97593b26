# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/lifecycle-study.md: newcomers (N1, N2), drift (D1, D2), growth, features, IID (D3-D5).

python benchmarks/lifecycle.py detect --seeds 400 401 402 --out detect.jsonl     # no training: alarms alone
python benchmarks/lifecycle.py train D1 --seeds 400 401 402 --out train.jsonl    # runs with training
python benchmarks/lifecycle.py train D1 --data cifar10 --seeds 560               # another dataset
python benchmarks/lifecycle.py cost                                              # a check against an epoch
python benchmarks/lifecycle.py tables detect.jsonl train.jsonl                   # markdown

Results are appended line by line, and cases that are there already are not run again.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.deployment import LocalTraining
from feddag.core.engine import Exchange
from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.engines.perform import client_at, single_threaded
from feddag.experiment.settings import Experiment
from feddag.learning.drift import DriftOptions, Watch, describe, may_have_changed, watch
from feddag.learning.sgd import sgd
from feddag.reporting.tables.clients import read_clients
from feddag.reporting.tables.lifecycle import Story, detected
from feddag.runs.simulate import build, run

CHANGE_POINTS = Path(__file__).parent / "change_points"
DATA = {"name": "fashion-mnist"}
SMALL = {
    "data": {**DATA, "max_train": 16000, "max_test": 4000},  # 1,000 samples a client: 100 of each class
    "num_clients": 16,
    "num_rounds": 24,
    "fraction_train": 0.5,
    "training": {"local_epochs": 1, "batch_size": 32, "lr": 0.05},
    "evaluation": {"every": 4, "after_training": False},
    "engine": "inline",
    "checkpoint_every": 100,
}
GROUPS = {"kind": "label-groups", "label_share": 0.3, "alpha": 1.0, "test_samples": 200}
CONCEPTS = {"kind": "lda", "alpha": 0.5, "test_samples": 200}

# -- detection alone -----------------------------------------------------------------------------------------

LABELS = {"kind": "label-groups", "label_share": 0.3, "alpha": 5.0}
IID = {"kind": "iid"}


def drift(kind: str, to: str = "other", clients: float = 0.3, at: int = 10, **more: Any) -> dict[str, Any]:
    """A scenario with one drift."""
    return {"drift": [{"at": at, "clients": clients, "kind": kind, "to": to, **more}]}


DETECT: dict[str, dict[str, Any]] = {
    "label, to another group": {"partition": LABELS, "scenario": drift("label")},
    "label, half of the samples kept": {"partition": LABELS, "scenario": drift("label", keep=0.5)},
    "concept, labels 1 and 2 swapped": {"partition": IID, "scenario": drift("concept", "swap-1-2")},
    "concept, labels reversed": {"partition": IID, "scenario": drift("concept", "reverse")},
    "concept, swap over lda 0.5": {"partition": CONCEPTS, "scenario": drift("concept", "swap-1-2")},
    "concept, slowly over 10 rounds": {"partition": IID, "scenario": drift("concept", "reverse", over=10)},
    **{
        f"feature, {to}": {"partition": IID, "scenario": drift("feature", to)}
        for to in ("contrast", "defocus_blur", "gaussian_noise", "motion_blur", "brightness", "shot_noise")
    },
    "growth alone (D3), iid": {"partition": IID, "scenario": {"name": "growth"}},
    "growth alone (D3), lda 0.5": {"partition": CONCEPTS, "scenario": {"name": "growth"}},
    "new samples all the time, iid": {"partition": IID, "scenario": "fresh"},
}
EVERY, ROUNDS = 5, 30
CLIENTS, SAMPLES = 33, 20000  # 600 samples each, as 100 clients of the whole set have


def detect(case: str, seed: int, data: str) -> dict[str, Any]:
    """Recall, delay and false alarms of the checks of all clients; nobody trains.

    After an alarm the reference is renewed, as in a run.
    """
    setting = DETECT[case]
    if setting["scenario"] == "fresh":
        return fresh(case, seed, data)
    experiment = Experiment.from_settings(
        {"data": {"name": data, "max_train": SAMPLES}, "num_clients": CLIENTS, "num_rounds": ROUNDS}
        | {"seed": seed, **setting}
    )
    federation, site = (simulation := build(experiment)).federation, simulation.site
    memories: dict[str, dict] = {c: {} for c in federation.ids}
    resting: dict[str, int] = {}
    drifts = [d for d in federation.drifts if d.kind != "quantity"]
    story = Story(drifts=[(d.client, d.at, d.done) for d in drifts])
    checks = 0
    for round_ in range(0, ROUNDS + 1, EVERY):
        for client in federation.ids:
            if resting.get(client, 0) > round_:
                continue
            here = client_at(
                site, client, Exchange(round_, Seed(seed) / "watch" / round_), memories[client], False, False
            )
            reply = watch(Watch(options=DriftOptions(), renew=round_ == 0), here)
            memories[client] = dict(here.memory)
            checks += round_ > 0
            if not reply.alarm:
                continue
            story.alarms.append((client, round_))
            watch(Watch(options=DriftOptions(), renew=True), here)
            memories[client], resting[client] = dict(here.memory), round_ + 3 * EVERY
    found, false = detected(story)
    counts = federation.counts()
    return {
        "table": "detect", "data": data, "case": case, "seed": seed, "clients": CLIENTS,
        "drifts": len(drifts), "detected": len(found), "checks": checks,
        "delays": [to - at for (_, at), (_, to) in found.items()],
        "repeats": len(story.alarms) - len(found) - len(false), "false": len(false),
        "median_class": float(np.median(counts[counts > 0])),
    }  # fmt: skip


def fresh(case: str, seed: int, data: str) -> dict[str, Any]:
    """Everybody's samples are replaced by other samples of the same distribution: nothing may alarm."""
    federation = build(
        Experiment.from_settings({"data": data, "num_clients": 500, "partition": IID, "seed": seed})
    ).federation
    pool, false, checks = federation.train, 0, 0
    rows = [federation.clients[c].train for c in federation.ids]
    for holder in range(100):
        seeds = Seed(seed) / "fresh" / holder
        lives = [
            Examples(
                np.asarray(pool.x[rows[5 * holder + k]]),
                np.asarray(pool.y[rows[5 * holder + k]], np.int64),
                10,
            )
            for k in range(5)
        ]
        client = type("Holder", (), {"memory": {}, "train": lives[0], "seed": seeds})()
        watch(Watch(options=DriftOptions(), renew=True), client)
        for k in range(1, 5):
            client = type("Holder", (), {"memory": client.memory, "train": lives[k], "seed": seeds / k})()
            false += watch(Watch(options=DriftOptions(), renew=False), client).alarm
            checks += 1
    return {"table": "detect", "data": data, "case": case, "seed": seed, "clients": 100, "drifts": 0,
            "detected": 0, "delays": [], "checks": checks, "repeats": 0, "false": false,
            "median_class": len(rows[0]) / 10}  # fmt: skip


# -- runs with training --------------------------------------------------------------------------------------

FOLLOW = {"lifecycle": {"every": 4}}
ORACLE = {"lifecycle": {"every": 4, "detector": "oracle", "assignment": "oracle", "cooldown": 0}}
NOTHING = {"lifecycle": {"every": 4, "detector": "none"}}
SWAPS = [(0.3, "swap-1-2"), (0.3, "swap-3-4"), (0.4, "swap-5-6")]


def swaps(*at: int, **more: Any) -> dict[str, Any]:
    """FedCCFA's scenario: three parts of the clients swap two labels each."""
    tables = [
        {"at": a, "clients": share, "kind": "concept", "to": to, "keep": 1.0, **more}
        for a, (share, to) in zip(at, SWAPS, strict=True)
    ]
    return {"drift": tables}


def cp(name: str) -> dict[str, Any]:
    """FedDrift's scenario: 10 clients, 11 steps, up to four concepts."""
    return {
        "num_clients": 10,
        "num_rounds": 44,
        "fraction_train": 0.5,
        "evaluation": {"every": 2, "after_training": False},
        "partition": {"kind": "iid", "test_samples": 200},
        "scenario": {"change_points": str(CHANGE_POINTS / f"{name}.cp"), "step": 4},
    }


MANY = {"num_clients": 30}  # five groups, each with enough members before anybody joins
MOVES = drift("label", clients=0.2, at=12)
DRIFTS = {"partition": {"kind": "iid", "test_samples": 200}, "num_rounds": 28}
TRAIN: dict[str, dict[str, dict[str, Any]]] = {
    "N1": {
        method: {**MANY, "algorithm": method, "partition": {**GROUPS, "newcomers": 0.2},
                 "evaluation": {"every": 12, "after_training": True}}
        for method in ("feddag", "pacfl", "fedavg")
    },
    "N1p": {  # the paper's sizes, 80 clients and 20 newcomers; signatures alone place them, so one round
        method: {"algorithm": method, "data": DATA, "num_clients": 100, "num_rounds": 1,
                 "fraction_train": 0.1, "partition": {**GROUPS, "newcomers": 0.2},
                 "evaluation": {"every": 1, "after_training": True}}
        for method in ("feddag", "pacfl")
    },
    "N2": {
        "joins": {**MANY, "algorithm": "feddag", "partition": GROUPS, **FOLLOW,
                  "scenario": {"join": [{"at": at, "clients": 0.1} for at in (6, 10, 14)]}},
        "nobody joins": {**MANY, "algorithm": "feddag", "partition": GROUPS, **FOLLOW,
                         "scenario": {"join": [{"at": 24, "clients": 0.1} for _ in range(3)]}},
    },
    "D1": {
        f"{when}, {name}": {**DRIFTS, "algorithm": method, "scenario": scenario, **more}
        for when, scenario in (
            ("sudden", swaps(12, 12, 12)),
            ("staggered", swaps(8, 12, 16)),
            ("recurrent", swaps(8, 8, 8, until=20)),
        )
        for name, method, more in (
            ("feddag", "feddag", FOLLOW),
            ("feddag, oracle", "feddag", ORACLE),
            ("feddag, no response", "feddag", NOTHING),
            ("feddrift", "feddrift", NOTHING),
        )
    },
    "D1g": {  # the same question with groups that exist before the drift
        name: {"algorithm": method, "partition": GROUPS, "scenario": MOVES} | more
        for name, method, more in (
            ("feddag", "feddag", FOLLOW),
            ("feddag, oracle", "feddag", ORACLE),
            ("feddag, no response", "feddag", NOTHING),
            ("feddrift", "feddrift", NOTHING),
            ("pacfl, reonboard", "pacfl", {"lifecycle": {"every": 4, "response": "reonboard"}}),
        )
    },
    "D2": {
        f"{name}, {case}": {**cp(name), "algorithm": method, **more}
        for name in ("B", "D")
        for case, method, more in (
            ("feddag", "feddag", FOLLOW),
            ("feddag, oracle", "feddag", ORACLE),
            ("feddrift", "feddrift", NOTHING),
        )
    },
    "D5": {
        "iid, a third joins": {
            "algorithm": "feddag", "partition": {"kind": "iid", "test_samples": 200}, "num_rounds": 28,
            "lifecycle": {"every": 4, "detector": "client"},
            "scenario": {"join": [{"at": at, "clients": 0.12} for at in (4, 8, 12)]},
        }
    },
}  # fmt: skip


def train(table: str, case: str, seed: int, data: str) -> dict[str, Any]:
    """One run; what its result says about clients that joined or changed."""
    settings: dict[str, Any] = {**SMALL, **TRAIN[table][case], "seed": seed}
    experiment = Experiment.from_settings({**settings, "data": {**settings["data"], "name": data}})
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        done = run(experiment, folder=Path(folder) / "run")
        result = json.loads((done / "result.json").read_text())
        rows = read_clients(done)
        simulation = build(experiment)
        planted = simulation.federation.groups if table.startswith("N1") else {}
    found = {
        "table": table, "data": data, "case": case, "seed": seed,
        "accuracy": result["final"]["before"]["accuracy"],
        "seconds": round(time.process_time() - started, 1), "clusters": result["clusters"],
    }  # fmt: skip
    if table.startswith("N1"):
        found["newcomers"] = result["newcomers"]["after"]["accuracy"]
        new = [row for row in rows if "newcomer" in row["note"]]
        clusters = {row["client"]: row["cluster"] for row in rows}
        right = []
        for row in new:
            mates = [planted[c] for c, z in clusters.items() if z == row["cluster"] and c != row["client"]]
            right.append(bool(mates) and max(set(mates), key=mates.count) == planted[row["client"]])
        found["placed"] = float(np.mean(right)) if new and new[0]["cluster"] != "" else None
    else:
        found["lifecycle"] = result["lifecycle"]
        if simulation.presence.joins:
            found["mates"] = _against_mates(rows, simulation.presence.joins)
    return found


def _against_mates(rows: Sequence[Mapping[str, str]], joined: Collection[str]) -> float | None:
    """By how much newcomers are more accurate than the old clients of their cluster, on average."""
    old: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["client"] not in joined:
            old[row["cluster"]].append(float(row["accuracy"]))
    new = [row for row in rows if row["client"] in joined and old[row["cluster"]]]
    return float(np.mean([float(r["accuracy"]) - np.mean(old[r["cluster"]]) for r in new])) if new else None


# -- cost ----------------------------------------------------------------------------------------------------


def cost(seed: int = 1) -> None:
    """Seconds of a check against seconds of an epoch of training, for typical clients."""
    print("| data | samples | an epoch | a check | share | all samples, if it is suspicious | share |")
    print("|---|---|---|---|---|---|---|")
    for name, clients in (("fashion-mnist", 100), ("fashion-mnist", 20), ("cifar10", 50)):
        settings = {"data": {"name": name}, "num_clients": clients, "partition": IID, "seed": seed}
        simulation = build(Experiment.from_settings(settings))
        client = client_at(simulation.site, "c000", Exchange(1, Seed(seed)), {}, False, False)
        start, local = (
            Params.from_module(simulation.site.network.fresh("single")),
            LocalTraining(local_epochs=1),
        )
        options, then = DriftOptions(), describe(client.train, DriftOptions(), Seed(1))
        with single_threaded():
            epoch = _least_seconds(partial(sgd, client, start, local))
            check = _least_seconds(partial(may_have_changed, then, client.train, options, Seed(2)))
            whole = _least_seconds(partial(describe, client.train, options, Seed(1), then["basis"]))
        times = f"{1000 * epoch:.1f} ms | {1000 * check:.2f} ms | {check / epoch:.1%}"
        times += f" | {1000 * whole:.1f} ms | {whole / epoch:.1%}"
        print(f"| {name} | {len(client.train)} | {times} |", flush=True)


def _least_seconds(work: Callable[[], Any]) -> float:
    """Processor seconds of the fastest of twelve calls."""
    times = []
    for _ in range(12):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


# -- tables --------------------------------------------------------------------------------------------------


DETECTED = (
    "data change (seeds)",
    "drifts",
    "recall",
    "mean delay",
    "largest",
    "checks",
    "repeats",
    "false alarms",
    "per 1,000",
)
TRAINED = (
    "table, case",
    "seeds",
    "accuracy",
    "drifted",
    "untouched",
    "clusters",
    "newcomers",
    "minus mates",
    "placed right",
    "right at the end",
)
TRAINED += ("recall", "delay", "false alarms", "moved right", "ARI", "re-clusterings")


def tables(paths: list[Path]) -> None:
    """All results as markdown; means over seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        for text in path.read_text().splitlines():
            row = json.loads(text)
            data = row.get("data", DATA["name"])
            found[row["table"], row["case"] + (f" ({data})" if data != DATA["name"] else "")].append(row)
    for heads, make, wanted in ((DETECTED, _detected, True), (TRAINED, _trained, False)):
        lines = [make(f"{t}, {c}", rows) for (t, c), rows in found.items() if (t == "detect") == wanted]
        if lines:
            _print_rows([heads, ["---"] * len(heads), *lines])


def _print_rows(rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


def _detected(case: str, rows: list[dict[str, Any]]) -> list[str]:
    drifts, seen, checks, false = (sum(r[k] for r in rows) for k in ("drifts", "detected", "checks", "false"))
    delays = [d for r in rows for d in r["delays"]]
    late = [f"{np.mean(delays):.1f}", str(max(delays))] if delays else ["–", "–"]
    recall = f"{seen / drifts:.3f}" if drifts else "–"
    rate = f"{1000 * false / max(checks, 1):.2f}"
    repeats = str(sum(r["repeats"] for r in rows))
    name = f"{case.removeprefix('detect, ')} ({len(rows)})"
    return [name, str(drifts), recall, *late, f"{checks:,}", repeats, str(false), rate]


def _trained(case: str, rows: list[dict[str, Any]]) -> list[str]:
    def mean(values: Iterable[Any], form: str = "{:.3f}") -> str:
        known = [v for v in values if v is not None]
        return form.format(np.mean(known)) if known else "–"

    def last(name: str) -> str:
        curves = [c.get("accuracy", {}).get(name) for c in cycles]
        return mean([100 * [*curve.values()][-1] for curve in curves if curve], "{:.2f}")

    cycles = [r.get("lifecycle") or {} for r in rows]
    accuracy = [100 * r["accuracy"] for r in rows]
    spread = f" ± {np.std(accuracy, ddof=1):.2f}" if len(accuracy) > 1 else ""
    newcomers = mean([100 * r["newcomers"] for r in rows if "newcomers" in r], "{:.2f}")
    placed = mean(r.get("placed", c.get("newcomers_right")) for r, c in zip(rows, cycles, strict=True))
    return [
        case,
        str(len(rows)),
        f"{np.mean(accuracy):.2f}{spread}",
        last("drifted"),
        last("untouched"),
        mean([r["clusters"] for r in rows], "{:.1f}"),
        newcomers if newcomers != "–" else last("new"),
        mean([100 * r["mates"] for r in rows if r.get("mates") is not None], "{:+.2f}"),
        placed,
        mean(c.get("newcomers_right_final") for c in cycles),
        mean(c.get("recall") for c in cycles),
        mean((c.get("delay") for c in cycles), "{:.1f}"),
        mean((c.get("false_alarms") for c in cycles), "{:.1f}"),
        mean(c.get("reassigned_right") for c in cycles),
        mean(c.get("ari_final") for c in cycles),
        mean((c.get("reclusterings") for c in cycles), "{:.1f}"),
    ]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["detect", "train", "cost", "tables"])
    parser.add_argument("names", nargs="*", help="tables of `train`, parts of the names of cases, or files")
    parser.add_argument("--data", default=DATA["name"], help="the dataset of `detect` and `train`")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    args = parser.parse_args()
    if args.what == "cost":
        return cost()
    if args.what == "tables":
        return tables([Path(name) for name in args.names])
    cases = {"detect": [*DETECT]} if args.what == "detect" else {t: [*TRAIN[t]] for t in args.names}
    known = set()
    if args.out is not None and args.out.exists():
        lines = [json.loads(line) for line in args.out.read_text().splitlines()]
        known = {(r["table"], r["case"], r["seed"], r.get("data", DATA["name"])) for r in lines}
    for seed in args.seeds:
        for table, names in cases.items():
            for case in names:
                if args.only not in case or (table, case, seed, args.data) in known:
                    continue
                with single_threaded():
                    work = detect if args.what == "detect" else partial(train, table)
                    row = work(case, seed, args.data)
                text = json.dumps(row)
                print(text[:400], flush=True)
                if args.out is not None:
                    with args.out.open("a") as file:
                        file.write(text + "\n")


if __name__ == "__main__":
    main()
