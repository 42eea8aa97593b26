# SPDX-License-Identifier: Apache-2.0
"""How feddag grows with the number of simulated clients: memory, seconds per round, start-up.

    python benchmarks/scaling.py [--clients 100,1000,10000] [--out FILE.json]
    python benchmarks/scaling.py --clients 10000,30000,100000 --fraction-train 0.01 --backend native

Every client holds equally many Fashion-MNIST images of two classes (drawn from one pool, with repetition), a
fixed share takes part in each round and trains one epoch: the work grows as the number of clients does, so a
cost per client that grows faster shows at once. FedDAG's start-up includes its signatures and clustering.
"CPU s" is the time of the processors, of all processes: the one to read on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

import watch
from peers.workload import Plan, prepare_scaled
from rich.console import Console
from rich.table import Table
from throughput import HERE, hardware, measure, sizes


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=sizes, default=[100, 1000, 10_000], help="[100,1000,10000]")
    parser.add_argument("--samples", type=int, default=60, help="samples of each client [60]")
    parser.add_argument("--fraction-train", type=float, default=0.2, help="share trained a round [0.2]")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--algorithm", choices=("fedavg", "feddag"), default="fedavg")
    parser.add_argument("--backend", choices=("torch", "native"), default="torch")
    parser.add_argument("--rounds", type=int, default=4, help="rounds, the first not counted [4]")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--patience", type=float, default=60.0, help="longest wait for an idle machine [60]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / ".data" / "scaling.json")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: the first round is a warm-up")
    if not 0 < options.fraction_train <= 1:
        parser.error(f"--fraction-train is {options.fraction_train:g}: expected more than 0, at most 1")
    console = Console(width=None if sys.stdout.isatty() else 130)
    data = HERE / ".data"
    runs: dict[int, list[Any]] = {count: [] for count in options.clients}
    for repeat in range(options.repeats):
        for count in options.clients:
            folder = prepare_scaled(count, options.samples, options.fraction_train, data, options.seed)
            plan = Plan(
                *("w1", str(folder), options.batch, options.rounds, 1, options.workers, options.seed),
                algorithm=options.algorithm,
            )
            watch.wait_until_idle(options.patience)
            contender = "native" if options.backend == "native" else "ours"
            run = measure(contender, Path(sys.executable), plan, repeat, data, timeout=3600.0)
            runs[count].append(run)
            seconds = statistics.median(run.round_seconds[1:])
            console.print(f"{count:,} clients, repeat {repeat + 1}/{options.repeats}: {seconds:.2f} s/round")
    rows = [summarise(count, group, options) for count, group in runs.items()]
    console.print(table(rows))
    result = {
        "settings": {key: str(value) for key, value in vars(options).items()},
        "hardware": hardware(),
        "summary": rows,
        "runs": [vars(run) for group in runs.values() for run in group],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))
    console.print(f"written to {options.out}")


def summarise(count: int, group: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    """Medians over repeats (memory: the largest) for one number of clients."""
    cohort = max(1, round(options.fraction_train * count))
    seconds = statistics.median(s for run in group for s in run.round_seconds[1:])
    return {
        "clients": count,
        "cohort": cohort,
        "startup_seconds": statistics.median(run.startup_seconds for run in group),
        "first_round_seconds": statistics.median(run.first_round_seconds for run in group),
        "round_seconds": seconds,
        "round_processor": statistics.median(cohort * options.samples / run.per_core_second for run in group),
        "startup_processor": statistics.median(run.startup_processor for run in group),
        "peak_rss": max(run.peak_rss for run in group),
        "peak_pss": max(run.peak_pss for run in group),
        "others": max(run.others for run in group),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The summary for people; × is the growth from the row above."""
    result = Table(title="feddag, process engine: growth with the number of clients", title_justify="left")
    for heading in (
        *("clients", "trained a round", "start-up s", "CPU s", "first round s", "s/round", "×", "CPU s", "×"),
        *("RSS MB", "×", "PSS MB", "others"),
    ):
        result.add_column(heading, justify="right")
    before: dict[str, Any] | None = None
    for row in rows:
        result.add_row(
            f"{row['clients']:,}",
            f"{row['cohort']:,}",
            f"{row['startup_seconds']:.2f}",
            f"{row['startup_processor']:.2f}",
            f"{row['first_round_seconds']:.2f}",
            f"{row['round_seconds']:.2f}",
            f"{row['round_seconds'] / before['round_seconds']:.1f}" if before else "–",
            f"{row['round_processor']:.2f}",
            f"{row['round_processor'] / before['round_processor']:.1f}" if before else "–",
            f"{row['peak_rss'] / 1e6:,.0f}",
            f"{row['peak_rss'] / before['peak_rss']:.2f}" if before else "–",
            f"{row['peak_pss'] / 1e6:,.0f}",
            f"{row['others']:.2f}",
        )
        before = row
    return result


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        main()
    except watch.CommandFailed as error:
        sys.exit(str(error))
