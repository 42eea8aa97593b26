# SPDX-License-Identifier: Apache-2.0
"""The workload in feddag: FedAvg on the process engine, under the driver that a run uses.

A round's time therefore includes its event-log lines and its checkpoint on the disk. Evaluation is left
out, as for the other contenders.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from workload import NUM_CLASSES, Plan, Reporter

from feddag.core.algorithm import Server
from feddag.core.deployment import LocalTraining
from feddag.core.examples import Scaling
from feddag.data.federation import Federation, Pool, Share, Source
from feddag.experiment.method import AlgorithmConfig
from feddag.experiment.settings import EngineConfig, EvaluationConfig, Experiment
from feddag.learning.modules import LoadedNetwork
from feddag.runs.driver import Driver
from feddag.runs.events import EventLog
from feddag.runs.simulate import SimulationFacts, build

MODELS = {"w1": "lenet", "w2": "conv3"}


def client_id(client: int) -> str:
    """Ids that sort like the clients' numbers."""
    return f"client-{client:06d}"


def make_federation(plan: Plan) -> Federation:
    """The prepared files as a federation; images stay memory-mapped bytes."""
    data = plan.data
    channels = data.images.shape[1]
    return Federation(
        clients={client_id(i): Share(train=data.indices(i)) for i in range(data.num_clients)},
        train=Pool(data.images, data.labels),
        test=Pool(data.test_images, data.test_labels),
        num_classes=NUM_CLASSES,
        source=Source(dataset=plan.workload, kind="local"),
        scaling=Scaling(unit=255.0, mean=(0.5,) * channels, std=(0.5,) * channels),
    )


def make_experiment(plan: Plan, backend: str) -> Experiment:
    """The workload's settings in feddag's words."""
    return Experiment(
        num_clients=plan.data.num_clients,
        fraction_train=len(plan.data.cohorts[0]) / plan.data.num_clients,
        # The last round is always evaluated: with one more than we run, none is.
        num_rounds=plan.rounds + 1,
        model=MODELS[plan.workload],
        algorithm=AlgorithmConfig(name=plan.algorithm),
        training=LocalTraining(
            local_epochs=plan.local_epochs,
            batch_size=plan.batch_size,
            lr=plan.lr,
            momentum=plan.momentum,
            weight_decay=plan.weight_decay,
        ),
        evaluation=EvaluationConfig(every=plan.rounds + 1),
        engine=EngineConfig(name="process", workers=plan.workers, quorum=1.0, backend=backend),
        seed=plan.seed,
    )


class SharedCohorts(Driver):
    """The ordinary driver with the workload's cohorts instead of drawn ones."""

    cohorts: list[list[int]]
    now: int = 0

    def server(self, round_: int, clients: list[str], purpose: str = "round") -> Server:
        """What the algorithm sees in one round."""
        server = super().server(round_, clients, purpose)
        if round_ == 0:
            return server
        return replace(server, cohort=tuple(client_id(client) for client in self.cohorts[self.now]))


def main(path: str, backend: str) -> None:
    """Run the plan."""
    plan = Plan.load(path)
    reporter = Reporter(plan)
    experiment, federation = make_experiment(plan, backend), make_federation(plan)
    simulation = build(experiment, federation)
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        log = EventLog(Path(folder) / "events.jsonl")
        engine = simulation.open_engine(Path(folder) / "memories")
        facts = SimulationFacts(federation, engine.memories)
        driver = SharedCohorts(
            simulation.prepared, engine, simulation.presence, Path(folder), log, lambda event: None, facts
        )
        driver.cohorts = plan.data.cohorts
        try:
            driver.run_round(0)
            reporter.ready(feddag=version("feddag"), torch=version("torch"))
            for driver.now in range(plan.rounds):
                driver.run_round(1 + driver.now)
                reporter.round_done()
        finally:
            engine.close()
            log.close()
    params = driver.state.models[0] if plan.algorithm == "feddag" else driver.state.params
    reporter.finished(LoadedNetwork(simulation.site.network("single"), params).module)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
