# SPDX-License-Identifier: Apache-2.0
"""Local training by the native kernels and by torch, side by side, and their share of the matrix speed.

    python benchmarks/native_speed.py [--workers 2] [--seconds 2] [--repeats 3]

Worker processes with one thread each train at the same time, as the process engine's do; native and torch
take turns, so that both meet the same neighbours. The limit is what single-threaded matrix products reach in
all workers at once. `cpu` columns count processor seconds, not the clock's: use them on a busy machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

WORKLOADS = {"lenet": (64, 32, 10), "conv3": (64, 32, 10)}
SAMPLES = {"lenet": 600, "conv3": 500}
BACKENDS = ("torch", "native")


def multiply_adds(plan) -> float:
    """Multiply-adds of a dense forward and backward pass of one sample."""
    total = 0
    for branch in plan.branches:
        channels, height, width = plan.input_shape
        for i, stage in enumerate(branch.stages):
            if stage.convolution:
                height += 2 * stage.padding[0] - stage.kernel[0] + 1
                width += 2 * stage.padding[1] - stage.kernel[1] + 1
                height, width = (
                    height // stage.pool[0] * stage.pool[0],
                    width // stage.pool[1] * stage.pool[1],
                )
                cost = height * width * stage.outputs * channels * stage.kernel[0] * stage.kernel[1]
                height, width = height // stage.pool[0], width // stage.pool[1]
            else:
                cost = channels * height * width * stage.outputs
                height = width = 1
            channels = stage.outputs
            total += cost * (2 if i == 0 else 3)  # the first layer needs no gradient of its input
        total += 3 * branch.features * plan.classes
    return total


# -- one worker ------------------------------------------------------------------------------------------


def clients():
    """One client per workload: real grey images, and random colour ones (only their size matters)."""
    import numpy as np

    from feddag.core.examples import Examples, Scaling
    from feddag.core.problem import Problem
    from feddag.core.seeds import Seed
    from feddag.core.task import Client
    from feddag.data.catalog import DATASETS
    from feddag.data.config import DataConfig
    from feddag.models import Networks

    sample = DATASETS["fashion-mnist-sample"].load(DataConfig(name="fashion-mnist-sample"))
    generator = Seed(1).numpy()
    colour = generator.integers(0, 256, size=(SAMPLES["conv3"], 3, 32, 32), dtype=np.uint8)
    colour_y = generator.integers(0, 10, size=len(colour))
    n = SAMPLES["lenet"]
    examples = {
        "lenet": Examples(sample.train.x[:n], sample.train.y[:n], 10, sample.scaling),
        "conv3": Examples(colour, colour_y, 10, Scaling(255.0, (0.5,) * 3, (0.25,) * 3)),
    }
    made = {}
    for model, own in examples.items():
        nothing = own.take(np.empty(0, dtype=np.int64))
        networks = Networks(model, Problem(own.x.shape[1:], 10))
        made[model] = Client("c", own, nothing, nothing, networks, Seed(1), Seed(2))
    return made


def worker() -> None:
    """Answers questions on stdin: {"what": model or "matrix", "backend", "batch", "seconds"}."""
    from dataclasses import replace

    import torch

    from feddag import native
    from feddag.core.deployment import LocalTraining
    from feddag.core.params import Params
    from feddag.learning.backends import select_backend
    from feddag.learning.sgd import sgd

    torch.set_num_threads(1)  # as in the engine's workers
    torch.set_flush_denormal(True)
    own = clients()
    params = {model: Params.from_module(client.network("single")) for model, client in own.items()}
    plans = {
        m: select_backend("native", c.network("single"), c.train.x.shape[1:]).plan for m, c in own.items()
    }
    facts = {"isa": native.isa(), "work": {m: multiply_adds(plan) for m, plan in plans.items()}}
    print(json.dumps(facts), flush=True)
    square = torch.ones(1024, 1024)
    for line in sys.stdin:
        ask = json.loads(line)
        client = own.get(ask["what"])
        if client is not None and ask["backend"]:
            client = replace(client, backend=ask["backend"])
        local = LocalTraining(local_epochs=1, batch_size=ask["batch"] or 1)
        done = best = 0
        clock, processor = time.perf_counter(), time.process_time()
        while time.perf_counter() - clock < ask["seconds"]:
            if client is None:
                start = time.thread_time()
                torch.mm(square, square)
                best = max(best, 2 * 1024**3 / (time.thread_time() - start))
            else:
                params_now = params[ask["what"]]
                sgd(client, params_now, local)
                done += len(client.train)
        wall, cpu = time.perf_counter() - clock, time.process_time() - processor
        print(json.dumps({"wall": done / wall, "cpu": done / cpu, "flops": best}), flush=True)


# -- the comparison --------------------------------------------------------------------------------------


def ask_all(workers: list[subprocess.Popen], question: dict) -> list[dict]:
    """Put one question to all workers at once."""
    for process in workers:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in workers]


def main() -> None:
    """Print one row per network and batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", default=",".join(WORKLOADS))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker()
    paths = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=paths)
    command = [sys.executable, __file__, "--worker"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    workers = [subprocess.Popen(command, **pipes) for _ in range(arguments.workers)]
    facts, *_ = [json.loads(process.stdout.readline()) for process in workers]
    matrix = {"what": "matrix", "backend": "", "batch": 0, "seconds": arguments.seconds}
    limits: list[float] = [sum(a["flops"] for a in ask_all(workers, matrix))]
    rows = []
    for model in arguments.models.split(","):
        for batch in WORKLOADS[model]:
            measured: dict[str, list[tuple[float, float]]] = {backend: [] for backend in BACKENDS}
            for _ in range(arguments.repeats):
                for backend in BACKENDS:
                    question = {**matrix, "what": model, "backend": backend, "batch": batch}
                    answers = ask_all(workers, question)
                    measured[backend].append(
                        (sum(a["wall"] for a in answers), sum(a["cpu"] for a in answers))
                    )
            limits.append(sum(a["flops"] for a in ask_all(workers, matrix)))
            rows.append((model, batch, measured))
    for process in workers:
        process.stdin.close()
        process.wait()
    limit = max(limits)
    print(f"{arguments.workers} workers, one thread each; kernels: {facts['isa']}; ", end="")
    print(f"matrix products reach {limit / 1e9:.0f} GFLOP/s together (processor time)")
    print("medians; torch and native in samples/s; share: of the limit, counting every dense multiply-add")
    names = ["torch", "native", "ratio", "torch cpu", "native cpu", "ratio", "share"]
    print(f"{'network':8}{'batch':>6}" + "".join(f"{name:>11}" for name in names))
    for model, batch, measured in rows:
        figures = [model.ljust(8), f"{batch:6}"]
        for i in (0, 1):
            rate = {backend: median(pair[i] for pair in measured[backend]) for backend in BACKENDS}
            figures += [f"{rate[backend]:11.0f}" for backend in BACKENDS]
            figures.append(f"{rate['native'] / rate['torch']:11.1f}")
        figures.append(f"{rate['native'] * 2 * facts['work'][model] / limit:11.0%}")
        print("".join(figures))


if __name__ == "__main__":
    main()
