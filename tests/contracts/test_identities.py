# SPDX-License-Identifier: Apache-2.0
"""Every method has a setting in which it is another one, bit for bit; with its own settings it is not."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from feddag.core.engine import Exchange
from feddag.core.seeds import Seed
from feddag.learning.sgd import sgd
from feddag.runs.simulate import Simulation
from tests.contracts.toys import Trace, every_algorithm, play, toy
from tests.support.toys import toy_client

ROUNDS = 3
# Losses of their own are computed by torch alone, and backends agree only up to rounding.
ON_TORCH = {"name": "inline", "backend": "torch"}


@dataclass(frozen=True)
class Is:
    """With these settings a method serves the same models as another one."""

    settings: dict[str, Any]
    base: str = "fedavg"
    base_settings: dict[str, Any] | None = None


# A method whose identity needs more than two settings names the test in tests/algorithms that checks it.
IDENTITIES: dict[str, list[Is] | str] = {
    "fedavg": "../contracts/test_identities.py::test_fedavg_is_plain_training_for_a_single_client",
    "feddag": "test_feddag.py::test_one_cluster_is_fedavg",
    "fedprox": [Is({"mu": 0.0})],
    "fedavgm": [Is({"momentum": 0.0, "server_lr": 1.0})],
    # √v and τ are 0.5 for ever, so the step is the mean update divided by 1
    "fedadam": [Is({"beta1": 0.0, "beta2": 1.0, "tau": 0.5, "server_lr": 1.0})],
    "scaffold": [Is({"renewal": 0.0})],  # control variates stay 0
    "perfedavg": "test_perfedavg.py::test_without_inner_steps_it_is_sgd_with_as_many_steps",
    "fedmix": [Is({"mix": 0.0})],
    "fedbr": [Is({"mu": 0.0, "uniform": 0.0})],
    "fedsoft": "test_fedsoft.py::test_one_cluster_without_pull_is_local_training_and_its_mean",
    "ifca": [Is({"num_clusters": 1}), Is({"num_clusters": 1, "share_encoder": True})],
    "fedrc": [Is({"num_clusters": 1}), Is({"num_clusters": 1, "drop_below": 0.9})],
    "pacfl": [Is({"threshold": 180.0})],
    "cfl": [Is({"eps1": 1e9, "eps2": 1e9, "min_rounds": 0})],
    "cfl_gp": [Is({"num_clusters": 1})],
    "feddrift": [Is({"period": 1000})],
    "fedgwc": [Is({"epsilon": 0.0})],
    "fblg": "test_fblg.py::test_with_all_candidates_and_full_participation_it_is_fedavg",
    "fedper": "test_fedper.py::test_one_client_trains_as_under_fedavg",
    "fedrep": "test_fedrep.py::test_a_round_fits_the_head_first_and_then_the_encoder_under_the_fitted_head",
    "local": "test_local.py::test_one_client_alone_is_fedavg_with_that_client",
    "fedavg_ft": [Is({})],
    "ditto": [Is({"pull": 0.0}), Is({"pull": 1.0})],  # the global model; see also tests of Ditto
}


def served(prepared: Simulation, trace: Trace) -> list[str]:
    """Digests of the models every client is sent."""
    deployments = [prepared.algorithm.deploy(trace.states[-1], client) for client in prepared.clients]
    return [model.digest() for deployment in deployments for model in deployment.models]


@every_algorithm
def test_it_is_another_method_in_its_limit(name: str) -> None:
    if name not in IDENTITIES:
        pytest.fail(f"state in IDENTITIES when '{name}' is another method")
    identities = IDENTITIES[name]
    if isinstance(identities, str):
        path, _, function = identities.partition("::")
        assert f"def {function}(" in (Path(__file__).parents[1] / "algorithms" / path).read_text()
        return
    for identity in identities:
        method = toy(name, identity.settings, engine=ON_TORCH)
        base = toy(identity.base, identity.base_settings, engine=ON_TORCH)
        assert served(method, play(method, rounds=ROUNDS)) == served(base, play(base, rounds=ROUNDS))


@every_algorithm
def test_with_its_own_settings_it_is_not_fedavg(name: str) -> None:
    if name in ("fedavg", "fedavg_ft", "ditto"):
        pytest.skip("sends everyone FedAvg's model; what clients make of it is tested elsewhere")
    method, base = toy(name, engine=ON_TORCH), toy("fedavg", engine=ON_TORCH)
    assert served(method, play(method, rounds=ROUNDS)) != served(base, play(base, rounds=ROUNDS))


def test_fedavg_is_plain_training_for_a_single_client() -> None:
    prepared = toy("fedavg", num_clients=1, fraction_train=1.0, partition={"kind": "iid"})
    before, after = play(prepared, rounds=1).states
    seed = Exchange(1, Seed(1) / "round" / 1 / "question" / 0).client_seed("c000")
    client = replace(toy_client(prepared.site), seed=seed)
    trained = sgd(client, before.params, prepared.experiment.training)
    assert after.params == before.params + (trained - before.params)
