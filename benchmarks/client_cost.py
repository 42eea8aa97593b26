# SPDX-License-Identifier: Apache-2.0
"""Client cost: what a signature takes besides the warm-up, against one epoch of local training, one thread.

    python benchmarks/client_cost.py
    python benchmarks/client_cost.py --data cifar10 --set partition.kind=lda

The signature is FedDAG's own task with its default fields and no warm-up: principal vectors of every class,
mean textures, sketch, counts. Times are the processor's, so that other work on the machine does no harm.
Ratios are taken client by client, one right after the other, and the median is shown.
"""

import argparse
import os
import statistics
import time
from dataclasses import replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the engine's workers

from feddag.algorithms.feddag import FedDAG
from feddag.core.engine import Exchange
from feddag.core.params import Params, state_tensors
from feddag.core.seeds import Seed
from feddag.engines.perform import perform, single_threaded
from feddag.experiment.settings import Experiment
from feddag.learning.signature import sign
from feddag.learning.train import Train, train
from feddag.runs.simulate import build


def main() -> None:
    """Time every part for some clients and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--clients", type=int, default=20, help="how many of the 100 are timed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    options = parser.parse_args()
    settings = [f"data={options.data}", "num_clients=100", "algorithm=feddag", "engine=inline"]
    settings += ["partition.kind=iid", *options.overrides]
    prepared = build(Experiment().with_overrides(settings))
    algorithm = prepared.experiment.build_algorithm()
    assert isinstance(algorithm, FedDAG)
    network = prepared.site.network("single")
    start = Params.of({name: tensor.clone() for name, tensor in state_tensors(network).items()})
    asked = algorithm.signature_request(start, 1, keep=False)
    asked = replace(asked, signature=replace(asked.signature, warmup_rounds=0))
    exchange = Exchange(round=0, seed=Seed(0))
    backends = ("torch", "native")
    local = replace(algorithm.local, local_epochs=1, local_steps=0)

    def seconds(task, request, client, backend="auto") -> float:
        site = replace(prepared.site, backend=backend)
        begin = time.process_time()
        with single_threaded():
            answer, _ = perform(site, task, request, client, exchange, {})
        if answer.failure:
            raise SystemExit(answer.failure)
        return time.process_time() - begin

    rows = []
    for client in prepared.federation.ids[: options.clients + 1]:
        signature = seconds(sign, asked, client)
        epochs = [seconds(train, Train(params=start, local=local), client, b) for b in backends]
        rows.append([signature, *epochs])
    rows = rows[1:]  # the first one loads libraries
    signature, *epochs = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{options.data}, {len(rows)} clients, one thread, batch {algorithm.local.batch_size}")
    print(f"signature {1e3 * signature:.1f} ms")
    for i, backend in enumerate(backends):
        ratio = statistics.median(row[0] / row[i + 1] for row in rows)
        print(f"one epoch, {backend}: {1e3 * epochs[i]:.1f} ms; signature / epoch {ratio:.2f}")


if __name__ == "__main__":
    main()
