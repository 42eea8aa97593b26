# SPDX-License-Identifier: Apache-2.0
"""Fusing two normalised distance matrices into one by learned weights (Eqs. 7 and 8 of the paper).

The entropy of a softmax row falls when the spread of the row grows, and the spread is convex in the weight.
So weights learned by entropy end in the corners 0 and 1: they select one view per item, they do not blend.
"""

from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from feddag.clustering.agglomerative import link
from feddag.clustering.arrays import FloatArray, row_blocks
from feddag.clustering.options import ClusteringOptions, EntropyOptions, FusionRule
from feddag.clustering.silhouette import best_cut
from feddag.clustering.structure import least_size

Weights = TypeVar("Weights", FloatArray, torch.Tensor)

CANDIDATES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights that fusion `structure` tries."""

MAX_SAMPLED = 1000
"""Fusion `structure` looks at a random sample of at most this number of items."""

MLP_LIMIT = 300_000_000
"""Largest first layer of the MLP gate (2 N^2 x hidden weights): 1.2 GB."""


def learned_weights(
    data_NN: FloatArray, gradient_NN: FloatArray, options: ClusteringOptions, seed: int
) -> FloatArray:
    """w of Eq. 7, one weight per item: 1 is all gradient, 0 is all data."""
    if options.fusion == "entropy":
        return entropy_weights(data_NN, gradient_NN, options.fusion_rule, options.entropy)
    if options.fusion == "mlp":
        generator = torch.Generator().manual_seed(seed)
        return mlp_weights(data_NN, gradient_NN, generator, options.fusion_rule, options.entropy)
    # Frequency weights (Eq. 6) give one matrix of data angles: there `views` means `structure`.
    weight = 0.5 if options.fusion == "mean" else structure_weight(data_NN, gradient_NN, options, seed)
    return np.full(len(data_NN), weight)


def fuse(
    data_NN: FloatArray, gradient_NN: FloatArray, weights_N: FloatArray, rule: FusionRule = "symmetric"
) -> FloatArray:
    """A of Eq. 7: w G + (1 - w) V, symmetric, zero on the diagonal."""
    fused_NN = np.empty_like(data_NN)
    for rows in row_blocks(len(data_NN)):
        weights = pair_weights(weights_N, rows, rule).astype(data_NN.dtype)
        fused_NN[rows] = data_NN[rows] + weights * (gradient_NN[rows] - data_NN[rows])
    np.fill_diagonal(fused_NN, 0)
    return fused_NN


def pair_weights(weights_N: Weights, rows: slice, rule: FusionRule) -> Weights:
    """w_ij for some rows i and all columns j; works on arrays and on tensors that are being learned."""
    if rule == "symmetric":
        return (weights_N[rows, None] + weights_N[None, :]) / 2
    first = np.minimum(np.arange(rows.start, rows.stop)[:, None], np.arange(len(weights_N))[None, :])
    return weights_N[first]


def entropy_and_slope(
    data_NN: FloatArray,
    gradient_NN: FloatArray,
    weights_N: FloatArray,
    rule: FusionRule,
    entropy: EntropyOptions,
) -> tuple[float, FloatArray]:
    """L_en of Eq. 8 and its derivative by each weight; one blocked pass, no N x N temporary."""
    n = len(data_NN)
    loss, slope_N = 0.0, np.zeros(n)
    for rows in row_blocks(n, 128):
        difference = gradient_NN[rows] - data_NN[rows]
        weights = pair_weights(weights_N, rows, rule).astype(data_NN.dtype)
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
        if rule == "symmetric":
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
    rule: FusionRule = "symmetric",
    entropy: EntropyOptions | None = None,
    *,
    max_steps: int = 60,
    tolerance: float = 1e-4,
) -> FloatArray:
    """Weights in [0, 1] that minimise Eq. 8 by projected gradient from 0.5; the step adapts."""
    entropy = entropy or EntropyOptions()
    n = len(data_NN)
    weights_N = np.full(n, 0.5)
    if n < 2:
        return weights_N
    loss, slope_N = entropy_and_slope(data_NN, gradient_NN, weights_N, rule, entropy)
    steepest = float(np.abs(slope_N).max(initial=0))
    if steepest == 0:
        return weights_N
    step = 0.1 / steepest
    for _ in range(max_steps):
        trial_N = np.clip(weights_N - step * slope_N, 0, 1)
        moved = float(np.abs(trial_N - weights_N).max())
        if moved < tolerance:
            break
        trial_loss, trial_slope_N = entropy_and_slope(data_NN, gradient_NN, trial_N, rule, entropy)
        if trial_loss <= loss:
            weights_N, loss, slope_N = trial_N, trial_loss, trial_slope_N
            step *= 2
        else:
            step /= 4
    return weights_N


def structure_weight(
    data_NN: FloatArray, gradient_NN: FloatArray, options: ClusteringOptions, seed: int = 0
) -> float:
    """One weight for all items: the candidate whose fused matrix has the best silhouette at its best cut.

    A view without structure (for example update angles under feature skew) must not blur the other view. On a
    tie the weight nearest to 0.5 wins.
    """
    if len(data_NN) > MAX_SAMPLED:
        sample = np.sort(np.random.default_rng(seed).choice(len(data_NN), MAX_SAMPLED, replace=False))
        data_NN, gradient_NN = data_NN[np.ix_(sample, sample)], gradient_NN[np.ix_(sample, sample)]
    if len(data_NN) < 3:
        return 0.5
    min_size = least_size(len(data_NN), options.structure)
    scores = {}
    for weight in CANDIDATES:
        fused_NN = data_NN + np.float32(weight) * (gradient_NN - data_NN)
        scores[weight] = round(best_cut(fused_NN, link(fused_NN, options.linkage), min_size)[0], 6)
    return max(CANDIDATES, key=lambda w: (scores[w], -abs(w - 0.5), -w))


def mlp_weights(
    data_NN: FloatArray,
    gradient_NN: FloatArray,
    generator: torch.Generator,
    rule: FusionRule = "row",
    entropy: EntropyOptions | None = None,
    *,
    hidden: int = 128,
    steps: int = 50,
    lr: float = 1e-3,
) -> FloatArray:
    """The paper's gate: an MLP reads both whole matrices and gives N weights, trained by Adam on Eq. 8."""
    entropy = entropy or EntropyOptions()
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

    for _ in range(steps if n > 1 else 0):
        pairs_NN = pair_weights(gate(), slice(0, n), rule)
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
