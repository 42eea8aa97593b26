# SPDX-License-Identifier: Apache-2.0
"""Training by the kernels against torch.optim.SGD in float64, and what else training promises."""

from __future__ import annotations

import copy
import functools
import gzip
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from feddag import native
from feddag.native import library, trainer
from tests.native.networks import TwoEncoders, flat, initialised, lenet_encoder, small_encoder

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def shuffled(count: int, size: int, epochs: int, seed: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [rows for _ in range(epochs) for rows in torch.randperm(count, generator=generator).split(size)]


def train_by_torch(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    batches: list[Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    prefixes: tuple[str, ...] = ("",),
    weights: Tensor | None = None,
    proximal: tuple[float, Tensor] | None = None,
) -> tuple[Tensor, list[float]]:
    """The reference: torch.optim.SGD in float64."""
    exact = copy.deepcopy(module).double()
    chosen = [(name, p) for name, p in exact.named_parameters() if name.startswith(prefixes)]
    optimiser = torch.optim.SGD([p for _, p in chosen], lr=lr, momentum=momentum, weight_decay=weight_decay)
    center = None
    if proximal is not None:
        center = copy.deepcopy(exact)
        nn.utils.vector_to_parameters(proximal[1].double(), center.parameters())
    losses = []
    for rows in batches:
        each = nn.functional.cross_entropy(exact(x[rows].double()), y[rows], reduction="none")
        loss = (each if weights is None else each * weights[rows].double()).mean()
        losses.append(loss.item())
        if proximal is not None and center is not None:
            there = dict(center.named_parameters())
            loss = loss + proximal[0] / 2 * sum(((p - there[name].detach()) ** 2).sum() for name, p in chosen)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return flat(exact), losses


def relative(a: Tensor, b: Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def small_dual(dropout: float = 0.0) -> nn.Module:
    return initialised(TwoEncoders(small_encoder(dropout), small_encoder(dropout), 10), 3)


def samples(generator: torch.Generator, count: int = 70) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 2, 9, 8, generator=generator), torch.randint(
        0, 10, (count,), generator=generator
    )


# With this order of the samples no ReLU and no pooling window is decided by less than 20 times the error of
# float32: every correct implementation makes the choices of float64, on all of the way.
WIDE_MARGINS = 23
SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prefixes", [("",), ("primary.", "head."), ("secondary.",), ("head.",)])
def test_steps_equal_torch_sgd(
    isa: str, generator: torch.Generator, settings: dict[str, float], prefixes: tuple[str, ...]
) -> None:
    module = small_dual()
    x, y = samples(generator)
    batches = shuffled(len(x), 16, 3, seed=WIDE_MARGINS)
    result = native.train(
        native.describe(module, (2, 9, 8)), flat(module), x, y, batches, train_prefixes=prefixes, **settings
    )
    expected, losses = train_by_torch(module, x, y, batches, prefixes=prefixes, **settings)
    moved = expected - flat(module).double()
    assert relative(result.vector - flat(module), moved) < 2e-4
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)


def test_what_is_not_trained_keeps_its_bits(isa: str, generator: torch.Generator) -> None:
    module = small_dual()
    x, y = samples(generator)
    plan = native.describe(module, (2, 9, 8))
    before = flat(module)
    for prefixes in [("primary.", "head."), ("secondary.",)]:
        after = native.train(plan, before, x, y, shuffled(70, 16, 1), lr=0.1, train_prefixes=prefixes).vector
        for name, start, end in plan.places:
            assert torch.equal(before[start:end], after[start:end]) != name.startswith(prefixes), name


def test_weights_and_the_proximal_term_equal_torch(isa: str, generator: torch.Generator) -> None:
    module = small_dual()
    x, y = samples(generator)
    weights = torch.rand(len(x), generator=generator) * 2
    center = flat(initialised(copy.deepcopy(module), 9))
    batches = shuffled(len(x), 16, 2)
    rule = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.001}
    plan = native.describe(module, (2, 9, 8))
    result = native.train(
        plan, flat(module), x, y, batches, sample_weights=weights, proximal=(0.3, center), **rule
    )
    expected, _ = train_by_torch(module, x, y, batches, weights=weights, proximal=(0.3, center), **rule)
    assert relative(result.vector, expected) < 1e-5


def test_logits_and_features_equal_torch_in_evaluation_mode(isa: str, generator: torch.Generator) -> None:
    convolutions = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3))
    module = initialised(TwoEncoders(convolutions, small_encoder(0.5), 3 * 7 * 6 + 5), 3).eval()
    x, _ = samples(generator, 300)
    plan, vector = native.describe(module, (2, 9, 8)), flat(module)
    with torch.no_grad():
        torch.testing.assert_close(native.forward(plan, vector, x), module(x), rtol=1e-4, atol=1e-5)
        for name in ("primary", "secondary"):
            features = native.features(plan, vector, x, name)
            torch.testing.assert_close(features, getattr(module, name)(x), rtol=1e-5, atol=1e-6)
    assert native.forward(plan, vector, x[:0]).shape == (0, 10)


def test_bytes_are_looked_up_in_the_table(isa: str, generator: torch.Generator) -> None:
    module = small_dual()
    pixels = torch.randint(0, 256, (40, 2, 9, 8), generator=generator, dtype=torch.uint8)
    y = torch.randint(0, 10, (40,), generator=generator)
    mean, std = torch.tensor([[0.3], [0.5]]), torch.tensor([[0.2], [0.4]])
    table = (torch.arange(256) / 255 - mean) / std
    x = (pixels / 255 - mean[:, :, None]) / std[:, :, None]
    plan, batches = native.describe(module, (2, 9, 8)), shuffled(40, 16, 2)
    from_bytes = native.train(plan, flat(module), pixels, y, batches, lr=0.1, table=table)
    from_floats = native.train(plan, flat(module), x, y, batches, lr=0.1)
    assert torch.equal(from_bytes.vector, from_floats.vector)


def test_batches_larger_than_the_memory_are_summed_in_pieces(isa: str, generator: torch.Generator) -> None:
    module = small_dual()
    x, y = samples(generator, 200)
    batches = shuffled(200, 150, 2, seed=8)  # margins as above; 128 samples fit into the memory
    result = native.train(
        native.describe(module, (2, 9, 8)), flat(module), x, y, batches, lr=0.1, momentum=0.5
    )
    expected, losses = train_by_torch(module, x, y, batches, lr=0.1, momentum=0.5)
    assert relative(result.vector, expected) < 1e-5
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)


def test_threads_do_not_change_a_bit(isa: str, generator: torch.Generator) -> None:
    module = small_dual(dropout=0.5)
    clients = [samples(generator, count) for count in (30, 71, 12, 55, 64, 9)]
    plan = native.describe(module, (2, 9, 8))

    def train(number: int) -> Tensor:
        x, y = clients[number]
        batches = shuffled(len(x), 10, 5, seed=number)
        return native.train(
            plan, flat(module), x, y, batches, lr=0.1, momentum=0.5, dropout_seed=number
        ).vector

    one_by_one = [train(number) for number in range(6)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(train, range(6)))
    assert all(torch.equal(a, b) for a, b in zip(one_by_one, together, strict=True))


def test_divergence_shows_as_a_loss_which_is_not_a_number(isa: str, generator: torch.Generator) -> None:
    module = small_dual()
    x, y = samples(generator)
    result = native.train(
        native.describe(module, (2, 9, 8)), flat(module), x * 1e20, y, shuffled(70, 16, 3), lr=1e9
    )
    assert not np.isfinite(result.losses[-1])


# -- Ctrl-C


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_the_kernels_return_when_their_time_is_over(
    isa: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    module = small_dual(dropout=0.5)
    x, y = samples(generator)
    plan, batches = native.describe(module, (2, 9, 8)), shuffled(70, 16, 3)
    once = native.train(plan, flat(module), x, y, batches, lr=0.1, momentum=0.5)
    train_slice, done = library.load().feddag_train, []

    def counted(*arguments: object) -> int:
        done.append(train_slice(*arguments))
        return done[-1]

    monkeypatch.setattr(library.load(), "feddag_train", counted)
    monkeypatch.setattr(trainer, "SLICE_SECONDS", seconds)
    sliced = native.train(plan, flat(module), x, y, batches, lr=0.1, momentum=0.5)
    assert done == ([1] * len(batches) if seconds == 0 else [len(batches)])
    assert torch.equal(sliced.vector, once.vector)
    np.testing.assert_array_equal(sliced.losses, once.losses)


# The first slice is repeated for ever, so that only Ctrl-C can end the training. A background job of a shell
# ignores SIGINT and its children inherit that: the process restores Python's own handler.
ENDLESS = """
import signal, torch
from torch import nn
from feddag import native
from feddag.native import library
signal.signal(signal.SIGINT, signal.default_int_handler)
module = nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10))
vector = torch.cat([p.detach().flatten() for p in module.parameters()])
x, y = torch.zeros(100, 1, 28, 28), torch.zeros(100, dtype=torch.long)
train_slice = library.load().feddag_train
def endless(*arguments):
    assert train_slice(*arguments) > 0
    print("slice", flush=True)
    return 0
library.load().feddag_train = endless
native.train(native.describe(module, (1, 28, 28)), vector, x, y, [torch.arange(100)] * 10, lr=0.01)
"""


def test_ctrl_c_ends_training() -> None:
    if not native.available():
        pytest.skip(native.why_not())
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"slice\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=600)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in errors


# -- dropout


def test_the_generator_of_dropout_is_philox(isa: str) -> None:
    # Known answers published with Random123 for philox4x32-10.
    for counter, key, expected in [
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ]:
        start, out = np.array(counter, dtype=np.uint32), np.zeros(4, dtype=np.uint32)
        library.load().feddag_philox(start.ctypes.data, key, out.ctypes.data)
        assert out.tolist() == expected


def scales(seed: int, step: int, layer: int, place: int, probability: float, units: int) -> Tensor:
    out = np.zeros(units, dtype=np.float32)
    library.load().feddag_dropout_scales(seed, step, layer, place, probability, units, out.ctypes.data)
    return torch.from_numpy(out)


class Scaled(nn.Module):
    """Dropout with masks from outside, [batch][unit] in the kernels' order (channel last)."""

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            batch, channels, height, width = x.shape
            return x * self.factors.view(batch, height, width, channels).permute(0, 3, 1, 2)
        return x * self.factors


def test_gradients_under_dropout_equal_torch_with_the_same_masks(
    isa: str, generator: torch.Generator
) -> None:
    probability, batch = 0.4, 21
    module = initialised(TwoEncoders(small_encoder(probability), None, 5), 3)
    x, y = samples(generator, batch)
    loss, gradient = native.gradient(native.describe(module, (2, 9, 8)), flat(module), x, y, dropout_seed=77)
    exact = copy.deepcopy(module).double()
    for layer, (place, units) in enumerate([(3, 48), (7, 7)]):
        masks = torch.stack([scales(77, 0, layer, b, probability, units) for b in range(batch)])
        assert masks.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
        exact.primary[place] = Scaled(masks.double())
    expected = nn.functional.cross_entropy(exact(x.double()), y)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert relative(gradient, torch.cat([p.grad.flatten() for p in exact.parameters()])) < 1e-5


def test_dropout_drops_the_asked_share_and_keeps_the_mean() -> None:
    if not native.available():
        pytest.skip(native.why_not())
    for probability in (0.1, 0.5, 0.9):
        values = torch.cat([scales(5, step, 0, 3, probability, 1000) for step in range(100)])
        share = (values == 0).double().mean().item()
        assert share == pytest.approx(probability, abs=5 * (probability * (1 - probability) / 1e5) ** 0.5)
    assert scales(5, 0, 0, 0, 1.0, 50).eq(0).all()
    different = [scales(5, 0, 0, 0, 0.5, 64), scales(6, 0, 0, 0, 0.5, 64), scales(5, 1, 0, 0, 0.5, 64)]
    different += [scales(5, 0, 1, 0, 0.5, 64), scales(5, 0, 0, 1, 0.5, 64)]
    assert len({tuple(values.tolist()) for values in different}) == 5


# -- real data


@dataclass(frozen=True)
class Window:
    """Two consecutive batches on real data, computed by torch in float64 from float32 parameters."""

    start: Tensor  # the flat vector before, float32
    batches: list[Tensor]
    end: Tensor  # the flat vector after, float64
    losses: list[float]
    open_choices: int


RULE = {"lr": 0.01, "momentum": 0.5, "weight_decay": 1e-4}
TABLE = (torch.arange(256)[None] / 255 - 0.286) / 0.353
EPSILON = 2.0**-24  # the largest relative error of rounding to float32


@functools.cache
def fashion_mnist(count: int) -> tuple[Tensor, Tensor]:
    """The first training images, uint8, and their labels."""
    with gzip.open(FASHION_MNIST / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + count * 784)[16:], dtype=np.uint8).reshape(count, 1, 28, 28)
    with gzip.open(FASHION_MNIST / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count)[8:], dtype=np.uint8).astype(np.int64)
    return torch.from_numpy(pixels.copy()), torch.from_numpy(labels)


@functools.cache
def fashion_mnist_windows(seed: int, size: int, count: int) -> list[Window]:
    """The first `count` samples in windows of two batches, from initialisation `seed` on.

    Every window begins with the float64 parameters of the window before, rounded to float32: errors cannot
    accumulate, and a choice that float32 makes differently concerns one window only.
    """
    pixels, y = fashion_mnist(count)
    x = TABLE[0][pixels.long()]
    module = initialised(TwoEncoders(lenet_encoder(), None, 84), seed)
    batches = shuffled(count, size, 1)
    windows = []
    for pair in zip(batches[0::2], batches[1::2], strict=False):
        start = flat(module)
        end, losses = train_by_torch(module, x, y, list(pair), **RULE)
        nn.utils.vector_to_parameters(end.float(), module.parameters())
        between = copy.deepcopy(module)
        nn.utils.vector_to_parameters(start, between.parameters())
        open_choices = count_open_choices(between, x[pair[0]])
        after_one, _ = train_by_torch(between, x, y, [pair[0]], **RULE)
        nn.utils.vector_to_parameters(after_one.float(), between.parameters())
        open_choices += count_open_choices(between, x[pair[1]])
        windows.append(Window(start, list(pair), end, losses, open_choices))
    return windows


def count_open_choices(module: nn.Module, x: Tensor) -> int:
    """ReLU and 2 x 2 pooling choices of the primary encoder that rounding to float32 can turn around.

    Yardstick: the largest error of torch's own float32 in the same layer. A correct float32 implementation
    with another order of summation may make errors of twice that size.
    """
    count = 0
    rough, exact = x, x.double()
    with torch.no_grad():
        for rough_layer, layer in zip(module.primary, copy.deepcopy(module.primary).double(), strict=True):
            rough, exact = rough_layer(rough), layer(exact)
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                continue
            error = 2 * (rough - exact).abs().max()
            values = exact
            if isinstance(layer, nn.Conv2d):
                windows = exact.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2)
                values, second = windows.topk(2).values.unbind(-1)
                lead = (values - second)[values > -error]
                # Equal patches of the background give equal sums: every winner has the same gradient.
                count += int(((lead > 1e-12) & (lead < 2 * error)).sum())
            count += int((values.abs() < error).sum())
    return count


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="Fashion-MNIST is not installed on this machine")
@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("size", "count"), [(64, 512), (10, 300), (3, 180)])
def test_steps_on_fashion_mnist_end_where_float64_ends(isa: str, seed: int, size: int, count: int) -> None:
    """Exact up to rounding; an open choice may turn around, which changes the gradient of one sample."""
    pixels, y = fashion_mnist(count)
    module = TwoEncoders(lenet_encoder(), None, 84)
    plan = native.describe(module, (1, 28, 28))
    windows = fashion_mnist_windows(seed, size, count)
    for window in windows:
        result = native.train(plan, window.start, pixels, y, window.batches, table=TABLE, **RULE)
        error = (result.vector.double() - window.end).norm()
        allowed = 2 * EPSILON * window.end.norm()  # each of two steps rounds the parameters
        if window.open_choices:
            allowed += (window.end - window.start.double()).norm() / (2 * size)
        assert error <= allowed
        # The loss is continuous: a choice that turns around shows only in the losses after its step.
        first, second = result.losses
        assert first == pytest.approx(window.losses[0], rel=1e-6)
        assert second == pytest.approx(window.losses[1], rel=1e-3 if window.open_choices else 1e-6)
    if size == 3:  # few choices per batch: most windows must be exact, whatever rounding does
        assert sum(not window.open_choices for window in windows) >= len(windows) / 2
