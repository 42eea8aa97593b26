# SPDX-License-Identifier: Apache-2.0
"""Gradients of every layer and combination against torch in float64.

Inputs and weights are small multiples of a power of two, so that all sums before the softmax are exact in
float32 as well as in float64: equal values in a pooling window and zeros under a ReLU are then really equal,
and torch's choices among them (the first maximum, no gradient at zero) must be met, not almost always.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from feddag import native
from tests.native.networks import TwoEncoders, flat

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def exact_weights(module: nn.Module, generator: np.random.Generator) -> None:
    """Multiples of 1/4; the head's are small, so that no softmax saturates."""
    for name, parameter in module.named_parameters():
        values = generator.integers(-2, 3, size=tuple(parameter.shape)) / 4
        scale = 2.0**-9 if name.startswith("head") else 1.0
        parameter.data = torch.tensor(values * scale, dtype=torch.float32)


def random_numbers(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape, dtype=np.float32))


def reference(module: nn.Module, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[float, Tensor]:
    """Loss and gradient by torch in float64."""
    exact = copy.deepcopy(module).double()
    loss = nn.functional.cross_entropy(exact(x.double()), y, reduction="none")
    (loss if weights is None else loss * weights.double()).mean().backward()
    mean = (loss if weights is None else loss * weights.double()).mean().item()
    return mean, torch.cat([parameter.grad.flatten() for parameter in exact.parameters()])


def assert_same_gradient(module: nn.Module, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
    plan = native.describe(module, tuple(x.shape[1:]))
    loss, gradient = native.gradient(plan, flat(module), x, y, sample_weights=weights)
    expected_loss, expected = reference(module, x, y, weights)
    assert loss == pytest.approx(expected_loss, rel=1e-5, abs=1e-6)
    start = 0
    for name, parameter in module.named_parameters():  # each tensor by itself: none hides behind a larger one
        end = start + parameter.numel()
        # Samples of different classes cancel: of a mean of numbers up to 1 the rounding of 1 remains (2⁻²⁴).
        largest = max(expected[start:end].abs().max().item(), 2.0**-24 / 2e-5)
        error = (gradient[start:end] - expected[start:end]).abs().max().item()
        assert error <= 2e-5 * largest, f"{name}: {error / largest}"
        start = end


@st.composite
def encoders(draw: st.DrawFn, shape: tuple[int, int, int]) -> tuple[nn.Sequential, int]:
    """A random encoder for images of `shape` and the number of its features."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(0, 2))):
        kernel, padding = draw(st.sampled_from([1, 3, 5])), draw(st.integers(0, 3))
        if min(height, width) + 2 * padding < kernel:
            continue
        outputs, bias = draw(st.integers(1, 19)), draw(st.booleans())
        layers.append(nn.Conv2d(channels, outputs, kernel, padding=padding, bias=bias))
        channels, height, width = outputs, height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1
        order = draw(st.sampled_from(["none", "relu", "pool", "relu pool", "pool relu"]))
        if min(height, width) < 2:
            order = order.replace("pool", "").strip()
        for word in order.split():
            if word == "relu":
                layers.append(nn.ReLU())
            if word == "pool":
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
    layers.append(nn.Flatten())
    features = channels * height * width
    for _ in range(draw(st.integers(0, 2))):
        outputs = draw(st.integers(1, 21))
        layers.append(nn.Linear(features, outputs, bias=draw(st.booleans())))
        if draw(st.booleans()):
            layers.append(nn.ReLU())
        features = outputs
    return nn.Sequential(*layers), features


@SETTINGS
@given(data=st.data())
def test_gradients_of_random_networks_equal_torch(isa: str, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    primary, features = data.draw(encoders(shape))
    secondary, more = data.draw(encoders(shape)) if data.draw(st.booleans()) else (None, 0)
    classes = data.draw(st.integers(2, 11))
    module = TwoEncoders(primary, secondary, features + more, classes)
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    exact_weights(module, generator)
    batch = data.draw(st.integers(1, 100))
    values = generator.integers(-2, 3, size=(batch, *shape)).astype(np.float32)
    if data.draw(st.booleans()):
        values[:] = values.flat[0]  # all equal: every pooling window is a tie
    y = torch.from_numpy(generator.integers(0, classes, size=batch))
    weights = (
        torch.from_numpy(generator.random(batch, dtype=np.float32)) if data.draw(st.booleans()) else None
    )
    assert_same_gradient(module, torch.from_numpy(values), y, weights)


@pytest.mark.parametrize("batch", [1, 2, 7, 8, 9, 33, 100, 300])
@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_two_convolutions_with_pooling(isa: str, batch: int, padding: int) -> None:
    convolutions = [nn.Conv2d(2, 5, 3, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(5, 17, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    features = nn.Sequential(*convolutions)(torch.zeros(1, 2, 15, 14)).shape[1]
    module = TwoEncoders(nn.Sequential(*convolutions, nn.Linear(features, 9), nn.ReLU()), None, 9)
    generator = np.random.default_rng(batch)
    exact_weights(module, generator)
    x = torch.from_numpy(generator.integers(-2, 3, size=(batch, 2, 15, 14)).astype(np.float32))
    assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=batch)))


def test_wide_convolutions_use_every_register_tile(isa: str) -> None:
    # Runs of 1 to 24 vectors: each width of the backward tiles and both widths of the forward blocks.
    for channels in [1, 2, 5, 8, 11, 16, 24, 40, 64]:
        layers = [
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels + 1, 3),
            nn.ReLU(),
        ]
        module = TwoEncoders(nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten()), None, (channels + 1) * 6)
        generator = np.random.default_rng(channels)
        exact_weights(module, generator)
        x = torch.from_numpy(generator.integers(-1, 2, size=(5, 1, 6, 9)).astype(np.float32))
        assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=5)))


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 9])
def test_first_layers_with_pooling(isa: str, channels: int) -> None:
    # With 16 lanes and up to 8 channels each lane picks its live pixel; a batch ends inside a group.
    for outputs, padding, relu in [(16, 0, True), (32, 1, False), (17, 1, True)]:
        layers = [nn.Conv2d(channels, outputs, 3, padding=padding), nn.MaxPool2d(2)]
        layers += [nn.ReLU(), nn.Flatten()] if relu else [nn.Flatten()]
        features = nn.Sequential(*layers)(torch.zeros(1, channels, 9, 8)).shape[1]
        module = TwoEncoders(nn.Sequential(*layers), None, features)
        generator = np.random.default_rng(channels)
        exact_weights(module, generator)
        x = torch.from_numpy(generator.integers(-2, 3, size=(19, channels, 9, 8)).astype(np.float32))
        assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=19)))


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("channels", [16, 17, 32, 35])
def test_many_channels_with_pooling(isa: str, channels: int, padding: int) -> None:
    # Winograd's transformation in the forward pass, blocks of channels in the backward pass where they fill
    # vectors; groups of windows that begin and end inside a sample, and a last group that is smaller.
    layers = [nn.Conv2d(1, channels, 1), nn.ReLU(), nn.Conv2d(channels, 33, 3, padding=padding)]
    layers += [nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(33, 5, 3, padding=1), nn.ReLU(), nn.Flatten()]
    features = nn.Sequential(*layers)(torch.zeros(1, 1, 11, 8)).shape[1]
    module = TwoEncoders(nn.Sequential(*layers), None, features)
    generator = np.random.default_rng(channels)
    for batch in (1, 6, 41):
        exact_weights(module, generator)
        x = torch.from_numpy(generator.integers(-1, 2, size=(batch, 1, 11, 8)).astype(np.float32))
        assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=batch)))


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("channels", [16, 32])
def test_wide_layers_with_pooling(isa: str, channels: int, relu: bool) -> None:
    # Outputs fill vectors: with 16 lanes, windows stay in registers. More outputs than are computed at once,
    # and samples of which two, or more than a batch has, form a group.
    for padding, size in [(0, 14), (1, 5)]:
        layers = [nn.Conv2d(1, channels, 1), nn.ReLU(), nn.Conv2d(channels, 80, 3, padding=padding)]
        layers += [nn.MaxPool2d(2), *([nn.ReLU()] if relu else []), nn.Flatten()]
        features = nn.Sequential(*layers)(torch.zeros(1, 1, size, size + 1)).shape[1]
        module = TwoEncoders(nn.Sequential(*layers), None, features)
        generator = np.random.default_rng(channels)
        for batch in (1, 7):
            exact_weights(module, generator)
            x = torch.from_numpy(
                generator.integers(-1, 2, size=(batch, 1, size, size + 1)).astype(np.float32)
            )
            assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=batch)))


def test_a_sample_has_the_same_features_in_every_batch(isa: str) -> None:
    layers = [
        nn.Conv2d(3, 20, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 40, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    module = TwoEncoders(nn.Sequential(*layers), None, 40 * 4)
    for parameter in module.parameters():
        parameter.data = random_numbers(*parameter.shape)
    plan, x = native.describe(module, (3, 14, 14)), random_numbers(50, 3, 14, 14)
    together = native.forward(plan, flat(module), x)
    alone = torch.cat([native.forward(plan, flat(module), x[i : i + 1]) for i in range(len(x))])
    assert torch.equal(together, alone)


def test_one_dimensional_windows(isa: str) -> None:
    for channels, kernel in [(6, 3), (16, 3), (32, 5)]:  # the last two in blocks of channels
        layers = [nn.Conv1d(3, channels, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)]
        layers += [nn.Conv1d(channels, 9, kernel), nn.ReLU(), nn.MaxPool1d(3), nn.Flatten()]
        features = nn.Sequential(*layers)(torch.zeros(1, 3, 24)).shape[1]
        module = TwoEncoders(nn.Sequential(*layers, nn.Linear(features, 7), nn.ReLU()), None, 7)
        generator = np.random.default_rng(1)
        exact_weights(module, generator)
        x = torch.from_numpy(generator.integers(-2, 3, size=(23, 3, 24)).astype(np.float32))
        assert_same_gradient(module, x, torch.from_numpy(generator.integers(0, 10, size=23)))


def test_vectors_and_logistic_regression(isa: str) -> None:
    generator = np.random.default_rng(1)
    x = torch.from_numpy(generator.integers(-2, 3, size=(23, 13)).astype(np.float32))
    y = torch.from_numpy(generator.integers(0, 3, size=23))
    for module in [
        nn.Sequential(nn.Linear(13, 3)),
        nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 3)),
        nn.Sequential(nn.Sequential(nn.Linear(13, 8), nn.ReLU()), nn.Identity(), nn.Linear(8, 3)),
    ]:
        exact_weights(module, generator)
        assert_same_gradient(module, x, y)


def test_the_first_of_equal_maxima_gets_the_gradient(isa: str) -> None:
    # One 2 x 2 window of ones, a 1 x 1 kernel of weight 1: with pixels marked by a second channel of weight
    # 0, the gradient of that weight tells which pixel was taken.
    module = TwoEncoders(nn.Sequential(nn.Conv2d(2, 1, 1), nn.MaxPool2d(2), nn.Flatten()), None, 1, 2)
    module.primary[0].weight.data = torch.tensor([[[[1.0]], [[0.0]]]])
    module.primary[0].bias.data.zero_()
    module.head.weight.data = torch.tensor([[1.0], [0.0]])
    module.head.bias.data.zero_()
    x = torch.tensor([[[[1.0, 1.0], [1.0, 1.0]], [[10.0, 20.0], [30.0, 40.0]]]])
    plan = native.describe(module, (2, 2, 2))
    _, gradient = native.gradient(plan, flat(module), x, torch.tensor([1]))
    by_value, by_mark = gradient[:2].tolist()
    assert by_value != 0
    assert by_mark == pytest.approx(10 * by_value, rel=1e-6)
