# SPDX-License-Identifier: Apache-2.0
"""Fusing two normalised distance matrices into one by learned weights (Eqs. 7 and 8 of the paper).

Entropy of a softmax row falls when the row's spread grows, and the spread is convex in the weight:
learned weights end in the corners 0 and 1. It selects a view for each item; it does not blend.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from feddag.clustering.arrays import FloatArray, row_blocks

PairRule = Literal["symmetric", "row"]

MLP_LIMIT = 300_000_000
"""Weights of the gate's first layer (2 N^2 x hidden) beyond which it is refused: 1.2 GB."""


@dataclass(frozen=True)
class Entropy:
    """How the entropy of Eq. 8 is measured and how weights combine."""

    rule: PairRule = "symmetric"
    """symmetric: w_ij = (w_i + w_j) / 2, free of the order of items. row: w_i for i < j, as in Eq. 7."""
    sign: int = 1
    """+1: softmax of distances, as Eq. 8 is written. -1: softmax of -distances, near items weigh most."""
    temperature: float = 1.0
    diagonal: bool = True
    """Whether an item's zero distance to itself is part of its softmax."""

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        if self.rule not in ("symmetric", "row"):
            raise ValueError(f"fusion rule must be symmetric or row, not {self.rule!r}")
        if self.sign not in (-1, 1) or self.temperature <= 0:
            raise ValueError("fusion sign must be 1 or -1 and its temperature positive")


def fuse(
    data_NN: FloatArray, gradient_NN: FloatArray, weights_N: FloatArray, rule: PairRule = "symmetric"
) -> FloatArray:
    """A of Eq. 7: w G + (1 - w) V, symmetric, zero on the diagonal."""
    fused_NN = np.empty_like(data_NN)
    for rows in row_blocks(len(data_NN)):
        weights = pair_weights(weights_N, rows, rule).astype(data_NN.dtype)
        fused_NN[rows] = data_NN[rows] + weights * (gradient_NN[rows] - data_NN[rows])
    np.fill_diagonal(fused_NN, 0)
    return fused_NN


def pair_weights(weights_N: FloatArray, rows: slice, rule: PairRule) -> FloatArray:
    """w_ij for some rows i and all columns j."""
    if rule == "symmetric":
        return (weights_N[rows, None] + weights_N[None, :]) / 2
    first = np.minimum(np.arange(rows.start, rows.stop)[:, None], np.arange(len(weights_N))[None, :])
    return weights_N[first]


def entropy_and_slope(
    data_NN: FloatArray, gradient_NN: FloatArray, weights_N: FloatArray, entropy: Entropy
) -> tuple[float, FloatArray]:
    """L_en of Eq. 8 and its derivative by each weight; one blocked pass, no N x N temporary."""
    n = len(data_NN)
    loss, slope_N = 0.0, np.zeros(n)
    for rows in row_blocks(n, 128):
        difference = gradient_NN[rows] - data_NN[rows]
        weights = pair_weights(weights_N, rows, entropy.rule).astype(data_NN.dtype)
        scores = (data_NN[rows] + weights * difference) * data_NN.dtype.type(
            entropy.sign / entropy.temperature
        )
        own = (np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop))
        scores[own] = 0 if entropy.diagonal else -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        sums = exponentials.sum(axis=1, keepdims=True)
        softmax = exponentials / sums
        scores[own] = np.where(np.isfinite(scores[own]), scores[own], 0)
        logs = scores - np.log(sums)
        entropies = -(softmax * logs).sum(axis=1, dtype=np.float64)
        loss += float(entropies.sum()) / n
        # dL/dA_ij = -(sign/T)/N * softmax_ij (log softmax_ij + H_i); the diagonal never depends on w.
        terms = softmax * (logs + entropies[:, None].astype(softmax.dtype)) * difference
        terms[own] = 0
        if entropy.rule == "symmetric":
            slope_N[rows] += terms.sum(axis=1, dtype=np.float64) / 2
            slope_N += terms.sum(axis=0, dtype=np.float64) / 2
        else:
            columns = np.arange(n)[None, :] > np.arange(rows.start, rows.stop)[:, None]
            slope_N[rows] += np.where(columns, terms, 0).sum(axis=1, dtype=np.float64)
            slope_N += np.where(columns, 0, terms).sum(axis=0, dtype=np.float64)
    return loss, slope_N * (-entropy.sign / entropy.temperature / n)


def entropy_weights(
    data_NN: FloatArray,
    gradient_NN: FloatArray,
    entropy: Entropy | None = None,
    *,
    start_N: FloatArray | None = None,
    free_N: np.ndarray | None = None,
    max_steps: int = 60,
    tolerance: float = 1e-4,
) -> FloatArray:
    """Weights in [0, 1] that minimise Eq. 8 by projected gradient, from 0.5, with step halving.

    `free_N` keeps some weights fixed: only a newcomer's own weight is learned, the others stay.
    """
    entropy = entropy or Entropy()
    n = len(data_NN)
    weights_N = np.full(n, 0.5) if start_N is None else np.array(start_N, dtype=np.float64)
    free_N = np.ones(n, dtype=bool) if free_N is None else free_N
    if n < 2:
        return weights_N
    loss, slope_N = entropy_and_slope(data_NN, gradient_NN, weights_N, entropy)
    steepest = float(np.abs(slope_N[free_N]).max(initial=0))
    if steepest == 0:
        return weights_N
    step = 0.1 / steepest
    for _ in range(max_steps):
        trial_N = np.where(free_N, np.clip(weights_N - step * slope_N, 0, 1), weights_N)
        moved = float(np.abs(trial_N - weights_N).max())
        if moved < tolerance:
            break
        trial_loss, trial_slope_N = entropy_and_slope(data_NN, gradient_NN, trial_N, entropy)
        if trial_loss <= loss:
            weights_N, loss, slope_N = trial_N, trial_loss, trial_slope_N
            step *= 2
        else:
            step /= 4
    return weights_N


def structure_weight(
    data_NN: FloatArray,
    gradient_NN: FloatArray,
    score: Callable[[FloatArray], float],
    candidates: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0),
    *,
    max_items: int = 1000,
    seed: int = 0,
) -> float:
    """One weight for all items: the candidate whose fused matrix scores best, on a tie the one nearest 0.5.

    A view that shows nothing (update angles under feature skew, say) must not blur the one that does.
    Above `max_items`, a random sample of the items decides.
    """
    if len(data_NN) > max_items:
        sample = np.sort(np.random.default_rng(seed).choice(len(data_NN), max_items, replace=False))
        data_NN, gradient_NN = data_NN[np.ix_(sample, sample)], gradient_NN[np.ix_(sample, sample)]
    scores = {w: round(score(data_NN + np.float32(w) * (gradient_NN - data_NN)), 6) for w in candidates}
    return max(candidates, key=lambda w: (scores[w], -abs(w - 0.5), -w))


def mlp_weights(
    data_NN: FloatArray,
    gradient_NN: FloatArray,
    generator: torch.Generator,
    entropy: Entropy | None = None,
    *,
    hidden: int = 128,
    steps: int = 50,
    lr: float = 1e-3,
) -> FloatArray:
    """The paper's gate: an MLP reads both matrices whole and gives N weights, trained by Adam on Eq. 8."""
    entropy = entropy or Entropy(rule="row")
    n = len(data_NN)
    if 2 * n * n * hidden > MLP_LIMIT:
        raise ValueError(f"the MLP gate of {n} items has {2 * n * n * hidden:,} weights: use direct weights")
    data, gradient = (torch.as_tensor(np.asarray(m), dtype=torch.float32) for m in (data_NN, gradient_NN))
    inputs = torch.cat([data.reshape(-1), gradient.reshape(-1)])
    sizes = (2 * n * n, hidden, n)
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        bound = 1 / max(fan_in, 1) ** 0.5
        for shape in ((fan_out, fan_in), (fan_out,)):
            values = (2 * torch.rand(shape, generator=generator) - 1) * bound
            layers.append(values.requires_grad_())
    optimiser = torch.optim.Adam(layers, lr=lr)

    def gate() -> torch.Tensor:
        features = torch.relu(torch.nn.functional.linear(inputs, layers[0], layers[1]))
        return torch.sigmoid(torch.nn.functional.linear(features, layers[2], layers[3]))

    index = torch.arange(n)
    first = torch.minimum(index[:, None], index[None, :])
    for _ in range(steps if n > 1 else 0):
        weights_N = gate()
        pairs_NN = (
            weights_N[first] if entropy.rule == "row" else (weights_N[:, None] + weights_N[None, :]) / 2
        )
        scores_NN = (pairs_NN * gradient + (1 - pairs_NN) * data) * (entropy.sign / entropy.temperature)
        if not entropy.diagonal:
            scores_NN = scores_NN[~torch.eye(n, dtype=torch.bool)].reshape(n, n - 1)
        logs_NN = torch.log_softmax(scores_NN, dim=1)
        loss = -(logs_NN.exp() * logs_NN).sum() / n
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return gate().numpy().astype(np.float64)
