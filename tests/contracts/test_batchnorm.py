# SPDX-License-Identifier: Apache-2.0
"""A user's own network with batch normalisation: its statistics stay statistics under every method.

Running means and variances are averaged, never added: a sum of variances, or the change of one model's
variance added to another model's, can be negative, and then every output is NaN.
"""

from typing import Any

import numpy as np
import pytest

from feddag.core import codec
from feddag.core.deployment import Deployment
from feddag.core.params import Params
from feddag.engines.inline import InlineEngine
from feddag.runs.simulate import Simulation
from tests.contracts.toys import SETTINGS, Trace, every_algorithm, play, toy

# Settings in which models are summed, mixed or moved by the server.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "feddag, three clusters": ("feddag", {"clustering": {"num_clusters": 3}}),
    "feddag, two encoders": ("feddag", {"preset": "two_encoders", "clustering": {"num_clusters": 3}}),
    "feddag, paper": ("feddag", {"preset": "paper", "clustering": {"num_clusters": 3}}),
    "feddag, sums": (
        "feddag",
        {
            "preset": "two_encoders",
            "clustering": {"num_clusters": 3},
            "encoders": {"combine_learners": "sum", "source_updates": "sum"},
        },
    ),
    "feddag, random starts": (
        "feddag",
        {
            "preset": "two_encoders",
            "clustering": {"num_clusters": 2},
            "encoders": {"primary_start": "random", "secondary_start": "random", "diversity": 0.1},
        },
    ),
    "ifca, shared encoder": ("ifca", {"share_encoder": True, "initial_draws": 1}),
    "fedsoft, cohort": ("fedsoft", {"selection": "cohort"}),
    "perfedavg, hessian-free": ("perfedavg", {"variant": "hf", "beta": 0.05}),
}
CASES = {name: (name, SETTINGS.get(name, {})) for name in every_algorithm.args[1]} | VARIANTS


def normalised(name: str) -> Simulation:
    """A method on small images, with the user's own network."""
    method, settings = CASES[name]
    return toy(
        method,
        settings,
        data={"name": "digits", "max_train": 400, "max_test": 60},
        partition={"kind": "label-groups", "newcomers": 0.25},
        model="normalised_net:make",
        engine={"name": "inline", "backend": "torch"},
        training={"local_epochs": 2, "batch_size": 16, "lr": 0.05},
    )


def statistics(params: Params, what: str) -> np.ndarray:
    """All running means or variances of a model."""
    found = [t.numpy().ravel() for name, t in params.items() if name.endswith(what)]
    assert found, "the network has batch normalisation"
    return np.concatenate(found)


def served(simulation: Simulation, trace: Trace, engine: InlineEngine) -> list[Params]:
    """Every model that a client or newcomer uses, with what it remembers put in place."""
    clients = (*simulation.clients, *simulation.federation.newcomers)
    deployments: list[Deployment] = [
        simulation.algorithm.deploy(trace.states[-1], c).recall(engine.memories.of.get(c, {}))
        for c in clients
    ]
    return [model for deployment in deployments for model in deployment.models]


@pytest.mark.parametrize("name", CASES)
def test_variances_stay_positive_and_scores_finite(name: str) -> None:
    simulation = normalised(name)
    engine = InlineEngine(simulation.site)
    trace = play(simulation, engine, rounds=2)
    assert not [a.failure for q in trace.asked for a in q.answers.values() if a.failure]
    assert len(trace.scores) == 8
    assert np.isfinite([scores.loss for scores in trace.scores.values()]).all()
    models = served(simulation, trace, engine)
    for model in models:
        assert (statistics(model, "running_var") >= 0).all()
        assert np.isfinite(model.vector.numpy()).all()
    assert any((statistics(model, "running_mean") != 0).any() for model in models), "they were learnt"


@every_algorithm
def test_states_keep_telling_parameters_from_buffers_after_a_journey(name: str) -> None:
    simulation = normalised(name)
    state = play(simulation, rounds=1).states[-1]
    copied = codec.decode(simulation.prepared.state_class, codec.encode(state))
    client = simulation.clients[0]
    before, after = (simulation.algorithm.deploy(s, client).models for s in (state, copied))
    assert [model.layout for model in before] == [model.layout for model in after]
    assert all(len(model.layout.buffers) in (2, 4) for model in before)
