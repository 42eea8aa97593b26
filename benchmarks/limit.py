# SPDX-License-Identifier: Apache-2.0
"""The machine's own limit: independent single-thread sgemm streams, one per core, at the same time.

    python benchmarks/limit.py [--workers 2] [--seconds 0.5]

Prints one JSON line. The best library and matrix size count: a limit should be hard to beat.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

import numpy as np
from peers.workload import WORKLOADS, flops_per_sample

SIZES = (256, 512, 1024, 2048)


def products(library: str, size: int) -> Callable[[], object]:
    """A function that does one product of square float32 matrices into existing memory."""
    if library == "numpy":
        left, right, out = (np.ones((size, size), np.float32) for _ in range(3))
        return lambda: np.matmul(left, right, out=out)
    import torch

    torch.set_num_threads(1)
    a, b, c = (torch.ones(size, size) for _ in range(3))
    return lambda: torch.mm(a, b, out=c)


def stream(library: str, size: int, seconds: float, barrier: Barrier, out: multiprocessing.Queue) -> None:
    """Multiply for a while together with the other streams; put FLOP/s."""
    product = products(library, size)
    product()
    barrier.wait()
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        product()
        count += 1
    out.put(2.0 * size**3 * count / passed)


def measure(library: str, size: int, workers: int, seconds: float) -> float:
    """FLOP/s of all streams together."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # the spawned streams read them when they import numpy and torch
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(workers), context.Queue()
    streams = [
        context.Process(target=stream, args=(library, size, seconds, barrier, results))
        for _ in range(workers)
    ]
    for process in streams:
        process.start()
    total = sum(results.get(timeout=60 + 10 * seconds) for _ in streams)
    for process in streams:
        process.join()
    return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    measured = {
        f"{library} {size}": measure(library, size, options.workers, options.seconds)
        for library in ("torch", "numpy")
        for size in SIZES
    }
    best = max(measured, key=lambda key: measured[key])
    flops = {name: flops_per_sample(name) for name in WORKLOADS}
    result = {
        "flops_per_second": measured[best],
        "best": best,
        "measured": measured,
        "flops_per_sample": flops,
        "samples_per_second": {name: measured[best] / flops[name] for name in flops},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
