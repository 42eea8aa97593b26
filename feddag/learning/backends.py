# SPDX-License-Identifier: Apache-2.0
"""Selects what trains and evaluates: the C++ kernels of feddag.native if they can, else PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from feddag import native
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.losses import Loss, cross_entropy
from feddag.learning.modules import HOST, check_layout, device_of


@dataclass(frozen=True)
class Backend:
    """The selected backend: the kernels if there is a `plan` for them, else PyTorch, and the `reason`."""

    plan: native.NetworkPlan | None
    reason: str = ""

    def __str__(self) -> str:
        return f"native ({native.isa()})" if self.plan else f"torch: {self.reason}"


def select_backend(
    backend: str,
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    loss: Loss = cross_entropy,
    train: tuple[str, ...] = ("",),
    optimiser: str = "sgd",
    corrected: bool = False,
) -> Backend:
    """Select the backend that the settings name; `auto` means the kernels if they can, else PyTorch.

    `native` is an error when the kernels cannot compute this network, loss, selection of parameters or
    optimiser, or a `corrected` gradient.
    """
    if backend == "torch":
        return Backend(None, "as the settings say")
    reason = native.why_not()
    if device_of(module) != HOST:
        reason = f"the device {device_of(module)}"
    if not reason and getattr(module, "precision", torch.float32) != torch.float32:
        reason = "engine.precision = 'bfloat16'"
    if not reason and getattr(module, "compiles", False):
        reason = "engine.compile = true"
    if not reason and loss is not cross_entropy:
        reason = f"the loss {getattr(loss, '__name__', loss)} is not cross-entropy"
    if not reason and optimiser != "sgd":
        reason = f"the optimiser {optimiser}"
    if not reason and corrected:
        reason = "a correction of the gradient"
    if not reason and not hasattr(module, "encoder_names"):  # only the networks of feddag.models have it
        reason = f"{type(module).__name__} has a forward pass of its own"
    if not reason:
        try:
            plan = native.describe(module, input_shape)
            plan.trained(train)
            return Backend(plan)
        except native.Unsupported as error:
            reason = str(error)
    if backend == "native":
        raise InvalidInput(f"engine.backend = 'native' is impossible here: {reason}")
    return Backend(None, reason)


def native_sgd(
    plan: native.NetworkPlan,
    module: nn.Module,
    params: Params,
    examples: Examples,
    batches: Sequence[tuple[int, Tensor]],
    local: LocalTraining,
    train: tuple[str, ...],
    sample_weights: Tensor | None,
    proximal: tuple[float, Params] | None,
    seed: Seed,
) -> tuple[Params, list[float]]:
    """SGD with the kernels: the trained parameters, and the loss of each batch."""
    check_layout(module, params)
    x, table = _stored(examples)
    trained = native.train(
        plan,
        params.vector,
        x,
        examples.labels,
        [rows for _, rows in batches],
        lr=local.lr,
        momentum=local.momentum,
        weight_decay=local.weight_decay,
        train_prefixes=train,
        table=table,
        sample_weights=sample_weights,
        proximal=(proximal[0], proximal[1].vector) if proximal else None,
        dropout_seed=(seed / "dropout").integer(),
    )
    return params.like(trained.vector), trained.losses.tolist()


def native_logits(plan: native.NetworkPlan, module: nn.Module, params: Params, examples: Examples) -> Tensor:
    """Outputs of a model in evaluation mode, (n, classes)."""
    check_layout(module, params)
    x, table = _stored(examples)
    return native.forward(plan, params.vector, x, table=table)


def _stored(examples: Examples) -> tuple[Tensor, Tensor | None]:
    """Samples for the kernels; stored bytes stay bytes, with a table of network inputs per channel."""
    if examples.x.dtype != "uint8":
        return examples.inputs(), None
    channels = examples.x.shape[1]
    values = torch.arange(256, dtype=torch.uint8).view(256, 1).expand(256, channels)
    return examples.stored_x, examples.scaling(values).T.contiguous()
