# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from feddag.algorithms.fedbr import Balance, MakePseudo, Train, balanced_loss, contrast, make_pseudo, train
from feddag.core.deployment import LocalTraining
from feddag.engines.inline import InlineEngine
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork
from feddag.learning.sgd import sgd
from tests.algorithms.helpers import fresh
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client

BALANCE = Balance(mu=0.5, uniform=1.0, tau_global=2.0, tau_own=3.0)
LOCAL = LocalTraining(local_epochs=1, batch_size=8, lr=0.1)


def test_the_contrast_equals_its_formula() -> None:
    own = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    anchors = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    samples = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    cosines = [(math.sqrt(0.5), 0.0), (1.0, -1.0)]  # (s_g, s_x) of each row
    expected = np.mean([-math.log(math.exp(2 * g) / (math.exp(2 * g) + math.exp(3 * x))) for g, x in cosines])
    got = contrast(torch.nn.Identity(), own, anchors, samples, BALANCE)
    assert got.item() == pytest.approx(expected, rel=1e-6)


def setting():
    site = blob_site()
    client = replace(toy_client(site), backend="torch")  # its loss is computed by torch alone
    params = fresh(kind="projected", site=site)
    return site, client, params


def test_the_projector_is_moved_uphill_and_nothing_else_by_the_max_step() -> None:
    site, client, params = setting()
    model = LoadedNetwork(site.network("projected"), params, ("primary.", "head."))
    pseudo = client.train.inputs(slice(0, 8))
    anchors = torch.randn(8, 64, generator=client.seed.torch())
    batch = Batch(client.train, torch.arange(8, 16), NOTHING_KNOWN)

    def contrast_now() -> float:
        rows = torch.from_numpy(client.seed.numpy().choice(8, 8, replace=False))
        encode, projector = model.module.encode, model.module.projector
        with torch.no_grad():
            own, samples = encode("primary", pseudo[rows]), encode("primary", batch.x)
            return float(contrast(projector, own, anchors[rows], samples, BALANCE))

    before = contrast_now()
    balanced_loss(pseudo, anchors, BALANCE, 0.05, client.seed.numpy())(model, batch)
    after = model.params()
    assert contrast_now() > before
    assert after.select("primary.", "head.") == params.select("primary.", "head.")
    assert after.select("projector.") != params.select("projector.")


def test_the_min_loss_has_its_three_parts() -> None:
    site, client, params = setting()
    pseudo = client.train.inputs(slice(0, 8))
    batch = Batch(client.train, torch.arange(8, 16), NOTHING_KNOWN)

    def value(mu: float, uniform: float) -> float:
        model = LoadedNetwork(site.network("projected"), params, ("primary.", "head."))
        anchors = model.module.encode("primary", pseudo).detach()
        constants = Balance(mu=mu, uniform=uniform, tau_global=2.0, tau_own=2.0)
        return balanced_loss(pseudo, anchors, constants, 0.0, client.seed.numpy())(model, batch).item()

    own = value(0.0, 0.0)
    c, uniform = value(1.0, 0.0) - own, value(0.0, 1.0) - own
    assert value(0.5, 2.0) == pytest.approx(own + 0.5 * c + 2 * uniform, rel=1e-5)
    model = LoadedNetwork(site.network("projected"), params)
    logits = model.module(pseudo)
    assert uniform == pytest.approx(float(-logits.log_softmax(1).mean()), rel=1e-4)


def test_batches_larger_than_the_pseudo_data_are_served() -> None:
    _, client, params = setting()
    client.memory["pseudo"] = client.train.inputs(slice(0, 3)).numpy()
    parts = params.select("primary.", "head."), params.select("projector.")
    reply = train(Train(params=parts[0], projector=parts[1], balance=BALANCE, local=LOCAL), client)
    assert reply.projector_update.norm() > 0


def test_without_pseudo_data_it_is_plain_training() -> None:
    _, client, params = setting()
    single, projector = params.select("primary.", "head."), params.select("projector.")
    reply = train(Train(params=single, projector=projector, balance=BALANCE, local=LOCAL), client)
    assert reply.update == sgd(client, single, LOCAL) - single
    assert reply.projector_update.norm() == 0


def test_pseudo_samples_are_means_of_several_samples() -> None:
    client = toy_client(blob_site())
    everything = make_pseudo(MakePseudo(number=2, samples=100), client).inputs
    np.testing.assert_allclose(everything, np.tile(client.train.x.mean(0), (2, 1)), rtol=1e-4, atol=1e-5)
    lonely = toy_client(blob_site(sizes=(1, 30)))
    assert make_pseudo(MakePseudo(number=2, samples=10), lonely).inputs.shape == (0, 6)


def test_everyone_holds_the_same_pseudo_data_and_is_served_no_projector() -> None:
    prepared = toy("fedbr")
    engine = InlineEngine(prepared.site)
    state = play(prepared, engine).states[-1]
    assert state.pseudo.inputs.shape == (8, 6)
    for client in prepared.trainable:
        assert np.array_equal(engine.memories.of[client]["pseudo"], state.pseudo.inputs)
    assert not prepared.algorithm.deploy(state, "c000").models[0].select("projector.")
