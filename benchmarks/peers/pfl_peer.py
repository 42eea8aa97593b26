# SPDX-License-Identifier: Apache-2.0
"""The workload in Apple's pfl: its own FedAvg and local loop, one single-thread process per worker."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain, cycle
from typing import Any

from workload import Plan, Reporter


class Sampler:
    """Hands pfl the workload's cohorts, client by client."""

    def __init__(self, cohorts: list[list[int]]):
        self._clients: Iterator[int] = cycle(chain.from_iterable(cohorts))

    def __call__(self) -> int:
        """The next client."""
        return next(self._clients)


def work(path: str) -> None:
    """One worker; the first one also keeps the time."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from torch import Tensor, nn
    from torch.nn import functional

    torch.set_num_threads(1)
    plan = Plan.load(path)
    reporter = Reporter(plan) if os.environ["PFL_WORKER_RANK"] == "0" else None

    class Network(nn.Module):
        """pfl wants the loss and the metrics as methods of the network."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = plan.initial_model()

        def loss(self, images: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(self.layers(images), labels)

        def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
            return {}

    class TrainOnly(FederatedAveraging):
        """pfl's FedAvg without the evaluation it would do around the first round."""

        def get_next_central_contexts(self, *args: Any) -> Any:
            contexts, model, metrics = super().get_next_central_contexts(*args)
            if contexts is not None:
                contexts = tuple(dataclasses.replace(context, do_evaluation=False) for context in contexts)
            return contexts, model, metrics

    class Clock(TrainingProcessCallback):
        """Called after each round's update, on every worker."""

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            if reporter is not None:
                reporter.round_done()
            return False, Metrics()

    network = Network()
    model = PyTorchModel(
        model=network,
        local_optimizer_create=lambda parameters, lr: torch.optim.SGD(
            parameters, lr=lr, momentum=plan.momentum, weight_decay=plan.weight_decay
        ),
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    sizes = {client: plan.data.size(client) for client in range(plan.data.num_clients)}
    # With the sizes given, pfl balances the load between its workers.
    training_data = FederatedDataset(
        lambda client: Dataset(raw_data=list(plan.data.client(client)), user_id=str(client)),
        Sampler(plan.data.cohorts),
        user_id_to_weight=sizes,
    )
    backend = SimulatedBackend(training_data, training_data, postprocessors=[WeightByDatapoints()])
    params = NNAlgorithmParams(
        central_num_iterations=plan.rounds,
        evaluation_frequency=plan.rounds,
        train_cohort_size=len(plan.data.cohorts[0]),
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_batch_size=plan.batch_size, local_num_epochs=plan.local_epochs, local_learning_rate=plan.lr
    )
    if reporter is not None:
        reporter.ready(pfl=version("pfl"), torch=version("torch"))
    TrainOnly().run(params, backend, model, local, callbacks=[Clock()], send_metrics_to_platform=False)
    if reporter is not None:
        reporter.finished(network.layers)


def launch(path: str) -> int:
    """Start the workers and wait for them; the exit code is 0 when all were well."""
    workers = Plan.load(path).workers
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    addresses = ",".join(f"127.0.0.1:{port + worker}" for worker in range(workers))
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, path],
            env={**os.environ, "PFL_WORKER_RANK": str(worker), "PFL_WORKER_ADDRESSES": addresses},
        )
        for worker in range(workers)
    ]
    return max(abs(process.wait()) for process in processes)


if __name__ == "__main__":
    if "PFL_WORKER_RANK" in os.environ:
        work(sys.argv[1])
    else:
        sys.exit(launch(sys.argv[1]))
