# SPDX-License-Identifier: Apache-2.0
"""Local training that hides every single sample: DP-SGD (Abadi et al., 2016) inside the one training loop.

Each step draws a batch in which every sample is with probability q = B / n, clips the gradient of each sample
to norm C, adds Gaussian noise of standard deviation σ C to their sum, and divides by B. What one training
costs depends on σ, q and the number of steps; the client's guard accounts for it before the first step.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.task import Client
from feddag.learning.modules import Batch, LoadedNetwork, plain_layers

CHUNK = 64  # samples whose gradients are held at the same time


def poisson_batches(n: int, rate: float, steps: int, generator: np.random.Generator) -> Iterator[Tensor]:
    """Row numbers of each batch: every sample is in it with probability `rate`, whatever the others do."""
    for _ in range(steps):
        yield torch.from_numpy(np.flatnonzero(generator.random(n) < rate))


def noisy_gradients(
    model: LoadedNetwork, client: Client, local: LocalTraining, known: dict[str, Tensor], part: str
) -> Iterator[list[Tensor]]:
    """One protected gradient per step, in the form that an optimiser's step takes."""
    assert client.privacy is not None
    check_network(model.module)
    rate, steps, clip, deviation, noise = client.privacy.training(client, local, part)
    # Two generators: which samples are drawn must not depend on the noise.
    batches, gaussian = noise.generator("batches"), noise.generator("gradient")
    per_sample = sample_gradients(model)
    examples = model.placed(client.train)
    for rows in poisson_batches(len(client.train), rate, steps, batches):
        client.work.samples += len(rows)
        total = torch.zeros(sum(span.stop - span.start for span in model.spans), device=model.device)
        for chunk in rows.to(model.device).split(CHUNK):
            batch = Batch(examples, chunk, {name: f[chunk] for name, f in known.items()})
            if len(chunk):
                total += clipped(per_sample(batch), clip).sum(dim=0)
        total += (
            torch.from_numpy(gaussian.normal(scale=deviation * clip, size=len(total)))
            .float()
            .to(model.device)
        )
        yield list((total / local.batch_size).split([span.stop - span.start for span in model.spans]))


def clipped(gradients_BD: Tensor, clip: float) -> Tensor:
    """Every row with norm at most `clip`."""
    norms_B = gradients_BD.norm(dim=1, keepdim=True)
    return gradients_BD * (clip / norms_B.clamp(min=clip))


def sample_gradients(model: LoadedNetwork) -> Callable[[Batch], Tensor]:
    """A function from a batch to the gradient of each sample's cross-entropy, one row per sample."""
    module = plain_layers(model.module)
    names = [name for name, p in model.module.named_parameters() if p.requires_grad]

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, known: dict[str, Tensor]) -> Tensor:
        one = {name: features[None] for name, features in known.items()}
        logits = functional_call(module, weights, (x[None], one))
        return torch.nn.functional.cross_entropy(logits, y[None])

    one_gradient = vmap(grad(loss), in_dims=(None, 0, 0, 0), randomness="different")

    def gradients(batch: Batch) -> Tensor:
        current = dict(model.module.named_parameters())
        weights = {name: current[name].detach() for name in names}
        found = one_gradient(weights, batch.x, batch.y, dict(batch.known))
        parts = [found[name] for name in names]
        flat = [(g.permute(0, 1, 3, 4, 2) if g.dim() == 5 else g).reshape(len(batch), -1) for g in parts]
        return torch.cat(flat, dim=1)

    return gradients


def check_network(module: nn.Module) -> None:
    """Refuse layers that mix samples: a sample's gradient would depend on the others."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise InvalidInput(
                f"noisy gradients cannot hide single samples in a network with {type(layer).__name__}, which "
                "mixes the samples of a batch: use a network with GroupNorm or without normalisation"
            )


def check_plain(**features: Any) -> None:
    """Refuse, by name, what the protected training does not know."""
    for name, wanted in features.items():
        if wanted:
            raise InvalidInput(
                f"{name.replace('_', ' ')} would use samples in a way that noisy gradients do not protect: "
                "switch it off, or use privacy.update.mode = 'secagg'"
            )
