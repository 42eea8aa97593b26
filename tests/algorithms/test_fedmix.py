# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddag.algorithms.fedmix import Share, mixed_loss, share_means
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.engines.inline import InlineEngine
from feddag.learning.modules import NOTHING_KNOWN, Batch, LoadedNetwork
from tests.algorithms.helpers import fresh
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client

MIX = 0.2
CLIENT = toy_client(blob_site(sizes=(40,)))


def literal_loss(model, batch: Batch, inputs: np.ndarray, labels: np.ndarray, draws: np.ndarray) -> float:
    """The loss sample by sample, each with its own gradient with respect to its own input."""
    total = 0.0
    for j in range(len(batch)):
        u = ((1 - MIX) * batch.x[j : j + 1]).requires_grad_()
        log_p = model.module(u).log_softmax(1)[0]
        own = -log_p[batch.y[j]]
        other = -(torch.from_numpy(labels[draws[j]]) * log_p).sum()
        (slope,) = torch.autograd.grad(own, u, retain_graph=True)
        taylor = (slope[0] * torch.from_numpy(inputs[draws[j]])).sum()
        total += ((1 - MIX) * own + MIX * other + MIX * (1 - MIX) * taylor).item()
    return total / len(batch)


def setting():
    site = blob_site()
    client = toy_client(site)
    model = LoadedNetwork(site.network("single"), fresh(site=site), ("",))
    means = share_means(Share(group_size=5), client)
    return client, model, means


def test_the_loss_equals_its_formula_sample_by_sample() -> None:
    client, model, means = setting()
    batch = Batch(client.train, torch.arange(7), NOTHING_KNOWN)
    generator = client.seed.numpy()
    draws = client.seed.numpy().integers(len(means.inputs), size=7)
    loss = mixed_loss(torch.from_numpy(means.inputs), torch.from_numpy(means.labels), MIX, generator)
    expected = literal_loss(model, batch, means.inputs, means.labels, draws)
    assert loss(model, batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_taylor_term_approximates_mixup_to_first_order() -> None:
    # ℓ(f((1−λ)x + λx̄), y) against its expansion at (1−λ)x: halving λ quarters the error. Smooth, in float64.
    draw = Seed(1).numpy()
    layers = [torch.from_numpy(draw.normal(size=shape)) for shape in ((4, 5), (5, 3))]
    x, x_mean = (torch.from_numpy(draw.normal(size=(1, 4))) for _ in range(2))

    def loss(inputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy((inputs @ layers[0]).tanh() @ layers[1], torch.tensor([2]))

    def error(mix: float) -> float:
        u = ((1 - mix) * x).requires_grad_()
        (slope,) = torch.autograd.grad(loss(u), u)
        return abs((loss(u) + mix * (slope * x_mean).sum() - loss((1 - mix) * x + mix * x_mean)).item())

    assert error(0.002) / error(0.001) == pytest.approx(4, rel=0.05)


def test_the_gradient_flows_through_the_taylor_term() -> None:
    client, model, means = setting()
    batch = Batch(client.train, torch.arange(4), NOTHING_KNOWN)
    pool = torch.from_numpy(means.inputs), torch.from_numpy(means.labels)
    gradients = [
        model.gradient(mixed_loss(inputs, pool[1], MIX, client.seed.numpy())(model, batch))[0]
        for inputs in (pool[0], torch.zeros_like(pool[0]))
    ]
    assert not torch.allclose(*gradients)


@given(st.integers(0, 40), st.integers(2, 12))
def test_no_mean_is_of_a_single_sample(n: int, group_size: int) -> None:
    client = replace(CLIENT, train=CLIENT.train.take(np.arange(n)))
    means = share_means(Share(group_size=group_size), client)
    number = min(-(-n // group_size), n // 2)
    assert means.inputs.shape == (number, 6)
    assert means.labels.shape == (number, 3)
    np.testing.assert_allclose(means.labels.sum(1), 1.0, rtol=1e-5)
    assert number == 0 or n / number >= 2


def test_means_are_of_network_inputs() -> None:
    client = toy_client(blob_site())
    means = share_means(Share(group_size=30), client)
    np.testing.assert_allclose(means.inputs[0], client.train.inputs().mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(means.labels[0], client.train.counts() / 30, rtol=1e-6)


def test_everyone_holds_the_same_pool() -> None:
    prepared = toy("fedmix")
    engine = InlineEngine(prepared.site)
    state = play(prepared, engine).states[-1]
    assert state.holders == prepared.trainable
    assert state.pool.inputs.shape == (20, 6)
    for client in prepared.trainable:
        assert np.array_equal(engine.memories.of[client]["pool inputs"], state.pool.inputs)


def test_raw_samples_are_refused_and_small_groups_warned_of() -> None:
    with pytest.raises(InvalidInput, match="group_size"):
        toy("fedmix", {"group_size": 1})
    assert "reveal" in play(toy("fedmix", {"group_size": 2})).notes[0]["warning"]


def test_a_network_without_gradients_to_its_inputs_is_named() -> None:
    client, model, means = setting()

    class Codes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(x[:, 0].long() * 0, 3).float() * weight

    weight = torch.ones(3, requires_grad=True)
    model.module = Codes()
    loss = mixed_loss(
        torch.from_numpy(means.inputs), torch.from_numpy(means.labels), MIX, client.seed.numpy()
    )
    with pytest.raises(InvalidInput, match="no gradient"):
        loss(model, Batch(client.train, torch.arange(2), NOTHING_KNOWN))
