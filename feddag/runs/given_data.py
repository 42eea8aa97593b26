# SPDX-License-Identifier: Apache-2.0
"""The data of a simulation: what the settings name, or what the caller has in memory.

Data from memory takes the place of the dataset: `data.name` becomes "own", and the settings that choose,
download or cut a dataset are not used. `data.label`, `data.client`, `data.missing`, `data.test_share`,
`partition`, `num_clients` and `seed` hold as for files. A Federation is used as it is.
"""

from typing import Any

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.data.federation import Federation
from feddag.data.memory import federation_from
from feddag.data.scenario import Plan
from feddag.experiment.settings import Experiment


def federation_for(experiment: Experiment, data: Any) -> Federation:
    """The clients' data: what the settings name, or `data` from memory."""
    config, seed, scenario = experiment.data, Seed(experiment.seed), experiment.events
    plan = Plan(scenario.drift, scenario.change_points, scenario.step, experiment.num_rounds)
    if data is None:
        return build_federation(config, experiment.partition, experiment.num_clients, seed, plan)
    return federation_from(
        data,
        label=config.label,
        client=config.client,
        test_share=config.test_share,
        missing=config.missing,
        partition=experiment.partition,
        num_clients=experiment.num_clients,
        seed=seed,
        plan=plan,
    )


def settings_for(experiment: Experiment, data: Any) -> Experiment:
    """The settings of a run with data from memory: they name no dataset, so none can be taken for it."""
    if data is None or isinstance(data, Federation):
        return experiment
    if experiment.data.path is not None:
        raise InvalidInput(
            f"data.path = {str(experiment.data.path)!r} and data from memory: leave out one of them"
        )
    return experiment.with_overrides(["data.name=own"])
