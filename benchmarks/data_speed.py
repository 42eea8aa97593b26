# SPDX-License-Identifier: Apache-2.0
"""How fast data is ready, how fast it is dealt, and how much memory it takes.

    FEDDAG_DATA=folder-with-cifar10 python benchmarks/data_speed.py

Prints wall-clock and processor seconds (they differ on a busy machine) next to the aims.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.dataset import Dataset
from feddag.data.federation import Federation, Pool, Source

WORKERS = 4
CLIENTS = 100


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall-clock seconds, processor seconds, result."""
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - processor, result


def line(what: str, wall: float, processor: float, aim: float) -> dict[str, Any]:
    """Print and keep one figure."""
    print(f"{what:<62} {wall:7.2f} s wall {processor:7.2f} s cpu   aim < {aim:g} s")
    return {"what": what, "wall_s": round(wall, 3), "cpu_s": round(processor, 3), "aim_s": aim}


def memory() -> dict[str, int]:
    """Bytes of this process: Pss counts a shared page once over all processes that map it."""
    fields = {}
    for row in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value = row.split()[:2]
        fields[name.rstrip(":")] = int(value) * 1024
    return fields


def worker(folder: str, start: Any, done: Any, queue: Any) -> None:
    """Map the saved federation, read every client once, keep the pages, and tell the memory."""
    before = memory()
    federation = Federation.open(Path(folder))
    checksum = sum(int(federation.examples(client).x.sum()) for client in federation.ids)
    start.wait()  # everyone has touched every page
    after = memory()
    queue.put((after["Pss"] - before["Pss"], after["Rss"] - before["Rss"], checksum))
    done.wait()


def measure_memory(federation: Federation) -> dict[str, Any]:
    """Resident memory that the data costs all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        federation.save(Path(folder))
        context = multiprocessing.get_context("spawn")
        start, done, queue = context.Barrier(WORKERS), context.Barrier(WORKERS + 1), context.Queue()
        processes = [
            context.Process(target=worker, args=(folder, start, done, queue)) for _ in range(WORKERS)
        ]
        for process in processes:
            process.start()
        answers = [queue.get() for _ in processes]
        done.wait()
        for process in processes:
            process.join()
    assert len({checksum for *_, checksum in answers}) == 1
    total = sum(pss for pss, *_ in answers) / 1e6
    print(
        f"CIFAR-10 resident in {WORKERS} workers together, shared pages once: {total:.0f} MB   aim < 400 MB"
    )
    return {"workers": WORKERS, "resident_mb": round(total), "aim_mb": 400}


def main() -> None:
    """Measure everything and print it; the last line is JSON."""
    figures = []
    with tempfile.TemporaryDirectory() as cache:
        config = DataConfig(name="cifar10", cache=Path(cache))
        try:
            wall, processor, dataset = timed(lambda: load_dataset(config))
        except InvalidInput as error:
            sys.exit(f"{error}")
        figures.append(line(f"CIFAR-10 ready, cold ({dataset.source.kind})", wall, processor, 5))
        wall, processor, dataset = timed(lambda: load_dataset(config))
        figures.append(line("CIFAR-10 ready, from the cache", wall, processor, 0.5))
        federation = partition_dataset(dataset, PartitionConfig(kind="lda"), CLIENTS, Seed(0))
        resident = measure_memory(federation)
    y = np.tile(np.arange(10), 6000)
    synthetic = Dataset(
        train=Pool(np.zeros((60_000, 1), np.uint8), y),
        test=Pool(np.zeros((10_000, 1), np.uint8), np.tile(np.arange(10), 1000)),
        num_classes=10,
        source=Source(dataset="labels only", kind="generated"),
    )
    for settings in (
        {"kind": "iid"},
        {"kind": "lda", "alpha": 0.01},
        {"kind": "lda", "alpha": 0.01, "form": "hsu"},
        {"kind": "label-groups", "alpha": 0.01},
    ):
        wall, processor, _ = timed(
            lambda settings=settings: partition_dataset(
                synthetic, PartitionConfig(**settings), 10_000, Seed(0)
            )
        )
        figures.append(line(f"60,000 samples over 10,000 clients, {settings}", wall, processor, 2))
    print(
        json.dumps(
            {"cores": os.cpu_count(), "load": os.getloadavg()[0], "figures": figures, "memory": resident}
        )
    )


if __name__ == "__main__":
    main()
