# SPDX-License-Identifier: Apache-2.0
"""Clients that resemble nobody: what they are offered, and how their validation samples choose."""

from dataclasses import replace

import numpy as np
import pytest
from toys import blob_site, toy_client

from feddag.core.averaging import mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.evaluation import Evaluate, evaluate, score, serve
from feddag.learning.sgd import sgd
from tests.contracts.toys import play, toy

site = blob_site()
local = LocalTraining(local_epochs=5, batch_size=8, lr=0.1)


def model(seed=0):
    with Seed(seed).ambient():
        return Params.from_module(site.network.fresh("single"))


def test_the_least_loss_on_validation_decides_the_first_one_adapted_included():
    client = toy_client(site)
    trained = sgd(client, model(), local)
    by_validation = Deployment(models=(model(), model(1)), choose="validation")
    losses = [score(client, Deployment(models=(m,)), client.validation).loss for m in by_validation.models]
    assert serve(client, by_validation).models == (by_validation.models[int(np.argmin(losses))],)
    assert serve(client, replace(by_validation, adapt=local)).models == (trained,)
    assert serve(client, replace(by_validation, models=(model(), trained))).models == (trained,)
    harm = replace(local, lr=50.0)  # training that spoils the model is not used
    assert serve(client, replace(by_validation, models=(trained,), adapt=harm)).models == (trained,)


def test_without_validation_samples_the_nearest_cluster_serves():
    client = toy_client(site)
    nobody = replace(client, validation=client.validation.take(np.empty(0, dtype=np.int64)))
    offer = Deployment(models=(model(), model(1)), choose="validation", adapt=local)
    assert serve(nobody, offer).models == (model(),)


def test_which_model_was_taken_is_told_to_nobody():
    offer = Deployment(models=(model(), model(1)), choose="validation", adapt=local)
    assert evaluate(Evaluate(deployment=offer, local=local), toy_client(site)).model == -1
    assert not offer.adapts
    assert replace(offer, choose="training").adapts


def test_only_clients_unlike_anyone_are_offered_a_choice_and_only_if_that_is_wanted():
    prepared = toy("feddag")
    state = play(prepared, rounds=1).states[-1]
    odd, usual = next(iter(state.signatures)), list(state.signatures)[1]
    state = replace(state, tree=replace(state.tree, unlike=(odd,)))
    algorithm = prepared.algorithm
    own = state.models[state.clusters.labels()[odd]]
    samples = [sum(int(state.signatures[c].counts.sum()) for c in m) for m in state.clusters.members]
    offer = algorithm.deploy(state, odd)
    assert (offer.choose, offer.adapt) == ("validation", algorithm.local)
    assert offer.models == (own, mean(state.models, samples))
    assert algorithm.deploy(state, usual).choose == "training"
    assert replace(algorithm, outliers="cluster").deploy(state, odd).models == (own,)


def test_a_federation_of_one_cluster_has_no_other_mean():
    prepared = toy("feddag", {"clustering": {"num_clusters": 1}})
    state = play(prepared, rounds=1).states[-1]
    odd = next(iter(state.signatures))
    state = replace(state, tree=replace(state.tree, unlike=(odd,)))
    assert prepared.algorithm.deploy(state, odd).models == state.models


@pytest.mark.parametrize("wrong", ["global", 1])
def test_another_word_is_refused(wrong):
    with pytest.raises(Exception, match=r"outliers"):
        toy("feddag", {"outliers": wrong})
