# SPDX-License-Identifier: Apache-2.0
"""FedDAG's mixtures: who is asked, what is served, and that training does not notice."""

from dataclasses import replace
from typing import Any

import numpy as np

from feddag.learning.mixture import partners_of
from feddag.runs.simulate import Simulation
from tests.contracts.toys import toy
from tests.support.played import played, without_validation

ROUNDS = 9
TWO = {
    "clustering": {"num_clusters": 2},
    "signature": {"vectors": 1, "views": ["pixels"]},
    "mixture": {"same_labels": 0.0},
    "shared_start": {"rounds": 0.0},
}
ALONE = {**TWO, "preset": "one_encoder", "mixture": {"most": 0}}


def states(simulation: Simulation, log: list | None = None) -> list[Any]:
    """The start and all rounds, in which the first half of the clients takes part."""
    return played(simulation, ROUNDS, share=0.5, log=log)


def test_training_goes_on_as_if_there_were_no_mixture() -> None:
    mixed, alone = states(toy("feddag", TWO)), states(toy("feddag", ALONE))
    assert [s.models for s in mixed] == [s.models for s in alone]
    assert all(not s.weights for s in alone)
    weights_ZZ = np.array(mixed[-1].weights)
    assert weights_ZZ.shape == (2, 2)
    assert np.allclose(weights_ZZ.sum(axis=1), 1)


def test_the_cohort_is_asked_ever_less_often_and_everybody_in_the_last_round() -> None:
    log: list = []
    simulation = toy("feddag", TWO)
    states(simulation, log)
    asked = {r: len(answers) for name, r, answers in log if name == "explain"}
    everybody = len(simulation.trainable)
    assert asked == {8: everybody // 2, 9: everybody}


def test_clusters_with_other_labels_are_asked_nothing_and_keep_their_models() -> None:
    log: list = []
    simulation = toy(
        "feddag", {**TWO, "mixture": {"same_labels": 0.75}}, partition={"kind": "label-groups", "groups": 2}
    )
    found = states(simulation, log)
    assert "explain" not in [name for name, _, _ in log]
    for client in simulation.trainable:
        assert len(simulation.algorithm.deploy(found[-1], client).models) == 1


def test_a_single_cluster_has_nobody_to_mix_with() -> None:
    log: list = []
    found = states(toy("feddag", {**TWO, "clustering": {"num_clusters": 1}}), log)
    assert "explain" not in [name for name, _, _ in log]
    assert found[-1].weights == ()


def test_without_validation_samples_every_cluster_uses_its_own_model() -> None:
    assert states(without_validation(toy("feddag", TWO)))[-1].weights == ((1.0, 0.0), (0.0, 1.0))


def test_clients_are_served_their_own_model_first_and_those_with_weight() -> None:
    simulation = toy("feddag", {**TWO, "outliers": "cluster"})
    state = replace(states(simulation)[-1], weights=((0.75, 0.25), (0.0, 1.0)))
    labels = state.clusters.labels()
    served = {labels[c]: simulation.algorithm.deploy(state, c) for c in simulation.trainable}
    assert served[0].models == state.models
    assert served[0].weights == (0.75, 0.25)
    assert served[1].models == (state.models[1],)
    assert served[1].weights == ()


def test_weights_of_other_clusters_than_those_of_now_are_not_used() -> None:
    simulation = toy("feddag", TWO)
    state = replace(states(simulation)[-1], weights=((0.5, 0.25, 0.25),) * 3)
    assert all(len(simulation.algorithm.deploy(state, c).weights) == 0 for c in simulation.trainable)


def test_the_largest_clusters_with_the_same_labels_are_partners() -> None:
    simulation = toy("feddag", TWO)
    state = states(simulation)[0]
    options = simulation.algorithm.mixture
    assert partners_of(state, options) == [[1], [0]]
    assert partners_of(state, replace(options, most=0)) == [[], []]
