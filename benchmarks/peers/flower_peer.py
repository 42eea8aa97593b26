# SPDX-License-Identifier: Apache-2.0
"""The workload in Flower's simulation: FedAvg on Ray, one CPU per client, data read once per actor."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from importlib.metadata import version

from flower_client import client_app
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import Plan, Reporter


class SharedCohorts(FedAvg):
    """Flower's FedAvg, with the workload's cohorts instead of Flower's random ones."""

    def __init__(self, plan: Plan, path: str, reporter: Reporter):
        super().__init__(fraction_evaluate=0.0, min_available_nodes=plan.data.num_clients)
        self.plan, self.path, self.reporter = plan, path, reporter

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask as many nodes as the cohort is large; each message says which client to play."""
        # Clients keep no state, so any node may play any client: the work is the same.
        nodes = sorted(grid.get_node_ids())
        return [
            Message(
                content=RecordDict(
                    {"arrays": arrays, "config": ConfigRecord({"plan": self.path, "client": client})}
                ),
                message_type=MessageType.TRAIN,
                dst_node_id=nodes[client],
            )
            for client in self.plan.data.cohorts[server_round - 1]
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average, then take the time; a lost client would make the round too fast, so it is an error."""
        replies = list(replies)
        if len(replies) < len(self.plan.data.cohorts[0]) or any(reply.has_error() for reply in replies):
            raise RuntimeError(f"round {server_round}: not every client of the cohort answered")
        result = super().aggregate_train(server_round, replies)
        self.reporter.round_done()
        return result


def main(path: str) -> None:
    """Run the plan in this process, which becomes Ray's driver."""
    plan = Plan.load(path)
    reporter = Reporter(plan)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = SharedCohorts(plan, path, reporter)
        while len(list(grid.get_node_ids())) < plan.data.num_clients:
            time.sleep(0.01)
        arrays = ArrayRecord(plan.initial_model().state_dict())
        reporter.ready(flwr=version("flwr"), ray=version("ray"), torch=version("torch"))
        result = strategy.start(grid, arrays, num_rounds=plan.rounds)
        model = plan.initial_model()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        reporter.finished(model)

    run_simulation(
        server_app,
        client_app,
        num_supernodes=plan.data.num_clients,
        backend_config={
            "init_args": {"num_cpus": plan.workers},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
