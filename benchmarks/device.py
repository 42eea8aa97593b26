# SPDX-License-Identifier: Apache-2.0
"""The same clients trained by PyTorch on the processor and on another device, side by side.

    python benchmarks/device.py [--device cuda] [--models lenet,conv3] [--batch 64,10] [--epochs 2]

Prints samples per second, and how far the trained parameters are apart (float32 sums in another order).
"""

import argparse
import time

WORKLOADS = {"lenet": (1, 28, 28), "conv3": (3, 32, 32), "conv4": (3, 64, 64)}
SAMPLES = 600


def main() -> None:
    """Print one row per network and batch size."""
    import numpy as np
    import torch

    from feddag.core.deployment import LocalTraining
    from feddag.core.examples import Examples, Scaling
    from feddag.core.params import Params
    from feddag.core.problem import Problem
    from feddag.core.seeds import Seed
    from feddag.core.task import Client
    from feddag.learning.devices import find_device
    from feddag.learning.sgd import sgd
    from feddag.models import Networks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", default="lenet,conv3")
    parser.add_argument("--batch", default="64,10")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    device = find_device(arguments.device)
    print(
        f"{'network':9}{'batch':>6}{'cpu':>10}{device!s:>10}{'ratio':>7}   relative distance of the results"
    )
    for model in arguments.models.split(","):
        shape = WORKLOADS[model]
        generator = Seed(1).numpy()
        x = generator.integers(0, 256, size=(SAMPLES, *shape), dtype=np.uint8)
        scaling = Scaling(255.0, (0.5,) * shape[0], (0.25,) * shape[0])
        train = Examples(x, generator.integers(0, 10, size=SAMPLES), 10, scaling)
        empty = train.take(np.empty(0, dtype=np.int64))
        for batch in map(int, arguments.batch.split(",")):
            local = LocalTraining(local_epochs=arguments.epochs, batch_size=batch)
            speeds, results = [], []
            for place in (torch.device("cpu"), device):
                networks = Networks(model, Problem(shape, 10))
                module = networks("single")
                module.device = place
                with Seed(4).ambient():
                    start = Params.from_module(networks.fresh("single"))
                for (
                    layer
                ) in module.modules():  # each device draws its own masks: results could not be compared
                    if isinstance(layer, torch.nn.Dropout):
                        layer.p = 0.0
                client = Client("c", train, empty, empty, networks, Seed(2), Seed(3), backend="torch")
                results.append(sgd(client, start, local))  # the first time is warm-up
                began = time.perf_counter()
                sgd(client, start, local)
                speeds.append(SAMPLES * arguments.epochs / (time.perf_counter() - began))
            apart = (results[0] - results[1]).norm() / results[0].norm()
            cpu, other = speeds
            print(f"{model:9}{batch:6}{cpu:10.0f}{other:10.0f}{other / cpu:7.2f}   {apart:.1e}")


if __name__ == "__main__":
    main()
