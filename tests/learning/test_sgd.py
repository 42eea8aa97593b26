# SPDX-License-Identifier: Apache-2.0
import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from toys import blob_site, toy_client

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.sgd import batches, sgd

site = blob_site()


def start(kind="single", seed=0):
    with Seed(seed).ambient():
        return Params.from_module(site.network.fresh(kind))


def by_torch_optim(client, params, local, train=("",), kind="single", mu=0.0):
    """The slow, literal reference: torch.optim, parameter by parameter, no cached features."""
    module = copy.deepcopy(site.network(kind))
    module.load_state_dict({n: t.clone() for n, t in params.items()})
    for name, p in module.named_parameters():
        p.requires_grad_(name.startswith(train))
    learning = [p for p in module.parameters() if p.requires_grad]
    centre = [p.detach().clone() for p in learning]
    common = {"lr": local.lr, "weight_decay": local.weight_decay}
    optimiser = {
        "sgd": lambda: torch.optim.SGD(learning, momentum=local.momentum, **common),
        "adam": lambda: torch.optim.Adam(learning, **common),
        "adamw": lambda: torch.optim.AdamW(learning, **common),
    }[local.optimiser]()
    for _, rows in batches(len(client.train), local, client.seed):
        loss = nn.functional.cross_entropy(module(client.train.inputs(rows)), client.train.labels[rows])
        loss = loss + mu / 2 * sum(((p - c) ** 2).sum() for p, c in zip(learning, centre, strict=True))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Params.from_module(module)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_the_loop_is_torch_sgd_with_momentum_and_weight_decay(momentum, weight_decay):
    client, local = (
        toy_client(site),
        LocalTraining(local_epochs=3, batch_size=8, lr=0.1, momentum=momentum, weight_decay=weight_decay),
    )
    ours, reference = sgd(client, start(), local), by_torch_optim(client, start(), local)
    torch.testing.assert_close(ours.vector, reference.vector, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_adam_and_adamw_are_those_of_torch_step_by_step(optimiser, weight_decay, steps):
    local = LocalTraining(
        local_steps=steps, batch_size=8, lr=0.01, weight_decay=weight_decay, optimiser=optimiser
    )
    client = toy_client(site)
    ours, reference = sgd(client, start(), local), by_torch_optim(client, start(), local)
    torch.testing.assert_close(ours.vector, reference.vector, rtol=1e-5, atol=1e-6)


def test_the_two_kinds_of_weight_decay_differ_and_the_proximal_term_reaches_adam():
    client = toy_client(site)
    local = LocalTraining(local_steps=5, batch_size=8, lr=0.01, weight_decay=0.5, optimiser="adam")
    decoupled = sgd(client, start(), dataclasses.replace(local, optimiser="adamw"))
    assert not torch.allclose(sgd(client, start(), local).vector, decoupled.vector, atol=1e-3)
    held = sgd(client, start(), local, proximal=(0.7, start()))
    reference = by_torch_optim(client, start(), local, mu=0.7)
    torch.testing.assert_close(held.vector, reference.vector, rtol=1e-4, atol=1e-5)


def test_adam_keeps_frozen_parts_and_starts_afresh_in_each_call():
    client, params = toy_client(site), start("dual")
    local = LocalTraining(local_steps=3, batch_size=8, lr=0.01, optimiser="adam")
    trained = sgd(client, params, local, network="dual", train=("secondary.",))
    reference = by_torch_optim(client, params, local, ("secondary.",), "dual")
    torch.testing.assert_close(trained.vector, reference.vector, rtol=1e-5, atol=1e-6)
    assert trained.select("primary.", "head.") == params.select("primary.", "head.")
    assert trained == sgd(client, params, local, network="dual", train=("secondary.",))


def test_a_correction_is_added_to_every_gradient():
    client, params = toy_client(site), start()
    local = LocalTraining(local_steps=4, batch_size=8, lr=0.1, momentum=0.0, weight_decay=0.0)
    slope = Params.of({n: torch.full_like(t, 0.3) for n, t in params.items()})

    def tilted(model, batch):  # the gradient of 0.3·Σw is 0.3
        return nn.functional.cross_entropy(model(batch), batch.y) + 0.3 * sum(
            p.sum() for p in model.trainable
        )

    ours = sgd(client, params, local, correction=slope)
    reference = sgd(client, params, local, loss=tilted)
    torch.testing.assert_close(ours.vector, reference.vector, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ours.vector, sgd(client, params, local).vector, atol=1e-2)


@pytest.mark.parametrize("train", [("primary.", "head."), ("secondary.",), ("head.",)])
def test_frozen_parts_keep_their_bits_and_cached_features_change_nothing(train):
    client, local, params = (
        toy_client(site),
        LocalTraining(local_epochs=2, batch_size=8, lr=0.1),
        start("dual"),
    )
    trained = sgd(client, params, local, network="dual", train=train)
    reference = by_torch_optim(client, params, local, train, "dual")
    torch.testing.assert_close(trained.vector, reference.vector, rtol=1e-5, atol=1e-6)
    for name in params:
        assert torch.equal(trained[name], params[name]) != name.startswith(train), name


def test_a_frozen_encoder_runs_once_over_the_data_and_not_once_a_step():
    client, calls = toy_client(site), []
    network = client.network("dual")
    handle = network.secondary.register_forward_hook(lambda m, x, y: calls.append(len(y)))
    try:
        sgd(
            client,
            start("dual"),
            LocalTraining(local_epochs=5, batch_size=4),
            network="dual",
            train=("primary.",),
        )
    finally:
        handle.remove()
    assert calls == [len(client.train)]


def test_frozen_parts_are_in_evaluation_mode_and_learning_parts_in_training_mode():
    model = LoadedNetwork(site.network("dual"), start("dual"), ("secondary.",))
    modes = {name: child.training for name, child in model.module.named_children()}
    assert modes == {"primary": False, "secondary": True, "head": False}


def test_the_proximal_term_pulls_towards_its_centre_as_the_penalty_says():
    client, local, params = toy_client(site), LocalTraining(local_epochs=2, batch_size=8, lr=0.1), start()
    ours = sgd(client, params, local, proximal=(0.7, params))
    torch.testing.assert_close(
        ours.vector, by_torch_optim(client, params, local, mu=0.7).vector, rtol=1e-5, atol=1e-6
    )
    assert (ours - params).norm() < (sgd(client, params, local) - params).norm()


def test_with_lr_times_mu_one_and_no_momentum_fedprox_never_strays_more_than_one_step():
    client, params = toy_client(site), start()
    local = LocalTraining(
        local_epochs=2, batch_size=len(client.train), lr=0.5, momentum=0.0, weight_decay=0.0
    )
    once = LocalTraining(local_steps=1, batch_size=len(client.train), lr=0.5, momentum=0.0, weight_decay=0.0)
    first = sgd(client, params, once)  # u₁ = w − lr·∇f(w)
    second_gradient = sgd(client, first, once) - first  # −lr·∇f(u₁)
    held = sgd(client, params, local, proximal=(2.0, params))  # u₂ = w − lr·∇f(u₁), since lr·μ = 1
    torch.testing.assert_close((held - params).vector, second_gradient.vector, rtol=1e-4, atol=1e-6)


def test_sample_weights_scale_each_samples_loss():
    client, params = toy_client(site), start()
    local = LocalTraining(local_steps=1, batch_size=len(client.train), lr=1.0, momentum=0.0, weight_decay=0.0)
    ones = torch.ones(len(client.train))
    plain = sgd(client, params, local)
    torch.testing.assert_close(sgd(client, params, local, sample_weights=ones).vector, plain.vector)
    doubled = sgd(client, params, local, sample_weights=2 * ones) - params
    torch.testing.assert_close(doubled.vector, 2 * (plain - params).vector, rtol=1e-5, atol=1e-6)


@given(n=st.integers(1, 70), size=st.integers(1, 30), epochs=st.integers(1, 4))
@settings(deadline=None)
def test_every_epoch_visits_every_sample_once_and_keeps_the_last_partial_batch(n, size, epochs):
    local = LocalTraining(local_epochs=epochs, batch_size=size)
    seen = list(batches(n, local, Seed(1)))
    assert [e for e, _ in seen] == sorted(e for e, _ in seen)
    for epoch in range(epochs):
        rows = torch.cat([r for e, r in seen if e == epoch])
        assert sorted(rows.tolist()) == list(range(n))


@given(n=st.integers(1, 40), size=st.integers(1, 30), steps=st.integers(1, 20))
@settings(deadline=None)
def test_a_number_of_steps_is_exact_whatever_the_number_of_samples(n, size, steps):
    assert len(list(batches(n, LocalTraining(local_steps=steps, batch_size=size), Seed(1)))) == steps


def test_epoch_losses_are_reported_once_an_epoch_and_fall():
    losses: list[float] = []
    sgd(toy_client(site), start(), LocalTraining(local_epochs=6, batch_size=8, lr=0.1), epoch_losses=losses)
    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_training_never_changes_the_parameters_it_was_given():
    params = start()
    before = params.digest()
    sgd(toy_client(site), params, LocalTraining(local_epochs=1))
    assert params.digest() == before


def test_same_seed_same_bits_and_another_seed_another_order():
    client, local = toy_client(site), LocalTraining(local_epochs=2, batch_size=4, lr=0.1)
    assert sgd(client, start(), local) == sgd(client, start(), local)
    assert sgd(client, start(), local) != sgd(client, start(), local, seed=Seed(99))


def test_a_client_without_samples_returns_what_it_got():
    empty = blob_site(sizes=(0, 5))
    with Seed(0).ambient():
        params = Params.from_module(empty.network.fresh("single"))
    assert sgd(toy_client(empty), params, LocalTraining()) == params


def test_kernels_in_working_order_give_the_same_network_and_the_same_gradient():
    module = nn.Module()
    module.encoder_names = ("primary",)
    module.primary = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten())
    module.head = nn.Linear(48, 3)
    module.forward = lambda x, known=None: module.head(module.primary(x))
    plain, params = copy.deepcopy(module), Params.from_module(module)
    plain.forward = lambda x: plain.head(plain.primary(x))
    images = np.random.default_rng(0).normal(size=(5, 2, 6, 6)).astype(np.float32)
    examples = Examples(images, np.array([0, 1, 2, 0, 1]), 3)
    batch = Batch(examples, torch.arange(5), {})
    model = LoadedNetwork(module, params, ("",))
    assert torch.equal(model.params().vector, params.vector)
    assert torch.equal(model.working(model.params(model.vector * 2)), model.vector * 2)
    loss = nn.functional.cross_entropy(model(batch), batch.y)
    (gradient,) = model.gradient(loss)
    outputs = plain(examples.inputs(batch.rows))
    torch.testing.assert_close(model(batch), outputs)
    nn.functional.cross_entropy(outputs, batch.y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
    torch.testing.assert_close(model.params(gradient).vector, expected)


def corrected(strength, **others):
    return LocalTraining(local_epochs=2, batch_size=8, lr=0.1, prior_correction=strength, **others)


def test_the_prior_correction_is_cross_entropy_with_the_label_shares_added_to_the_outputs():
    client = toy_client(site)
    shares = torch.from_numpy(client.train.counts()).float() + 1
    prior = 0.5 * (shares / shares.sum()).log()
    assert prior.unique().numel() > 1

    def literal(model, batch):
        return nn.functional.cross_entropy(model(batch) + prior, batch.y)

    ours = sgd(client, start(), corrected(0.5, weight_decay=0.0))
    reference = sgd(client, start(), corrected(0.0, weight_decay=0.0), loss=literal)
    torch.testing.assert_close(ours.vector, reference.vector, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours.vector, sgd(client, start(), corrected(0.0)).vector, atol=1e-3)


def test_the_prior_correction_of_a_client_with_equal_shares_changes_no_bit():
    client = toy_client(site)
    balanced = np.concatenate(
        [np.flatnonzero(client.train.y == c)[:3] for c in range(client.train.num_classes)]
    )
    client = dataclasses.replace(client, train=client.train.take(balanced))
    assert len(set(client.train.counts())) == 1
    assert sgd(client, start(), corrected(1.0)) == sgd(client, start(), corrected(0.0))


def test_a_frozen_head_keeps_its_bits_under_the_prior_correction():
    client, params = toy_client(site), start("dual")
    trained = sgd(client, params, corrected(1.0), network="dual", train=("secondary.",))
    assert trained.select("primary.", "head.") == params.select("primary.", "head.")
    assert trained.select("secondary.") != params.select("secondary.")


def test_the_prior_correction_needs_a_head_with_a_bias():
    client, params = toy_client(site), start().select("primary.", "head.weight")
    with pytest.raises(
        InvalidInput, match="prior_correction needs a network whose head is linear and has a bias"
    ):
        sgd(client, params, corrected(1.0))
