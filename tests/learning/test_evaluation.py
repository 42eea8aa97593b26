# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import blob_site, toy_client

from feddag.core.deployment import Deployment, LocalTraining
from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.engines.perform import MOST_SCORES, KnownScores
from feddag.learning.evaluation import Evaluate, evaluate, least_loss, logits, score, serve
from feddag.learning.sgd import sgd
from feddag.reporting.tables.metrics import client_scores, summary

site = blob_site()
local = LocalTraining(local_epochs=5, batch_size=8, lr=0.1)


def model(seed=0):
    with Seed(seed).ambient():
        return Params.from_module(site.network.fresh("single"))


def test_scores_count_right_predictions_class_by_class():
    client, params = toy_client(site), model()
    scores = score(client, Deployment(models=(params,)), client.test)
    predictions = logits(client, params, client.test).argmax(1).numpy()
    for c in range(3):
        of_class = client.test.y == c
        assert scores.total[c] == of_class.sum()
        assert scores.correct[c] == (predictions[of_class] == c).sum()
    reference = torch.nn.functional.cross_entropy(
        logits(client, params, client.test).double(), client.test.labels, reduction="sum"
    )
    assert scores.loss == pytest.approx(reference.item(), rel=1e-9)


def without_label(label: int):
    """A client that has no sample of a label."""
    client = toy_client(site)
    seen, held = (part.take(np.flatnonzero(part.y != label)) for part in (client.train, client.validation))
    return replace(client, train=seen, validation=held)


def test_a_label_that_a_client_has_never_seen_is_unlikely_by_the_rule_of_succession():
    client, params = without_label(1), model()
    served = serve(client, Deployment(models=(params,), seen_labels=True))
    n = len(client.train)
    assert served.shift == pytest.approx((0, -np.log(n + 1), 0))
    outputs = logits(client, params, client.test).double()
    outputs[:, 1] -= np.log(n + 1)
    scores = score(client, served, client.test)
    right = client.test.y[(outputs.argmax(1) == client.test.labels).numpy()]
    assert scores.correct.tolist() == np.bincount(right, minlength=3).tolist()
    loss = torch.nn.functional.cross_entropy(outputs, client.test.labels, reduction="sum")
    assert scores.loss == pytest.approx(float(loss), rel=1e-9)


def test_validation_decides_whether_unseen_labels_are_lowered():
    served = Deployment(models=(model(),), seen_labels=True)
    assert serve(toy_client(site), served).shift == (), "every label was seen"
    client = without_label(1)
    assert serve(replace(client, validation=client.validation.take(np.empty(0, int))), served).shift == ()
    only_unseen = toy_client(site).validation
    only_unseen = only_unseen.take(np.flatnonzero(only_unseen.y == 1))
    assert serve(replace(client, validation=only_unseen), served).shift == ()
    nothing = client.train.take(np.empty(0, int))
    assert serve(replace(client, train=nothing), served).shift == (), "who holds nothing knows nothing"


def test_several_models_without_weights_mean_the_one_with_least_training_loss():
    client = toy_client(site)
    good = sgd(client, model(), local)
    served = serve(client, Deployment(models=(model(1), good, model(2))))
    assert served.models == (good,)
    assert least_loss(client, (good, good)) == 0, "ties go to the lowest"


def test_several_models_with_weights_are_a_mixture_of_probabilities():
    client = toy_client(site)
    models = (model(1), model(2))
    scores = score(client, Deployment(models=models, weights=(1.0, 3.0)), client.test)
    mixed = sum(
        w * logits(client, m, client.test).double().softmax(1)
        for m, w in zip(models, (0.25, 0.75), strict=True)
    )
    right = client.test.y[(mixed.argmax(1) == client.test.labels).numpy()]
    assert scores.correct.tolist() == np.bincount(right, minlength=3).tolist()


def test_remembered_tensors_replace_their_namesakes_before_use():
    personal = model(5)
    client = toy_client(site, head=personal.select("head."), share=np.array([0.2, 0.8]))
    served = serve(client, Deployment(models=(model(),), remembered="head", remembered_weights="share"))
    assert served.models[0] == model().replace(personal.select("head."))
    assert served.weights == (0.2, 0.8)
    assert serve(toy_client(site), Deployment(models=(model(),), remembered="head")).models == (model(),)


def test_a_deployment_may_adapt_named_parts_on_own_data_first():
    client = toy_client(site)
    served = serve(client, Deployment(models=(model(),), adapt=local, adapt_prefixes=("head.",)))
    assert served.models[0] == sgd(client, model(), local, train=("head.",))


def test_after_training_scores_are_given_only_when_asked():
    request = Evaluate(deployment=Deployment(models=(model(),)), local=local)
    assert evaluate(request, toy_client(site)).test_after is None
    after = evaluate(
        Evaluate(deployment=request.deployment, local=local, after_training=True), toy_client(site)
    )
    assert after.test_after.correct.sum() > after.test.correct.sum()


def test_a_client_without_test_samples_has_no_accuracy_and_does_not_count_in_the_mean():
    assert client_scores([0, 0], [0, 0], 0.0) is None
    figures = summary({"a": client_scores([4, 1], [2, 1], 1.0), "b": None})
    assert figures["clients"] == 1
    assert figures["accuracy"] == pytest.approx(3 / 5)
    assert figures["balanced_accuracy"] == pytest.approx((2 / 4 + 1) / 2)


def test_classes_absent_from_the_test_samples_do_not_count_in_balanced_accuracy():
    assert client_scores([4, 0, 2], [4, 0, 1], 0.0)["balanced_accuracy"] == pytest.approx(0.75)


def test_samples_that_many_clients_share_give_each_of_them_its_own_scores():
    client, rows = replace(toy_client(site), known_scores=KnownScores()), np.arange(6)
    pool = client.test.x
    mine, other = client.test.y[rows], (client.test.y[rows] + 1) % 3  # another concept over the same images
    for params in (model(0), model(1), model(0)):
        for y in (mine, other, mine):
            shared = Examples(pool[rows], y, 3, client.test.scaling, origin="these rows")
            alone = Examples(pool[rows], y, 3, client.test.scaling)
            served = Deployment(models=(params,))
            got, expected = score(client, served, shared), score(client, served, alone)
            assert got.loss == expected.loss
            assert got.correct.tolist() == expected.correct.tolist()


def test_scores_of_shared_samples_are_remembered_for_a_bounded_number_of_models():
    client, rows = replace(toy_client(site), known_scores=KnownScores()), np.arange(6)
    shared = Examples(client.test.x[rows], client.test.y[rows], 3, origin="these rows")
    for seed in range(MOST_SCORES + 3):
        score(client, Deployment(models=(model(seed),)), shared)
    assert len(client.known_scores) == MOST_SCORES
