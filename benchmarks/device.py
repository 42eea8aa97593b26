# SPDX-License-Identifier: Apache-2.0
"""The same clients trained by PyTorch on the processor and on another device, one by one and at once.

    python benchmarks/device.py [--device cuda] [--models lenet,conv3] [--batch 64,10] [--epochs 2]
                                [--clients 16] [--turns 3] [--precision bfloat16]

Prints samples per second (medians over turns; on the processor, of one core and per second of processor
time), and how far the trained parameters are apart: float32 sums in another order.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

WORKLOADS = {
    "lenet": (1, 28, 28),
    "conv3": (3, 32, 32),
    "conv4": (3, 64, 64),
    "conv1d": (9, 128),
    "attentive_net:make": (3, 32, 32),
}
SAMPLES = 300


def main() -> None:
    """Print one row per network and batch size."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))  # attentive_net
    import torch

    from feddag.learning.devices import Computing, find_device

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", default="lenet,conv3,attentive_net:make")
    parser.add_argument("--batch", default="64,10")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    device, count = find_device(arguments.device), arguments.clients
    there = Computing(device=str(device), precision=arguments.precision)
    head = f"{'network':20}{'batch':>6}{'cpu':>9}{device!s:>9}{f'{count} at once':>12}"
    print(f"{head}{'at once ÷ one by one':>22}   distance of the results")
    for model in arguments.models.split(","):
        for batch in map(int, arguments.batch.split(",")):
            ways = [(Computing(), False), (there, False), (there, True)]
            makers = [trainer(model, batch, arguments.epochs, count, *way) for way in ways]
            results = [make() for make in makers]  # the first time is warm-up
            times = [[clocked(make, device) for make in makers] for _ in range(arguments.turns)]
            samples = SAMPLES * count * arguments.epochs
            cpu, one, all_ = (samples / statistics.median(of_way) for of_way in zip(*times, strict=True))
            gain = statistics.median(turn[1] / turn[2] for turn in times)
            apart = [max(_apart(a, b) for a, b in zip(results[0], r, strict=True)) for r in results[1:]]
            row = f"{model:20}{batch:6}{cpu:9.0f}{one:9.0f}{all_:12.0f}{gain:22.2f}"
            print(f"{row}   {apart[0]:.1e}, {apart[1]:.1e}", flush=True)


def trainer(
    model: str, batch: int, epochs: int, count: int, computing: object, at_once: bool
) -> Callable[[], Sequence]:
    """A function that trains `count` clients, some with fewer samples than others."""
    import torch

    from feddag.core.deployment import LocalTraining
    from feddag.core.examples import Examples, Scaling
    from feddag.core.params import Params
    from feddag.core.problem import Problem
    from feddag.core.seeds import Seed
    from feddag.core.task import Client
    from feddag.learning.losses import cross_entropy
    from feddag.learning.sgd import EVERYTHING, Training, run
    from feddag.models import Networks

    shape = WORKLOADS[model]
    networks = Networks(model, Problem(shape, 10))
    module = computing.place(networks("single"))  # type: ignore[attr-defined]
    with Seed(4).ambient():
        start = Params.from_module(networks.fresh("single"))
    for layer in module.modules():
        if isinstance(layer, torch.nn.Dropout):  # each device draws its own masks
            layer.p = 0.0
    local = LocalTraining(local_epochs=epochs, batch_size=batch)
    trainings = []
    for i in range(count):
        generator = Seed(i).numpy()
        n = SAMPLES + (count - 1 - 2 * i) * SAMPLES // (4 * count)  # longest first, SAMPLES on the average
        x = generator.integers(0, 256, size=(n, *shape), dtype="uint8")
        train = Examples(
            x, generator.integers(0, 10, n), 10, Scaling(255.0, (0.5,) * shape[0], (0.25,) * shape[0])
        )
        client = Client(f"c{i}", train, train, train, networks, Seed(i), Seed(3), backend="torch")
        plain = (None, None, None)
        trainings.append(
            Training(
                client,
                module,
                start,
                local,
                EVERYTHING,
                cross_entropy,
                *plain,
                seed=Seed(i),
                epoch_losses=None,
            )
        )

    def trained() -> Sequence:
        return run(trainings) if at_once else [run((training,))[0] for training in trainings]

    return trained


def clocked(train: Callable[[], Sequence], device: object) -> float:
    """Seconds: of processor time on the processor, else until the device has finished."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter  # type: ignore[attr-defined]
    began = clock()
    train()  # parameters come back to the host, so the device has finished
    return clock() - began


def _apart(a: object, b: object) -> float:
    return float((a - b).norm() / a.norm())  # type: ignore[operator,attr-defined]


if __name__ == "__main__":
    main()
