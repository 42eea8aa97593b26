"""Every method trains on another device than the host's memory, and nothing is left behind on the way."""

import numpy as np
import pytest
import torch
from pretended_device import DEVICE, Misplaced, pretended_device

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples, Scaling
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.devices import find_device
from feddag.learning.evaluation import logits
from feddag.learning.sgd import sgd
from feddag.models import Networks
from tests.contracts.toys import SETTINGS, every_algorithm, play, toy

TORCH = {"engine": {"name": "inline", "backend": "torch"}}


@every_algorithm
def test_a_method_computes_the_same_on_another_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = play(toy(name, SETTINGS.get(name, {}), **TORCH))
    prepared = toy(name, SETTINGS.get(name, {}), **TORCH)
    with pretended_device(monkeypatch) as device:
        there = play(prepared)
    assert device.operations > 100
    assert there.digests == host.digests


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("model", ["lenet", "conv3", "normalised_net:make"])
def test_convolutions_and_running_statistics_move_too(
    model: str, optimiser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem((3, 32, 32), 5)
    generator = Seed(1).numpy()
    x = generator.integers(0, 256, size=(23, 3, 32, 32), dtype=np.uint8)
    scaling = Scaling(255.0, (0.5,) * 3, (0.25,) * 3)
    train = Examples(x, generator.integers(0, 5, size=23), 5, scaling)
    local = LocalTraining(local_epochs=2, batch_size=8, lr=0.01, optimiser=optimiser)

    def trained(device: torch.device | None) -> list[Params]:
        networks = Networks(model, problem)
        if device is not None:
            for kind in ("single", "dual"):
                networks(kind).device = device
        empty = train.take(np.empty(0, dtype=np.int64))
        client = Client("c", train, empty, empty, networks, Seed(2), Seed(3), backend="torch")
        with Seed(4).ambient():
            models = {kind: Params.from_module(networks.fresh(kind)) for kind in ("single", "dual")}
        weights = torch.linspace(0.5, 1.5, 23)
        single = sgd(
            client, models["single"], local, sample_weights=weights, proximal=(0.1, models["single"])
        )
        dual = sgd(client, models["dual"], local, network="dual", train=("primary.", "head."))
        return [single, dual, Params.of({"logits": logits(client, single, train)})]

    host = trained(None)
    with pretended_device(monkeypatch) as device:
        there = trained(DEVICE)
    assert device.operations > 100
    assert [p.digest() for p in there] == [p.digest() for p in host]


def test_the_pretended_device_notices_what_was_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended_device(monkeypatch):
        here, there = torch.ones(3), torch.ones(3).to(DEVICE)
        assert (there + there).cpu().sum() == 6
        with pytest.raises(Misplaced):
            here + there
        with pytest.raises(Misplaced):
            there.numpy()
        assert there[torch.tensor([0, 1])].shape == (2,)  # indices may stay with the host


@pytest.mark.parametrize("name", ["cuda:99", "cuda:7"])
def test_a_gpu_that_is_not_there_is_one_sentence(name: str) -> None:
    if torch.cuda.is_available() and torch.cuda.device_count() > int(name[5:]):
        pytest.skip("this machine has that many GPUs")
    with pytest.raises(
        InvalidInput, match=f"engine.device = '{name}'.*expected 'cpu' or a GPU that is there"
    ):
        find_device(name)


def test_auto_is_the_processor_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    find_device.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    find_device.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda", 0)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    find_device.cache_clear()
