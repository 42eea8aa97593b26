# SPDX-License-Identifier: Apache-2.0
"""Which backend computes, why, and that both compute the same."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from feddag import native
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples, Scaling
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.experiment.settings import Experiment
from feddag.learning.backends import select_backend
from feddag.learning.evaluation import logits, sample_losses
from feddag.learning.losses import cross_entropy
from feddag.learning.sgd import sgd
from feddag.models import Networks

needs_kernels = pytest.mark.skipif(not native.available(), reason=native.why_not())
LOCAL = LocalTraining(local_epochs=2, batch_size=16, lr=0.05, momentum=0.5, weight_decay=1e-3)


def client_of(model: str, shape: tuple[int, ...], stored: str = "float32", count: int = 50) -> Client:
    generator = np.random.default_rng(4)
    if stored == "uint8":
        x = generator.integers(0, 256, size=(count, *shape), dtype=np.uint8)
        scaling = Scaling(255.0, (0.3,) * shape[0], (0.2,) * shape[0])
    else:
        x, scaling = generator.normal(size=(count, *shape)).astype(np.float32), Scaling()
    examples = Examples(x, generator.integers(0, 5, size=count), 5, scaling)
    nothing = examples.take(np.empty(0, dtype=np.int64))
    networks = Networks(model, Problem(shape, 5))
    return Client("c", examples, nothing, nothing, networks, Seed(1), Seed(2))


def initial(client: Client, kind: str) -> Params:
    with Seed(7).ambient():
        return Params.from_module(client.network.fresh(kind))  # type: ignore[attr-defined]


def on(backend: str, client: Client) -> Client:
    return dataclasses.replace(client, backend=backend)


@needs_kernels
@pytest.mark.parametrize(
    ("model", "shape", "stored"),
    [
        ("lenet", (1, 28, 28), "uint8"),
        ("lenet", (3, 16, 20), "uint8"),
        ("mlp", (6,), "float32"),
        ("mlp", (1, 8, 8), "uint8"),
        ("conv1d", (6, 32), "float32"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "train"),
    [("single", ("",)), ("dual", ("primary.", "head.")), ("dual", ("secondary.",)), ("dual", ("head.",))],
)
def test_both_backends_train_the_same(
    model: str, shape: tuple[int, ...], stored: str, kind: str, train: tuple[str, ...]
) -> None:
    client = client_of(model, shape, stored)
    params, centre = initial(client, kind), initial(client, kind) * 0.9
    weights = torch.rand(50, generator=torch.Generator().manual_seed(1))
    results, losses = [], []
    for backend in ("torch", "native"):
        means: list[float] = []
        trained = sgd(
            on(backend, client), params, LOCAL, network=kind, train=train, sample_weights=weights,
            proximal=(0.1, centre), epoch_losses=means,
        )  # fmt: skip
        results.append(trained)
        losses.append(means)
    moved = (results[0] - params).norm()
    assert moved > 0
    assert (results[0] - results[1]).norm() < 1e-4 * moved
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    outputs, expected = (
        logits(on(backend, client), results[0], client.train, kind) for backend in ("native", "torch")
    )
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize(("model", "shape"), [("conv3", (3, 32, 32)), ("conv4", (3, 64, 64))])
def test_networks_with_dropout_learn_with_the_kernels(model: str, shape: tuple[int, ...]) -> None:
    client = on("native", client_of(model, shape, "uint8", count=20))
    params = initial(client, "single")
    # Dropout draws from another generator than torch's: compare what must agree, the loss without it.
    trained = sgd(client, params, LOCAL)
    assert sample_losses(client, trained).mean() < sample_losses(client, params).mean()
    assert trained == sgd(client, params, LOCAL)
    assert trained != sgd(client, params, LOCAL, seed=Seed(99))


@needs_kernels
def test_auto_takes_the_kernels_where_it_can() -> None:
    network = Networks("lenet", Problem((1, 28, 28), 5))
    assert str(select_backend("auto", network("dual"), (1, 28, 28))) == f"native ({native.isa()})"
    assert str(select_backend("torch", network("dual"), (1, 28, 28))) == "torch: as the settings say"


def other_loss(model: object, batch: object) -> Tensor:
    raise NotImplementedError


@needs_kernels
def test_auto_falls_back_to_torch_and_says_why() -> None:
    network = Networks("lenet", Problem((1, 28, 28), 5))
    assert "other_loss" in select_backend("auto", network("single"), (1, 28, 28), loss=other_loss).reason
    assert "projector" in select_backend("auto", network("projected"), (1, 28, 28)).reason
    assert (
        "part of encoder"
        in select_backend("auto", network("single"), (1, 28, 28), train=("primary.0.",)).reason
    )
    gru = Networks("gru", Problem((20,), 5, integer_codes=True))
    assert "gru" in select_backend("auto", gru("single"), (20,)).reason
    assert "forward pass of its own" in select_backend("auto", nn.Sequential(nn.Linear(2, 2)), (2,)).reason
    assert select_backend("auto", network("single"), (1, 28, 28), loss=cross_entropy).plan is not None


@needs_kernels
def test_the_kernels_compute_sgd_alone() -> None:
    network = Networks("lenet", Problem((1, 28, 28), 5))("single")
    assert str(select_backend("auto", network, (1, 28, 28), optimiser="adam")) == "torch: the optimiser adam"
    corrected = select_backend("auto", network, (1, 28, 28), corrected=True)
    assert str(corrected) == "torch: a correction of the gradient"
    client = on("native", client_of("mlp", (6,)))
    adam = dataclasses.replace(LOCAL, optimiser="adam")
    with pytest.raises(InvalidInput, match=r"backend = 'native' is impossible here: the optimiser adam"):
        sgd(client, initial(client, "single"), adam)
    ours, reference = (sgd(on(b, client), initial(client, "single"), adam) for b in ("auto", "torch"))
    assert ours == reference


@needs_kernels
def test_insisting_on_native_for_an_unknown_network_is_an_error_that_names_the_layer() -> None:
    network = Networks("gru", Problem((20,), 5, integer_codes=True))
    client = dataclasses.replace(client_of("gru", (20,)), network=network, backend="native")
    with pytest.raises(InvalidInput, match=r"backend = 'native' is impossible here: primary \(gru\)"):
        sgd(client, initial(client, "single"), LOCAL)


def test_without_kernels_auto_means_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDDAG_NATIVE_ISA", "abacus")
    network = Networks("lenet", Problem((1, 28, 28), 5))
    selected = select_backend("auto", network("single"), (1, 28, 28))
    assert selected.plan is None
    assert selected.reason == native.why_not() != ""


def test_an_unknown_backend_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"engine.backend = .fortran.: expected 'auto', 'torch' or"):
        Experiment.from_settings({"engine": {"backend": "fortran"}})
    assert Experiment().engine.backend == "auto"


def test_the_former_name_of_the_setting_is_answered_with_the_new_one() -> None:
    with pytest.raises(InvalidInput, match=r"^training.backend: this setting is now engine.backend$"):
        Experiment.from_settings({"training": {"backend": "torch"}})
