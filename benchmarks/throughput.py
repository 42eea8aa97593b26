# SPDX-License-Identifier: Apache-2.0
"""Client-training throughput of feddag, Flower, pfl, a research prototype's loop, and the machine's limit.

    python benchmarks/throughput.py [--quick] [--only ours,flower,pfl,authors,limit]
                                    [--batch 64,32,10] [--workload w1,w2] [--out FILE.json]

All contenders train the same clients in the same cohorts, one after the other, again in each repeat,
so that a noisy neighbour hits all of them. Ratios are medians over repeats of ratios within a repeat.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
import watch
from peers.workload import WORKLOADS, Plan, prepare
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
CONTENDERS = ("ours", "native", "flower", "pfl", "authors", "limit")
TITLES = {
    "ours": "feddag, torch",
    "native": "feddag, native",
    "flower": "Flower",
    "pfl": "Apple pfl",
    "authors": "prototype",
}
SCRIPTS = {
    "ours": "ours.py",
    "native": "ours.py",
    "flower": "flower_peer.py",
    "pfl": "pfl_peer.py",
    "authors": "authors_way.py",
}


@dataclass(frozen=True)
class Run:
    """One contender's run of one plan."""

    contender: str
    workload: str
    batch_size: int
    repeat: int
    startup_seconds: float
    startup_processor: float  # of all processes, in seconds
    first_round_seconds: float
    round_seconds: list[float]
    samples_per_second: list[float]
    throughput: float  # samples/s over all rounds after the first
    per_core_second: float  # samples in a second of processor time, over the same rounds
    accuracy: float
    parameters: int
    peak_rss: int
    peak_pss: int
    others: float  # cores kept busy by other processes meanwhile
    versions: dict[str, str]


def main() -> None:
    """Measure, print tables, write JSON."""
    options = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else 180)
    data = HERE / ".data"
    pythons = make_environments(options)
    runs: list[Run] = []
    limits: list[dict[str, Any]] = []
    for name in options.workload:
        folder = prepare(name, data, options.seed)
        for batch_size in options.batch:
            if "limit" in options.only:
                limits.append(measure_limit(options.workers, data))
            for repeat in range(options.repeats):
                for contender, python in pythons.items():
                    plan = make_plan(options, name, folder, batch_size)
                    watch.wait_until_idle(options.patience)
                    run = measure(contender, python, plan, repeat, data, options.timeout)
                    runs.append(run)
                    write(options, runs, limits)
                    console.print(
                        f"{name} batch {batch_size} repeat {repeat + 1}/{options.repeats}: "
                        f"{TITLES[contender]} {run.throughput:,.0f} samples/s"
                        + (f" (others used {run.others:.1f} cores)" if run.others > 0.2 else ""),
                        highlight=False,
                    )
            console.print(table(name, batch_size, runs, limits, folder))
    console.print(f"written to {options.out}")


def write(options: argparse.Namespace, runs: list[Run], limits: list[dict[str, Any]]) -> None:
    """Everything measured so far, so that an interrupted benchmark loses nothing."""
    measured = dict.fromkeys((run.workload, run.batch_size) for run in runs)
    result = {
        "settings": {key: str(value) for key, value in vars(options).items()},
        "hardware": hardware(),
        "python": platform.python_version(),
        "limit": limits,
        "runs": [vars(run) for run in runs],
        "summary": [row for name, size in measured for row in summary(name, size, runs, limits)],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repeat, few epochs, batch 64: a smoke test")
    parser.add_argument("--only", type=names_among(CONTENDERS), default=list(CONTENDERS), metavar="NAMES")
    parser.add_argument("--batch", type=sizes, default=None, help="batch sizes [64,32,10]")
    parser.add_argument("--workload", type=names_among(tuple(WORKLOADS)), default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=None, help="interleaved repeats [3]")
    parser.add_argument("--rounds", type=int, default=2, help="rounds per run, the first not counted [2]")
    parser.add_argument("--epochs", type=int, default=None, help="local epochs [w1: 10, w2: 1]")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="longest wait in seconds for an idle machine, before each run [60]",
    )
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds a single run may take")
    parser.add_argument("--torch", default="torch==2.13.0", help="requirement in the peers' environments")
    parser.add_argument("--flower", default="flwr[simulation]==1.41.0", help="requirement for Flower")
    parser.add_argument("--pfl", default="pfl==0.6.0", help="requirement for pfl")
    parser.add_argument("--out", type=Path, default=HERE / ".data" / "throughput.json")
    options = parser.parse_args()
    options.batch = options.batch or ([64] if options.quick else [64, 32, 10])
    options.repeats = options.repeats or (1 if options.quick else 3)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: the first round is a warm-up")
    return options


def names_among(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A parser of comma-separated names."""

    def names(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"'{name}' is not among {', '.join(allowed)}")
        return chosen

    return names


def sizes(text: str) -> list[int]:
    """Parse comma-separated positive whole numbers."""
    if not all(part.isdecimal() and int(part) > 0 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of positive whole numbers like 64,32,10")
    return [int(part) for part in text.split(",")]


def make_environments(options: argparse.Namespace) -> dict[str, Path]:
    """The interpreter of each chosen contender."""
    pythons: dict[str, Path] = {}
    for contender in options.only:
        if contender in ("flower", "pfl"):
            pythons[contender] = environments.make(contender, [options.torch, getattr(options, contender)])
        elif contender != "limit":
            pythons[contender] = Path(sys.executable)
    return pythons


def make_plan(options: argparse.Namespace, name: str, folder: Path, batch_size: int) -> Plan:
    """What each contender has to do."""
    epochs = options.epochs or (1 if options.quick else WORKLOADS[name].local_epochs)
    return Plan(
        workload=name,
        folder=str(folder),
        batch_size=batch_size,
        rounds=options.rounds,
        local_epochs=epochs,
        workers=options.workers,
        seed=options.seed,
    )


def measure(contender: str, python: Path, plan: Plan, repeat: int, data: Path, timeout: float) -> Run:
    """Run one contender once."""
    path = data / f"plan-{contender}.json"
    plan.save(path)
    command = [str(python), str(HERE / "peers" / SCRIPTS[contender]), str(path)]
    if SCRIPTS[contender] == "ours.py":
        command.append("native" if contender == "native" else "torch")
    env = environments.variables(contender, python)
    if SCRIPTS[contender] == "ours.py":
        env["PYTHONPATH"] = str(HERE.parent)  # this checkout, whatever is installed
    watched = watch.run(command, env, data / f"log-{contender}.txt", timeout)
    events: dict[str, list[dict[str, Any]]] = {"ready": [], "round": [], "finished": []}
    for line in watched.lines:
        events[line["event"]].append(line)
    rounds = events["round"]
    if len(rounds) != plan.rounds or not events["finished"]:
        raise watch.CommandFailed(f"{contender} reported {len(rounds)} of {plan.rounds} rounds")
    counted = rounds[1:]  # the first one starts workers and fills caches; it is reported apart
    samples = sum(line["samples"] for line in counted)
    return Run(
        contender=contender,
        workload=plan.workload,
        batch_size=plan.batch_size,
        repeat=repeat,
        startup_seconds=events["ready"][0]["seconds"],
        startup_processor=events["ready"][0]["processor_seconds"],
        first_round_seconds=rounds[0]["seconds"],
        round_seconds=[line["seconds"] for line in rounds],
        samples_per_second=[line["samples"] / line["seconds"] for line in rounds],
        throughput=samples / sum(line["seconds"] for line in counted),
        per_core_second=samples / (rounds[-1]["processor_seconds"] - rounds[0]["processor_seconds"]),
        accuracy=events["finished"][0]["accuracy"],
        parameters=events["finished"][0]["parameters"],
        peak_rss=watched.peak_rss,
        peak_pss=watched.peak_pss,
        others=watched.others,
        versions=events["ready"][0]["versions"],
    )


def measure_limit(workers: int, data: Path) -> dict[str, Any]:
    """FLOP/s of the machine and the samples/s they would allow."""
    python = Path(sys.executable)
    command = [str(python), str(HERE / "limit.py"), "--workers", str(workers)]
    env = environments.variables("limit", python)
    return watch.run(command, env, data / "log-limit.txt", 600.0).lines[0]


def summary(
    name: str, batch_size: int, runs: list[Run], limits: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Medians and ratios of one workload and batch size, one row per contender."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if (run.workload, run.batch_size) == (name, batch_size):
            groups.setdefault(run.contender, []).append(run)
    # A limit is a best case: the best of all measurements counts.
    limit = max((line["samples_per_second"][name] for line in limits), default=None)
    return [
        {
            "workload": name,
            "batch_size": batch_size,
            "contender": contender,
            "samples_per_second": median(group, "throughput"),
            "per_core_second": median(group, "per_core_second"),
            "slowest": min(run.throughput for run in group),
            "fastest": max(run.throughput for run in group),
            "round_seconds": statistics.median(s for run in group for s in run.round_seconds[1:]),
            "first_round_seconds": median(group, "first_round_seconds"),
            "startup_seconds": median(group, "startup_seconds"),
            "peak_rss": max(run.peak_rss for run in group),
            "peak_pss": max(run.peak_pss for run in group),
            "accuracy": median(group, "accuracy"),
            "others": max(run.others for run in group),
            "ours_over_this": paired_ratio(groups.get("ours"), group),
            "native_over_this": paired_ratio(groups.get("native"), group),
            "this_over_authors": paired_ratio(group, groups.get("authors")),
            "share_of_limit": median(group, "throughput") / limit if limit else None,
        }
        for contender, group in groups.items()
    ]


def median(group: list[Run], field: str) -> float:
    """Median of one field over repeats."""
    return statistics.median(getattr(run, field) for run in group)


def paired_ratio(over: list[Run] | None, under: list[Run] | None) -> float | None:
    """Median over repeats of throughput ratios taken within a repeat; a repeat not finished is left out."""
    if not over or not under:
        return None
    return statistics.median(a.throughput / b.throughput for a, b in zip(over, under, strict=False))


def table(name: str, batch_size: int, runs: list[Run], limits: list[dict[str, Any]], folder: Path) -> Table:
    """The summary for people."""
    made = json.loads((folder / "made.json").read_text())
    title = f"{name}: {WORKLOADS[name].title} ({made['source']}), batch {batch_size}"
    result = Table(title=title, title_justify="left")
    result.add_column("contender", no_wrap=True)
    for heading in (
        *(
            "samples/s",
            "(range)",
            "/core-s",
            "torch ÷ this",
            "native ÷ this",
            "÷ prototype",
            "of limit",
            "s/round",
            "first round s",
        ),
        *("start-up s", "RSS MB", "PSS MB", "accuracy", "others"),
    ):
        result.add_column(heading, justify="right")
    for row in summary(name, batch_size, runs, limits):
        result.add_row(
            TITLES[row["contender"]],
            f"{row['samples_per_second']:,.0f}",
            f"{row['slowest']:,.0f}–{row['fastest']:,.0f}",
            f"{row['per_core_second']:,.0f}",
            shown(row["ours_over_this"], "{:.2f}×"),
            shown(row["native_over_this"], "{:.2f}×"),
            shown(row["this_over_authors"], "{:.2f}×"),
            shown(row["share_of_limit"], "{:.1%}"),
            f"{row['round_seconds']:.2f}",
            f"{row['first_round_seconds']:.2f}",
            f"{row['startup_seconds']:.2f}",
            f"{row['peak_rss'] / 1e6:,.0f}",
            f"{row['peak_pss'] / 1e6:,.0f}",
            f"{row['accuracy']:.3f}",
            f"{row['others']:.2f}",
        )
    if limits:
        best = max(limits, key=lambda line: line["flops_per_second"])
        result.caption = (
            f"limit: {best['flops_per_second'] / 1e9:,.0f} GFLOP/s ({best['best']}) and "
            f"{best['flops_per_sample'][name] / 1e6:.2f} MFLOP per sample: "
            f"{best['samples_per_second'][name]:,.0f} samples/s"
        )
    return result


def shown(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else form.format(value)


def hardware() -> dict[str, Any]:
    """Processor, cores and memory."""
    model, flags = platform.processor(), ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
        if line.startswith("flags"):
            flags = line.partition(":")[2]
            break
    vectors = [flag for flag in ("avx2", "avx512f", "amx_tile") if flag in flags.split()]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "vectors": vectors,
        "memory": memory,
        "system": platform.platform(),
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends the contender that runs, too
    try:
        main()
    except watch.CommandFailed as error:
        sys.exit(str(error))
