# SPDX-License-Identifier: Apache-2.0
"""Local training by the native kernels of two working copies in turns: is the new one faster, and how much?

    python benchmarks/against.py ../former [--models conv3,lenet] [--batch 64,10] [--turns 9] [--network dual]

Both copies must be built (`python -m feddag.native.build` in each). One process per copy trains the same
client for about a second in turns, on one thread; processor time is counted. The ratio is the median
of the ratios of neighbouring turns, because the speed of a shared machine changes from second to second;
beside it the ratio of the best turns, which neighbours have disturbed least.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

SHAPES = {"lenet": (1, 28, 28), "conv3": (3, 32, 32), "conv4": (3, 64, 64), "conv1d": (9, 128)}

# Runs in either copy, so it uses only what both have.
WORKER = """
import sys, time
import torch
from feddag import native
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.models import Networks
torch.set_num_threads(1)
model, shape, kind, batch, samples = sys.argv[1], eval(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6])
epochs = int(sys.argv[6])
torch.manual_seed(1)
networks = Networks(model, Problem(shape, 10))
module = networks.fresh(kind)
vector = Params.from_module(module).vector
generator = torch.Generator().manual_seed(2)
x = torch.randn((samples, *shape), generator=generator)
y = torch.randint(0, 10, (samples,), generator=generator)
plan = native.describe(module, shape)
batches = torch.arange(samples).split(batch) * epochs
print(native.isa(), flush=True)
for _ in sys.stdin:
    began = time.process_time()
    native.train(plan, vector, x, y, batches, lr=0.01, momentum=0.5, weight_decay=1e-4, train_prefixes=("",))
    print(samples * epochs / (time.process_time() - began), flush=True)
"""


class Copy:
    """One working copy at work."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.isa = self._line()

    def turn(self) -> float:
        """Samples per second of processor time."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit("a working copy failed: are its kernels built?")
        return line


def main() -> None:
    """Print one row per network and batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("former", type=Path, help="the other working copy")
    parser.add_argument("--models", default="conv3")
    parser.add_argument("--batch", default="64,10")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--network", default="single", choices=["single", "dual"])
    arguments = parser.parse_args()
    print("network   batch   former      now   now ÷ former, and of the best turns   (samples/s of one core)")
    for model in arguments.models.split(","):
        for batch in arguments.batch.split(","):
            sizes = [batch, str(arguments.samples), str(arguments.epochs)]
            given = [model, str(SHAPES[model]), arguments.network, *sizes]
            copies = [Copy(arguments.former, given), Copy(Path(__file__).parents[1], given)]
            turns = [[copy.turn() for copy in copies] for _ in range(arguments.turns + 1)][1:]  # warm-up
            former, now = (median(of_copy) for of_copy in zip(*turns, strict=True))
            best_former, best_now = (max(of_copy) for of_copy in zip(*turns, strict=True))
            ratio = median(new / old for old, new in turns)
            best = f"{best_now / best_former:.2f} ({best_former:.0f}, {best_now:.0f})"
            print(
                f"{model:9}{batch:>6}{former:9.0f}{now:9.0f}{ratio:8.2f}   {best}  {copies[1].isa}",
                flush=True,
            )
            for copy in copies:
                copy.process.terminate()


if __name__ == "__main__":
    main()
