# SPDX-License-Identifier: Apache-2.0
"""Convolution and pooling over patches is the same function as the layers one after the other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from feddag.models.encoders import lenet
from feddag.models.patches import LargestOfFour, PatchStack, shifted


def stack(channels: int, size: int, padding: int) -> PatchStack:
    torch.manual_seed(0)  # noqa: TID251 — a test's own weights
    layers = [nn.Conv2d(channels, 4, size, padding=padding), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 5, 2)]
    return PatchStack(*layers, nn.ReLU(), nn.Flatten())


def one_by_one(layers: PatchStack, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)
    return x


def gradients(outputs: torch.Tensor, wanted: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    # Its own direction for every output, so that no error can cancel.
    direction = torch.linspace(-1, 1, outputs.numel()).view_as(outputs)
    return torch.autograd.grad(outputs, wanted, direction)


@settings(deadline=None)
@given(
    channels=st.integers(1, 3),
    size=st.integers(1, 5),
    padding=st.integers(0, 2),
    height=st.integers(9, 14),
    width=st.integers(9, 14),
)
def test_features_and_gradients_are_those_of_the_layers(channels, size, padding, height, width):
    layers = stack(channels, size, padding)
    x = torch.randn(3, channels, height, width, generator=torch.Generator().manual_seed(1))
    x.requires_grad_()
    wanted = [x, *layers.parameters()]
    expected, found = one_by_one(layers, x), layers(x)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(gradients(found, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_prepared_images_give_the_same_bits():
    encoder = lenet((1, 28, 28))
    x = torch.rand(7, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    prepared = encoder.prepare_once(x)
    assert prepared.shape == (7, 36, 14, 14, 1)
    assert torch.equal(encoder(prepared), encoder(x))
    picked = torch.tensor([5, 0, 3])
    assert torch.equal(encoder(prepared[picked]), encoder(x[picked]))


def test_of_equal_values_the_first_gets_the_gradient_as_in_max_pooling():
    generator = torch.Generator().manual_seed(3)
    windows = torch.randint(0, 3, (50, 4, 6), generator=generator).float().requires_grad_()
    images = windows.detach().view(50, 2, 2, 6).permute(0, 3, 1, 2).clone().requires_grad_()
    direction = torch.randn(50, 6, generator=generator)
    largest = LargestOfFour.apply(windows)
    pooled = nn.functional.max_pool2d(images, 2).view(50, 6)
    assert torch.equal(largest, pooled)
    (mine,) = torch.autograd.grad(largest, windows, direction)
    (theirs,) = torch.autograd.grad(pooled, images, direction)
    assert torch.equal(mine.view(50, 2, 2, 6).permute(0, 3, 1, 2), theirs)


def test_black_background_where_all_four_are_equal_gives_the_layers_gradient():
    layers = stack(1, 5, 2)
    x = torch.full((2, 1, 12, 12), -1.0)
    x[:, :, 4:7, 5:8] = 0.5
    wanted = list(layers.parameters())
    for mine, theirs in zip(
        gradients(layers(x), wanted), gradients(one_by_one(layers, x), wanted), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_second_derivatives_are_those_of_the_layers():
    layers = stack(1, 3, 1).double()
    x = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    x.requires_grad_()
    slopes = []
    for outputs in (layers(x), one_by_one(layers, x)):
        (slope,) = torch.autograd.grad((outputs**2).sum(), x, create_graph=True)
        slopes.append(torch.autograd.grad((slope**2).sum(), list(layers.parameters())))
    for mine, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_shifted_kernel_stands_where_it_should(size):
    kernels = torch.arange(1.0, 2 * size * size + 1).view(2, 1, size, size)
    found = shifted(kernels).view(2, 2, 2, size + 1, size + 1)
    for down in (0, 1):
        for right in (0, 1):
            block = found[:, down, right, down : down + size, right : right + size]
            assert torch.equal(block, kernels[:, 0])
            assert found[:, down, right].sum() == kernels.sum(dim=(1, 2, 3)).sum()
