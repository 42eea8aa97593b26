# SPDX-License-Identifier: Apache-2.0
"""DP-SGD: gradients of single samples, clipping, Poisson batches, the size of the noise, what it refuses."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from feddag.core.deployment import LocalTraining
from feddag.core.engine import Exchange
from feddag.core.errors import InvalidInput
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.data.federation import Federation, Pool, Share, Source
from feddag.engines.perform import open_site
from feddag.learning.dpsgd import clipped, poisson_batches, sample_gradients
from feddag.learning.losses import cross_entropy
from feddag.learning.modules import Batch, LoadedNetwork
from feddag.learning.sgd import sgd
from feddag.learning.train import train as train_task
from feddag.privacy.accounting import DPSGD
from feddag.privacy.config import CountPrivacy, PrivacyOptions, UpdatePrivacy
from feddag.privacy.guard import Protection, Refused
from tests.support.toys import blob_site, toy_client


def images(shape: tuple[int, ...], n: int = 12) -> Federation:
    generator = Seed(1).numpy()
    x = generator.random(size=(n, *shape)).astype(np.float32)
    pool = Pool(x, (np.arange(n) % 3).astype(np.int64))
    share = Share(train=np.arange(n), validation=np.arange(0), test=np.arange(n))
    source = Source("toy", "generated", train_samples=n, test_samples=n)
    return Federation(clients={"a": share}, train=pool, test=pool, num_classes=3, source=source)


def protected(client: Client, **options: Any) -> tuple[Client, Protection]:
    """The client behind a guard."""
    update = UpdatePrivacy(mode="dpsgd", **options)
    counts = CountPrivacy(epsilon=32.0)  # nearly exact
    place = Protection(PrivacyOptions(level="strict", update=update, counts=counts, budget=math.inf))
    guard = place.guard(client.id, train_task, Exchange(1, Seed(3)))
    return dataclasses.replace(client, privacy=guard), place


NETWORKS = [("lenet", (1, 28, 28), "single"), ("conv3", (3, 32, 32), "single"), ("mlp", (7,), "dual")]


@pytest.mark.parametrize(("model", "shape", "kind"), NETWORKS)
def test_gradients_of_single_samples_are_those_of_a_loop_over_samples(
    model: str, shape: tuple[int, ...], kind: str
) -> None:
    site = open_site(images(shape), model)
    client = toy_client(site, "a")
    module = site.network(kind)
    parts = ("primary.", "head.") if kind == "dual" else ("",)
    loaded = LoadedNetwork(module, Params.from_module(module), parts)
    loaded.module.eval()  # dropout would draw other numbers
    known = {} if kind == "single" else {"secondary": loaded.features("secondary", client.train)}
    rows = torch.arange(len(client.train))
    batch = Batch(client.train, rows, known)
    found = sample_gradients(loaded)(batch)
    for i in rows.tolist():
        one = Batch(client.train, rows[i : i + 1], {n: f[i : i + 1] for n, f in known.items()})
        literal = torch.cat(loaded.gradient(cross_entropy(loaded, one)))
        torch.testing.assert_close(found[i], literal, atol=1e-5, rtol=1e-4)


def test_clipping_shortens_long_gradients_and_leaves_short_ones() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(clipped(rows, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_every_sample_is_in_a_batch_with_the_told_probability() -> None:
    batches = list(poisson_batches(50, 0.2, 2000, Seed(4).numpy()))
    inside = np.stack([np.isin(np.arange(50), rows.numpy()) for rows in batches])
    deviation = math.sqrt(0.2 * 0.8 / 2000)
    assert np.abs(inside.mean(axis=0) - 0.2).max() < 5 * deviation
    assert abs(np.corrcoef(inside[:, 0], inside[:, 1])[0, 1]) < 0.1  # samples do not know of each other
    assert len({len(rows) for rows in batches}) > 5


def test_the_noise_has_the_told_size() -> None:
    site = blob_site()
    client = toy_client(site)
    start = Params.from_module(site.network("single"))
    # One step whose gradients are clipped to nothing: only noise moves the weights.
    local = LocalTraining(local_steps=1, batch_size=10, lr=1.0, momentum=0.0, weight_decay=0.0)
    quiet, _ = protected(client, clip=1e-6, noise=3e6)
    moved = (sgd(quiet, start, local) - start).vector.numpy()
    assert moved.std() == pytest.approx(3.0 / 10, rel=0.05)


def test_almost_without_noise_it_learns_as_plain_training_does() -> None:
    site = blob_site(sizes=(200,))
    client = toy_client(site)
    start = Params.from_module(site.network("single"))
    local = LocalTraining(local_epochs=10, batch_size=20, lr=0.1, weight_decay=0.0)
    clear, _ = protected(client, clip=100.0, noise=1e-6)
    with torch.no_grad():
        losses = []
        for params in (start, sgd(clear, start, local), sgd(client, start, local)):
            loaded = LoadedNetwork(site.network("single"), params)
            losses.append(float(cross_entropy(loaded, Batch(client.train, torch.arange(200), {}))))
    assert losses[1] < 0.3 * losses[0]
    assert abs(losses[1] - losses[2]) < 0.1 * losses[0]


def test_every_training_is_accounted_with_its_rate_and_steps() -> None:
    site = blob_site(sizes=(64,))
    client, _ = protected(toy_client(site), noise=2.0)
    start = Params.from_module(site.network("single"))
    local = LocalTraining(local_epochs=3, batch_size=16)
    sgd(client, start, local, seed=client.seed / "one")
    sgd(client, start, local, seed=client.seed / "two")
    spends = [e.spend for e in client.privacy.entries if e.mechanism == DPSGD]
    assert len(spends) == 2
    told = int(client.privacy.histogram(client).sum())
    assert all(s.rate == 16 / told and s.steps == 3 * math.ceil(told / 16) for s in spends)
    assert len({e.release for e in client.privacy.entries}) == 3  # with the counts


def test_a_client_without_budget_does_not_train() -> None:
    site = blob_site()
    client = toy_client(site)
    options = PrivacyOptions(level="strict", budget=1.0, update=UpdatePrivacy(mode="dpsgd", noise=0.5))
    guard = Protection(options).guard(client.id, train_task, Exchange(1, Seed(3)))
    start = Params.from_module(site.network("single"))
    with pytest.raises(Refused, match="budget of ε = 1"):
        sgd(dataclasses.replace(client, privacy=guard), start, LocalTraining())


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"sample_weights": torch.ones(30)}, "sample weights"),
        ({"loss": lambda model, batch: model(batch).sum()}, "another loss"),
        ({"epoch_losses": []}, "losses"),
    ],
)
def test_what_noisy_gradients_do_not_protect_is_refused(wanted: dict[str, Any], words: str) -> None:
    site = blob_site()
    client, _ = protected(toy_client(site))
    with pytest.raises(InvalidInput, match=words):
        sgd(client, Params.from_module(site.network("single")), LocalTraining(), **wanted)


def test_batch_normalisation_is_refused() -> None:
    from feddag.learning.dpsgd import check_network

    with pytest.raises(InvalidInput, match="BatchNorm"):
        check_network(torch.nn.Sequential(torch.nn.BatchNorm1d(3)))
