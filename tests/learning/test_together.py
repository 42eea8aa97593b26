"""Several clients at once take the steps that each takes alone, up to rounding."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from feddag.core.deployment import LocalTraining
from feddag.core.examples import Examples, Scaling
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.losses import cross_entropy
from feddag.learning.sgd import sgd
from feddag.learning.together import Cohort
from feddag.models import Networks

SIZES = (23, 8, 31, 1, 16)
LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.05, momentum=0.5)
Ask = Callable[[Client, Params, int], Params]


class Setting:
    """Clients of unequal size with one network."""

    def __init__(self, model: str, shape: tuple[int, ...], kind: str = "single", codes: bool = False) -> None:
        self.networks, self.kind = Networks(model, Problem(shape, 5, codes)), kind
        with Seed(4).ambient():
            fresh = [Params.from_module(self.networks.fresh(kind)) for _ in SIZES]
        self.starts, self.said = fresh, list[str]()
        self.examples = []
        for i, n in enumerate(SIZES):
            generator = Seed(i).numpy()
            x = generator.integers(0, 256, size=(n, *shape), dtype=np.uint8)
            scaling = Scaling() if codes else Scaling(255.0, (0.5,) * shape[0], (0.25,) * shape[0])
            self.examples.append(Examples(x, generator.integers(0, 5, size=n), 5, scaling))

    def client(self, i: int, **more: Any) -> Client:
        train, none = self.examples[i], self.examples[i].take(np.empty(0, dtype=np.int64))
        return Client(f"c{i}", train, none, none, self.networks, Seed(i), Seed(9), backend="torch", **more)

    def alone(self, ask: Ask) -> list[Params]:
        return [ask(self.client(i), start, i) for i, start in enumerate(self.starts)]

    def at_once(self, ask: Ask) -> list[Params]:
        class Taken(Exception):
            pass

        wanted = []

        def take(training: Any) -> Params:
            wanted.append(training)
            raise Taken

        for i, start in enumerate(self.starts):
            with pytest.raises(Taken):
                ask(self.client(i, together=take), start, i)
        self.results = Cohort(self.said.append).train(wanted)
        self.samples = [training.client.work.samples for training in wanted]
        return [result for result in self.results if isinstance(result, Params)]


def check(setting: Setting, ask: Ask) -> None:
    alone, at_once = setting.alone(ask), setting.at_once(ask)
    assert setting.said == []
    assert setting.samples == [n * LOCAL.local_epochs for n in SIZES]
    for start, one, other in zip(setting.starts, alone, at_once, strict=True):
        assert one.layout == other.layout
        moved = (one - start).norm()
        assert moved > 1e-3
        assert (one - other).norm() < 1e-4 * moved


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("mlp", (1, 6, 6)),
        ("lenet", (1, 28, 28)),
        ("conv1d", (3, 16)),
        ("attentive_net:make", (3, 16, 16)),
    ],
)
def test_every_client_ends_where_it_ends_alone(model: str, shape: tuple[int, ...]) -> None:
    check(Setting(model, shape), lambda client, start, i: sgd(client, start, LOCAL))


@pytest.mark.parametrize("train", [("primary.", "head."), ("secondary.",), ("head.",)])
def test_frozen_parts_stay_and_their_features_are_known(train: tuple[str, ...]) -> None:
    setting = Setting("conv1d", (3, 16), "dual")
    check(setting, lambda client, start, i: sgd(client, start, LOCAL, network="dual", train=train))
    for start, trained in zip(setting.starts, setting.results, strict=True):
        assert isinstance(trained, Params)
        for name in start:
            assert torch.equal(start[name], trained[name]) != name.startswith(train)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_optimisers_weights_pulls_and_corrections(optimiser: str) -> None:
    setting = Setting("mlp", (1, 6, 6))
    local = replace(LOCAL, optimiser=optimiser, lr=0.01, weight_decay=0.1)
    centre = setting.starts[0]

    def ask(client: Client, start: Params, i: int) -> Params:
        weights = torch.linspace(0.5, 1.5, len(client.train))
        correction = (start - centre) * 0.01
        return sgd(
            client, start, local, sample_weights=weights, proximal=(0.3, centre), correction=correction
        )

    check(setting, ask)


def test_steps_instead_of_epochs_and_different_rates() -> None:
    """Clients with other settings form a group of their own."""
    setting = Setting("mlp", (1, 6, 6))
    plans = [LOCAL, replace(LOCAL, local_epochs=0, local_steps=5)]
    ask = lambda client, start, i: sgd(client, start, plans[i % 2])  # noqa: E731
    for one, other in zip(setting.alone(ask), setting.at_once(ask), strict=True):
        assert (one - other).norm() < 1e-5 * one.norm()


@pytest.mark.parametrize("model", ["normalised_net:make", "gru"])
def test_a_network_that_cannot_be_stacked_trains_one_by_one_and_it_is_said_once(model: str) -> None:
    setting = Setting(model, (7,) if model == "gru" else (1, 8, 8), codes=model == "gru")
    ask = lambda client, start, i: sgd(client, start, LOCAL)  # noqa: E731
    digests = [params.digest() for params in setting.alone(ask)]
    assert [params.digest() for params in setting.at_once(ask)] == digests
    assert len(setting.said) == 1
    assert setting.said[0].startswith("clients are trained one by one, not at once: ")


def test_another_loss_is_computed_alone() -> None:
    setting = Setting("mlp", (1, 6, 6))
    twice = lambda model, batch: 2 * cross_entropy(model, batch)  # noqa: E731
    ask = lambda client, start, i: sgd(client, start, LOCAL, loss=twice)  # noqa: E731
    assert [p.digest() for p in setting.at_once(ask)] == [p.digest() for p in setting.alone(ask)]


def test_one_clients_fault_is_its_own() -> None:
    setting = Setting("mlp", (1, 6, 6))
    alone = setting.alone(lambda client, start, i: sgd(client, start, LOCAL))
    setting.starts[2] = Params.of({"head.bias": torch.zeros(5)})
    at_once = setting.at_once(lambda client, start, i: sgd(client, start, LOCAL))
    assert isinstance(setting.results[2], Exception)
    for one, other in zip(alone[:2] + alone[3:], at_once, strict=True):
        assert (one - other).norm() < 1e-5 * one.norm()
