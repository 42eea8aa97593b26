# SPDX-License-Identifier: Apache-2.0
"""Trains and evaluates a described network on the native kernels; semantics are those of torch.optim.SGD."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from feddag.native.library import Inputs, NetworkSpec, StageSpec, Task, isa, isa_number, load
from feddag.native.plan import Plan

ROWS = 128  # samples in memory at once; larger batches are summed in pieces
SLICE_SECONDS = 0.2  # the kernels return to Python this often: Ctrl-C, deadlines, should_stop


class Stopped(Exception):
    """`should_stop` said so or the deadline passed before the last batch."""


@dataclass(frozen=True)
class Trained:
    """Result of `train`: the new flat vector and each batch's mean loss before its step."""

    vector: Tensor
    losses: np.ndarray


def train(
    plan: Plan,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    batches: Sequence[Tensor | np.ndarray],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    train_prefixes: tuple[str, ...] = ("",),
    table: Tensor | None = None,
    frozen_features: Mapping[str, Tensor] | None = None,
    sample_weights: Tensor | None = None,
    proximal: tuple[float, Tensor] | None = None,
    dropout_seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
    deadline: float | None = None,
) -> Trained:
    """SGD with a fresh optimiser over `batches` (sample numbers); the rest is frozen, in eval mode.

    x is float32, or uint8 together with `table`, the network input of each channel's 256 values. Features of
    frozen encoders are computed once, unless given. `deadline` is a time.monotonic().
    """
    frozen = dict(frozen_features or {})
    branches, _ = plan.trained(train_prefixes)
    for branch, trained in zip(plan.branches, branches, strict=True):
        if not trained and branch.stages and branch.name not in frozen:
            frozen[branch.name] = features(plan, vector, x, branch.name, table=table)
    rows = min(ROWS, max((len(batch) for batch in batches), default=1))
    with _network(plan, vector, rows, training=True) as network:
        task, keep = _task(
            plan,
            y,
            batches,
            train_prefixes,
            sample_weights,
            proximal,
            dropout_seed,
            len(x),
            lr,
            momentum,
            weight_decay,
        )
        inputs, keep_inputs = _inputs(plan, x, table, frozen)
        losses = np.zeros(len(batches))
        done = 0
        while done < len(batches):
            if (should_stop is not None and should_stop()) or (
                deadline is not None and time.monotonic() >= deadline
            ):
                raise Stopped(f"training was stopped after {done} of {len(batches)} batches")
            ran = load().feddag_train(
                network, inputs, task, done, len(batches), SLICE_SECONDS, losses.ctypes.data
            )
            if ran < 0:
                raise MemoryError("the native trainer found not enough memory")
            done += ran
        del keep, keep_inputs
        result = np.empty(plan.size, dtype=np.float32)
        result[:] = _floats(vector)
        load().feddag_unpack(network, result.ctypes.data)
    return Trained(torch.from_numpy(result), losses)


def gradient(
    plan: Plan,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    train_prefixes: tuple[str, ...] = ("",),
    table: Tensor | None = None,
    frozen_features: Mapping[str, Tensor] | None = None,
    sample_weights: Tensor | None = None,
    dropout_seed: int = 0,
) -> tuple[float, Tensor]:
    """Mean loss of all samples as one batch, and its gradient (zero where nothing is trained)."""
    batches = [np.arange(len(x))]
    with _network(plan, vector, min(ROWS, len(x)), training=True) as network:
        task, keep = _task(
            plan, y, batches, train_prefixes, sample_weights, None, dropout_seed, len(x), 0.0, 0.0, 0.0
        )
        inputs, keep_inputs = _inputs(plan, x, table, frozen_features or {})
        result = np.zeros(plan.size, dtype=np.float32)
        loss = load().feddag_gradient(network, inputs, task, 0, result.ctypes.data)
        del keep, keep_inputs
    return loss, torch.from_numpy(result)


def forward(
    plan: Plan,
    vector: Tensor,
    x: Tensor,
    *,
    table: Tensor | None = None,
    frozen_features: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Logits of all samples in eval mode; encoders whose features are given are not run."""
    return _forward(plan, vector, x, -1, plan.classes, table, frozen_features or {})


def features(
    plan: Plan,
    vector: Tensor,
    x: Tensor,
    encoder: str,
    *,
    table: Tensor | None = None,
) -> Tensor:
    """Features which one encoder gives all samples, in eval mode."""
    which = plan.branch(encoder)
    return _forward(plan, vector, x, which, plan.branches[which].features, table, {})


def losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each sample."""
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def predictions(logits: Tensor) -> Tensor:
    """Most likely class of each sample (the first of equal ones)."""
    return logits.argmax(1)


# -- to C++ -----------------------------------------------------------------------------------------------


def _forward(
    plan: Plan,
    vector: Tensor,
    x: Tensor,
    what: int,
    width: int,
    table: Tensor | None,
    frozen: Mapping[str, Tensor],
) -> Tensor:
    """Runs the samples in slices, so that Ctrl-C is heard."""
    out = np.empty((len(x), width), dtype=np.float32)
    inputs, keep = _inputs(plan, x, table, frozen)
    with _network(plan, vector, max(1, min(ROWS, len(x))), training=False) as network:
        for first in range(0, len(x), 8 * ROWS):
            count = min(8 * ROWS, len(x) - first)
            load().feddag_forward(network, inputs, first, count, what, out[first:].ctypes.data)
    del keep
    return torch.from_numpy(out)


@contextmanager
def _network(plan: Plan, vector: Tensor, rows: int, training: bool) -> Iterator[ctypes.c_void_p]:
    """A C++ network holding `vector`; its memory is given back at the end."""
    flat = _floats(vector)
    if flat.shape != (plan.size,):
        raise ValueError(f"the flat vector has shape {flat.shape}: expected ({plan.size},)")
    stages = [(number, stage) for number, branch in enumerate(plan.branches) for stage in branch.stages]
    specs = (StageSpec * max(1, len(stages)))(
        *(
            StageSpec(
                number,
                stage.convolution,
                stage.outputs,
                *stage.kernel,
                *stage.padding,
                *stage.pool,
                stage.relu,
                stage.weight,
                stage.bias,
                stage.dropout,
            )
            for number, stage in stages
        )
    )
    spec = NetworkSpec(
        *plan.input_shape,
        len(plan.branches),
        len(stages),
        plan.classes,
        plan.head.weight,
        plan.head.bias,
        plan.size,
    )
    handle = load().feddag_open(spec, specs, isa_number(isa()), rows, training)
    if not handle:
        raise MemoryError("the native trainer found not enough memory")
    try:
        load().feddag_pack(handle, flat.ctypes.data)
        yield handle
    finally:
        load().feddag_close(handle)


def _floats(values: Tensor | np.ndarray) -> np.ndarray:
    """A contiguous float32 array, without a copy where it is one already."""
    return np.ascontiguousarray(values.detach() if isinstance(values, Tensor) else values, dtype=np.float32)


def _inputs(
    plan: Plan,
    x: Tensor,
    table: Tensor | None,
    frozen: Mapping[str, Tensor],
) -> tuple[Inputs, list[object]]:
    """The samples for C++, and the arrays which must stay alive meanwhile."""
    array = np.asarray(x.detach() if isinstance(x, Tensor) else x)
    channels, height, width = plan.input_shape
    if array.size != len(array) * channels * height * width:
        raise ValueError(f"samples of shape {array.shape[1:]}: expected {plan.input_shape}")
    inputs = Inputs()
    keep: list[object] = []
    if array.dtype == np.uint8:
        if table is None or tuple(table.shape) != (channels, 256):
            raise ValueError(
                f"uint8 samples need a table of shape ({channels}, 256): the input of each value"
            )
        values = _floats(table)
        array = np.ascontiguousarray(array)
        inputs.bytes, inputs.table = 1, values.ctypes.data
        keep.append(values)
    else:
        array = np.ascontiguousarray(array, dtype=np.float32)
    inputs.x = array.ctypes.data
    keep.append(array)
    for name, known in frozen.items():
        which = plan.branch(name)
        given = _floats(known)
        if given.shape != (len(array), plan.branches[which].features):
            expected = (len(array), plan.branches[which].features)
            raise ValueError(f"frozen features of {name!r} have shape {given.shape}: expected {expected}")
        inputs.features[which] = given.ctypes.data
        keep.append(given)
    return inputs, keep


def _task(
    plan: Plan,
    y: Tensor,
    batches: Sequence[Tensor | np.ndarray],
    train_prefixes: tuple[str, ...],
    sample_weights: Tensor | None,
    proximal: tuple[float, Tensor] | None,
    dropout_seed: int,
    count: int,
    lr: float,
    momentum: float,
    weight_decay: float,
) -> tuple[Task, list[object]]:
    """What to train on for C++, checked, and the arrays which must stay alive meanwhile."""
    labels = np.ascontiguousarray(np.asarray(y), dtype=np.int64)
    if labels.shape != (count,):
        raise ValueError(f"labels have shape {labels.shape}: expected ({count},)")
    if count and not (labels.min() >= 0 and labels.max() < plan.classes):
        raise ValueError(f"labels from {labels.min()} to {labels.max()}: expected 0 to {plan.classes - 1}")
    parts = [np.asarray(batch, dtype=np.int64) for batch in batches]
    if any(len(part) == 0 for part in parts):
        raise ValueError("a batch has no samples")
    samples = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    if len(samples) and not (samples.min() >= 0 and samples.max() < count):
        raise ValueError(
            f"batches name samples {samples.min()} to {samples.max()}: expected 0 to {count - 1}"
        )
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    task = Task(lr=lr, momentum=momentum, weight_decay=weight_decay, seed=dropout_seed % 2**64)
    task.samples, task.starts, task.labels = samples.ctypes.data, starts.ctypes.data, labels.ctypes.data
    keep: list[object] = [samples, starts, labels]
    if sample_weights is not None:
        weights = _floats(sample_weights)
        if weights.shape != (count,):
            raise ValueError(f"sample weights have shape {weights.shape}: expected ({count},)")
        task.weights = weights.ctypes.data
        keep.append(weights)
    if proximal is not None:
        center = _floats(proximal[1])
        if center.shape != (plan.size,):
            raise ValueError(f"the proximal term's center has shape {center.shape}: expected ({plan.size},)")
        task.proximal, task.center = proximal[0], center.ctypes.data
        keep.append(center)
    trained_branches, trained_head = plan.trained(train_prefixes)
    for number, trained in enumerate(trained_branches):
        task.train_branch[number] = trained
    task.train_head = trained_head
    return task, keep
