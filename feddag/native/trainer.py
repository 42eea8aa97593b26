# SPDX-License-Identifier: Apache-2.0
"""Trains and evaluates a network with the native kernels; a step is the step of torch.optim.SGD."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from feddag.native.library import Inputs, NetworkSpec, StageSpec, TrainingJob, isa, isa_number, load
from feddag.native.plan import NetworkPlan

ROWS = 128  # samples in memory at the same time; the gradients of larger batches are summed in pieces
# Python handles Ctrl-C only between two calls of the kernels: a call ends after the first batch that
# finishes later than this.
SLICE_SECONDS = 0.2


@dataclass(frozen=True)
class Trained:
    """Result of `train`: the new flat vector, and the mean loss of each batch before its step."""

    vector: Tensor
    losses: np.ndarray


def train(
    plan: NetworkPlan,
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
    sample_weights: Tensor | None = None,
    proximal: tuple[float, Tensor] | None = None,
    dropout_seed: int = 0,
) -> Trained:
    """One SGD step per batch, from zero momentum. `batches` holds sample numbers.

    Only parameters whose names begin with one of `train_prefixes` change. The other encoders are in
    evaluation mode, and their features are computed once per call.
    x is float32, or uint8 with `table`: row c holds the network inputs for the 256 values of channel c.
    """
    branches, _ = plan.trained(train_prefixes)
    frozen = {
        branch.name: features(plan, vector, x, branch.name, table=table)
        for branch, trained in zip(plan.branches, branches, strict=True)
        if not trained and branch.stages
    }
    rows = min(ROWS, max((len(batch) for batch in batches), default=1))
    with _network(plan, vector, rows, training=True) as network:
        job, keep = _training_job(
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
            ran = load().feddag_train(
                network, inputs, job, done, len(batches), SLICE_SECONDS, losses.ctypes.data
            )
            if ran < 0:
                raise MemoryError("there is not enough memory for the native trainer")
            done += ran
        del keep, keep_inputs
        result = np.empty(plan.size, dtype=np.float32)
        result[:] = _floats(vector)
        load().feddag_unpack(network, result.ctypes.data)
    return Trained(torch.from_numpy(result), losses)


def gradient(
    plan: NetworkPlan,
    vector: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    train_prefixes: tuple[str, ...] = ("",),
    table: Tensor | None = None,
    sample_weights: Tensor | None = None,
    dropout_seed: int = 0,
) -> tuple[float, Tensor]:
    """Mean loss of all samples as one batch, and its gradient (zero for parameters that are not trained).

    `train` does not need this function. It is public so that every kernel can be checked against another
    implementation without the rounding of an SGD step.
    """
    batches = [np.arange(len(x))]
    with _network(plan, vector, min(ROWS, len(x)), training=True) as network:
        job, keep = _training_job(
            plan, y, batches, train_prefixes, sample_weights, None, dropout_seed, len(x), 0.0, 0.0, 0.0
        )
        inputs, keep_inputs = _inputs(plan, x, table, {})
        result = np.zeros(plan.size, dtype=np.float32)
        loss = load().feddag_gradient(network, inputs, job, 0, result.ctypes.data)
        del keep, keep_inputs
    return loss, torch.from_numpy(result)


def forward(
    plan: NetworkPlan,
    vector: Tensor,
    x: Tensor,
    *,
    table: Tensor | None = None,
) -> Tensor:
    """Logits of all samples in evaluation mode."""
    return _forward(plan, vector, x, -1, plan.classes, table)


def features(
    plan: NetworkPlan,
    vector: Tensor,
    x: Tensor,
    encoder: str,
    *,
    table: Tensor | None = None,
) -> Tensor:
    """Outputs of one encoder for all samples, in evaluation mode."""
    which = plan.branch(encoder)
    return _forward(plan, vector, x, which, plan.branches[which].features, table)


# -- calls to C++ -----------------------------------------------------------------------------------------


def _forward(
    plan: NetworkPlan,
    vector: Tensor,
    x: Tensor,
    what: int,
    width: int,
    table: Tensor | None,
) -> Tensor:
    """Run `ROWS * 8` samples per call of the kernels: Python handles Ctrl-C between the calls."""
    out = np.empty((len(x), width), dtype=np.float32)
    inputs, keep = _inputs(plan, x, table, {})
    with _network(plan, vector, max(1, min(ROWS, len(x))), training=False) as network:
        for first in range(0, len(x), 8 * ROWS):
            count = min(8 * ROWS, len(x) - first)
            load().feddag_forward(network, inputs, first, count, what, out[first:].ctypes.data)
    del keep
    return torch.from_numpy(out)


@contextmanager
def _network(plan: NetworkPlan, vector: Tensor, rows: int, training: bool) -> Iterator[ctypes.c_void_p]:
    """A C++ network with the parameters `vector`; its memory is freed at the end of the block."""
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
        raise MemoryError("there is not enough memory for the native trainer")
    try:
        load().feddag_pack(handle, flat.ctypes.data)
        yield handle
    finally:
        load().feddag_close(handle)


def _floats(values: Tensor | np.ndarray) -> np.ndarray:
    """A contiguous float32 array; a copy is made only when the values are something else."""
    return np.ascontiguousarray(values.detach() if isinstance(values, Tensor) else values, dtype=np.float32)


def _inputs(
    plan: NetworkPlan,
    x: Tensor,
    table: Tensor | None,
    frozen: Mapping[str, Tensor],
) -> tuple[Inputs, list[object]]:
    """The samples for C++, and the arrays that must stay alive while C++ reads them."""
    array = np.asarray(x.detach() if isinstance(x, Tensor) else x)
    channels, height, width = plan.input_shape
    if array.size != len(array) * channels * height * width:
        raise ValueError(f"samples of shape {array.shape[1:]}: expected {plan.input_shape}")
    inputs = Inputs()
    keep: list[object] = []
    if array.dtype == np.uint8:
        if table is None or tuple(table.shape) != (channels, 256):
            raise ValueError(
                f"uint8 samples need a table of shape ({channels}, 256): the network input of each value"
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
        values = _floats(known)
        inputs.features[plan.branch(name)] = values.ctypes.data
        keep.append(values)
    return inputs, keep


def _training_job(
    plan: NetworkPlan,
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
) -> tuple[TrainingJob, list[object]]:
    """The training job for C++, checked, and the arrays that must stay alive while C++ reads them."""
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
    job = TrainingJob(lr=lr, momentum=momentum, weight_decay=weight_decay, seed=dropout_seed % 2**64)
    job.samples, job.starts, job.labels = samples.ctypes.data, starts.ctypes.data, labels.ctypes.data
    keep: list[object] = [samples, starts, labels]
    if sample_weights is not None:
        weights = _floats(sample_weights)
        if weights.shape != (count,):
            raise ValueError(f"sample weights have shape {weights.shape}: expected ({count},)")
        job.weights = weights.ctypes.data
        keep.append(weights)
    if proximal is not None:
        center = _floats(proximal[1])
        if center.shape != (plan.size,):
            raise ValueError(f"the proximal term's center has shape {center.shape}: expected ({plan.size},)")
        job.proximal, job.center = proximal[0], center.ctypes.data
        keep.append(center)
    trained_branches, trained_head = plan.trained(train_prefixes)
    for number, trained in enumerate(trained_branches):
        job.train_branch[number] = trained
    job.train_head = trained_head
    return job, keep
