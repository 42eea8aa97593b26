# SPDX-License-Identifier: Apache-2.0
"""How long a run at the paper's scale takes: measured whole, or estimated from some of its rounds.

    python benchmarks/paper_scale.py fashion                                # all 200 rounds
    python benchmarks/paper_scale.py cifar10 --rounds 5                     # five rounds, then an estimate
    python benchmarks/paper_scale.py cifar10 --rounds 5 --copy ../former    # with another working copy

The run has the paper's setting (Distribution I, 20%, α' = 0.25) and is started as a user starts it. For an
estimate rounds and evaluations are scaled by their number; start and the scores after local training are
taken as they are. Rounds in which everybody warms up belong to the start. Memory is the peak of all processes
(PSS: pages that processes share are counted once).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import watch

ROUNDS, EVALUATIONS = 200, 20
PAPER = [
    "num_clients=100",
    "fraction_train=0.2",
    "partition.kind=label-groups",
    "partition.label_share=0.2",
    "partition.alpha=0.25",
    "algorithm.name=feddag",
]
DATA = {"fashion": "fashion-mnist", "cifar10": "cifar10"}


def measure(command: list[str], copy: Path) -> tuple[float, float]:
    """Seconds and peak PSS of a command."""
    environment = {**os.environ, "PYTHONPATH": str(copy.resolve())}
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=copy, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(watch.proportional, watch.tree(process.pid))))
        time.sleep(1.0)
    if process.returncode:
        raise SystemExit(f"feddag run ended with code {process.returncode}")
    return time.perf_counter() - begin, peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", choices=tuple(DATA))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds that are computed [{ROUNDS}]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    parser.add_argument("--copy", type=Path, default=Path(__file__).parents[1], help="a built working copy")
    options = parser.parse_args()
    every = min(options.rounds, ROUNDS // EVALUATIONS)
    with tempfile.TemporaryDirectory() as root:
        file, folder = Path(root) / "empty.toml", Path(root) / "run"
        file.write_text("")
        changes = [*PAPER, f"data.name={DATA[options.data]}", f"num_rounds={options.rounds}"]
        changes += [f"evaluation.every={every}", *options.set]
        feddag = [sys.executable, "-m", "feddag", "run", str(file), "--folder", str(folder)]
        seconds, peak = measure([*feddag, *(f"--set={change}" for change in changes)], options.copy)
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        result = json.loads((folder / "result.json").read_text())
    report(events, result, seconds, peak, options.rounds)


def report(events: list[dict], result: dict, seconds: float, peak: int, rounds: int) -> None:
    """Print the parts, and what the whole run takes by them."""

    def times(*names: str) -> list[float]:
        return [event["seconds"] for event in events if event["event"] in names and "seconds" in event]

    trained = {e["round"] for e in events if e["event"] == "exchange" and e["task"] != "evaluate"}
    rounds_done = [e for e in events if e["event"] == "round" and e["round"] in trained]
    started, ordinary = sum(times("start")), [e["seconds"] for e in rounds_done]
    evaluations = times("evaluation")
    after = sum(times("final_evaluation", "chosen_evaluation"))
    rest = seconds - started - sum(ordinary) - sum(evaluations) - after
    print(f"machine {json.dumps(next(e['machine'] for e in events if e['event'] == 'started'))}")
    print(f"backend {next(e['backend'] for e in events if e['event'] == 'started')}")
    print(f"whole command {seconds:.0f} s, peak memory {peak / 1e9:.2f} GB (PSS of all processes)")
    print(f"start {started:.1f} s; {len(ordinary)} rounds with training, mean {mean(ordinary):.2f} s")
    print(f"{len(evaluations)} evaluations, mean {mean(evaluations):.2f} s; after training {after:.1f} s")
    print(f"everything else (start of processes, data, models, page) {rest:.1f} s")
    print(f"accuracy as served {100 * result['final']['before']['accuracy']:.2f}%")
    if rounds < ROUNDS:
        left = ROUNDS - rounds + len(ordinary)  # without those that the start has spent
        whole = started + left * mean(ordinary) + EVALUATIONS * mean(evaluations) + after + rest
        print(f"estimate of {ROUNDS} rounds: {whole / 60:.1f} min = {whole / 3600:.2f} h")


if __name__ == "__main__":
    main()
