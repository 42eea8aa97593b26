# SPDX-License-Identifier: Apache-2.0
"""How long a user waits: `feddag --help`, and `feddag run` until its first round begins.

    python benchmarks/startup.py [--repeats 5]

Importing PyTorch alone is timed beside it: less than that is not possible for a run.
A run's first round begins when the checkpoint of the start is on the disk. The fastest of some repeats is
shown, and the seconds of processor time of all processes until then. FedAvg has nothing to do before its
first round; the demo is FedDAG, whose start trains everybody for two rounds (they count as rounds).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import watch

FEDAVG = 'num_clients = 20\nnum_rounds = 3\ndata.name = "digits"\nalgorithm.name = "fedavg"\n'
FEDDAG = str(Path(sys.executable).with_name("feddag"))


def seconds_of(*command: str) -> float:
    """Seconds of a command."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def first_round_seconds(settings: str) -> tuple[float, float]:
    """Seconds, and seconds of processor time, from the command to the first round; then the run is ended."""
    with tempfile.TemporaryDirectory() as root:
        folder, file = Path(root) / "run", Path(root) / "settings.toml"
        file.write_text(settings)
        command = [FEDDAG, "run", *([str(file)] if settings else []), "--folder", str(folder), "--quiet"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not (folder / "checkpoints" / "round-000000.json").exists():
                if process.poll() is not None:
                    raise SystemExit(f"feddag run ended with code {process.returncode}")
                time.sleep(0.005)
            return time.perf_counter() - begin, tree_seconds(process.pid)
        finally:
            process.terminate()
            process.wait()


def tree_seconds(pid: int) -> float:
    """Processor seconds of a process and its children."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / watch.TICKS
    return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    alone = {"feddag --help": (FEDDAG, "--help"), "import torch": (sys.executable, "-c", "import torch")}
    for name, command in alone.items():
        print(f"{name}: {min(seconds_of(*command) for _ in range(options.repeats)):.2f} s")
    for name, settings in (("FedAvg", FEDAVG), ("demo", "")):
        found = min(first_round_seconds(settings) for _ in range(options.repeats))
        print(f"feddag run ({name}), to the first round: {found[0]:.2f} s, processors {found[1]:.2f} s")


if __name__ == "__main__":
    main()
