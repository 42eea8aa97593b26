# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
import torch

from feddag.algorithms.ifca import IFCA, Offer, State, Train, choose, choose_and_train, whole_models
from feddag.core import codec
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.core.task import Client
from feddag.learning.evaluation import serve
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client

LOCAL = LocalTraining(local_epochs=1, batch_size=8, lr=0.1)


def says(site, label: int) -> Params:
    """A model that always predicts one class."""
    blank = Params.from_module(site.network("single")) * 0.0
    bias = torch.zeros(3)
    bias[label] = 5.0
    return blank.replace(Params.of({"head.bias": bias}))


def torn_client() -> tuple[Client, tuple[Params, Params]]:
    """All training labels are 0, all held-out labels are 1; a model for each."""
    site = blob_site()
    client = toy_client(site)
    held_out = {
        split: replace(getattr(client, split), y=np.ones_like(getattr(client, split).y))
        for split in ("validation", "test")
    }
    client = replace(client, train=replace(client.train, y=np.zeros_like(client.train.y)), **held_out)
    return client, (says(site, 1), says(site, 0))


def test_clusters_are_chosen_on_training_data_only() -> None:
    client, models = torn_client()
    assert choose(Offer(models=models), client).cluster == 1
    assert choose_and_train(Train(offer=Offer(models=models), local=LOCAL), client).cluster == 1
    assert serve(client, IFCA().deploy(State(models=models), client.id)).models == (models[1],)


def test_ties_go_to_the_first_model() -> None:
    client, models = torn_client()
    assert choose(Offer(models=(models[0], models[0])), client).cluster == 0


def test_a_model_nobody_chose_stays_as_it_is() -> None:
    prepared = toy("ifca", {"num_clusters": 5, "initial_draws": 1})
    trace = play(prepared, rounds=1)
    before, after = trace.states[:2]
    choices = trace.notes[1]["sizes"]
    assert sum(choices) == 3
    assert [a == b for a, b in zip(before.models, after.models, strict=True)] == [n == 0 for n in choices]


def test_initial_models_differ_and_are_drawn_until_each_is_chosen() -> None:
    lucky = play(toy("ifca", {"num_clusters": 2, "least_share": 0.5}), rounds=1)
    notes = lucky.notes[0]
    draws = [q for q in lucky.asked if q.round == 0]
    assert len(draws) == notes["initial_draws"]
    assert notes["least_share"] >= 0.25 or len(draws) == 20
    never = play(toy("ifca", {"num_clusters": 2, "least_share": 1.5, "initial_draws": 3}), rounds=1)
    assert len([q for q in never.asked if q.round == 0]) == 3, "half each is the most there can be"
    assert len(set(lucky.states[0].models)) == 2


def test_a_shared_encoder_is_sent_once_and_averaged_over_everyone() -> None:
    prepared = toy("ifca", {"num_clusters": 2, "share_encoder": True})
    trace = play(prepared, rounds=2)
    for state in trace.states[:3]:
        first, second = state.models
        assert first.select("primary.") == second.select("primary.")
        assert first.select("head.") != second.select("head.")
        assert whole_models(prepared.algorithm.offer(state)) == state.models
    assert trace.states[0].models[0].select("primary.") != trace.states[1].models[0].select("primary.")
    (question,) = [q for q in trace.asked if q.round == 1 and q.purpose == "round"]
    encoder, head = 7 * 128 + 129 * 64, 65 * 4
    assert {a.bytes_down for a in question.answers.values()} == {
        4 * (encoder + 2 * head) + codec.nbytes(prepared.experiment.training)
    }


def test_it_finds_the_planted_groups() -> None:
    prepared = toy("ifca", {"num_clusters": 2}, num_clients=12)
    trace = play(prepared, rounds=6, cohort=lambda round_: prepared.trainable)
    answers = next(q for q in trace.asked if q.task == "choose_and_train" and q.round == 6).answers
    found = {client: answer.reply.cluster for client, answer in answers.items()}
    pairs = {(prepared.federation.groups[client], cluster) for client, cluster in found.items()}
    assert len(pairs) == 2


@pytest.mark.parametrize("share_encoder", [False, True])
def test_choosing_first_and_summing_then_gives_the_same_models(share_encoder: bool) -> None:
    """With whole batches nothing is drawn, so one question or two make no difference but rounding."""
    options = {"num_clusters": 2, "share_encoder": share_encoder}
    whole = {"training": {"local_epochs": 1, "batch_size": 1000}}
    one = play(toy("ifca", options, **whole), rounds=2)
    two = play(toy("ifca", {**options, "choose_first": True}, **whole), rounds=2)
    assert [q.task for q in two.asked if q.round == 1 and q.purpose == "round"] == ["choose", "train"]
    for a, b in zip(one.states, two.states, strict=True):
        assert a.choices == b.choices
        for model, other in zip(a.models, b.models, strict=True):
            torch.testing.assert_close(model.vector, other.vector, atol=1e-6, rtol=1e-5)


def test_secure_sums_make_it_choose_first() -> None:
    secure = {"level": "guarded", "update": {"mode": "secagg"}}
    assert toy("ifca", privacy=secure).algorithm.choose_first
    assert not toy("ifca", privacy="guarded").algorithm.choose_first
