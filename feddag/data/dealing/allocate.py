# SPDX-License-Identifier: Apache-2.0
"""Dealing samples to holders: exact, and terminating for every concentration and number of holders.

Everything here works with whole counts, so rounding never loses a sample or uses one twice. Nothing is drawn
again until it fits: if a draw gives a holder too few samples, the fewest possible samples are moved, once.
"""

import numpy as np


def log_dirichlet(alphas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of unnormalised Dirichlet weights, finite for every alpha > 0 (last axis: the holders).

    Gamma(α) underflows to 0 for small α, which makes the usual generator return NaN; Gamma(α) equals
    Gamma(α+1)·U^(1/α) in distribution, and the logarithm of that never underflows.
    """
    log_uniform = np.log(1.0 - rng.random(alphas.shape))
    log_gamma = np.log(rng.standard_gamma(alphas + 1.0))
    with np.errstate(over="ignore"):
        logs = np.maximum(log_gamma + log_uniform / alphas, -1e300)
    return logs - logs.max(axis=-1, keepdims=True)


def dirichlet(alpha: float, holders: int, rng: np.random.Generator) -> np.ndarray:
    """One draw of Dirichlet(alpha, ..., alpha), never NaN."""
    return normalise(log_dirichlet(np.full(holders, float(alpha)), rng))


def normalise(logs: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
    """Probabilities from logarithms; holders that are not allowed get 0 (at least one must be allowed)."""
    if allowed is not None:
        logs = np.where(allowed, logs, -np.inf)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def round_to_total(
    shares: np.ndarray, total: int, least: int = 0, most: np.ndarray | None = None
) -> np.ndarray:
    """Whole counts near `shares · total` that sum to total, each at least `least` and at most `most`."""
    free = total - least * len(shares)
    exact = shares * free
    counts = np.floor(exact).astype(np.int64)
    missing = free - int(counts.sum())
    largest = np.argsort(-(exact - counts), kind="stable")
    counts[largest[:missing]] += 1
    counts += least
    if most is not None:  # what does not fit goes to the first holders that have room
        excess = int(np.maximum(counts - most, 0).sum())
        counts = np.minimum(counts, most)
        before = np.concatenate([[0], np.cumsum(most - counts)[:-1]])
        counts += np.clip(excess - before, 0, most - counts)
    return counts


def deal(y: np.ndarray, counts_NC: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows for every holder: `counts_NC[i, c]` random samples of class c go to holder i, none twice."""
    holders, classes = counts_NC.shape
    by_class = np.argsort(y, kind="stable")
    class_ends = np.cumsum(np.bincount(y, minlength=classes))
    rows, owners = [], []
    for c, of_class in enumerate(np.split(by_class, class_ends[:-1])):
        of_class = rng.permutation(of_class)
        rows.append(of_class[: counts_NC[:, c].sum()])
        owners.append(np.repeat(np.arange(holders), counts_NC[:, c]))
    flat, owner = np.concatenate(rows), np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return np.split(flat[order], np.cumsum(counts_NC.sum(axis=1))[:-1])


def raise_to_least(counts_NC: np.ndarray, least: int, rng: np.random.Generator) -> np.ndarray:
    """Move as few samples as possible from the largest holders, so that every holder has at least `least`."""
    counts = counts_NC.copy()
    sizes = counts.sum(axis=1)
    needy = np.flatnonzero(sizes < least)
    wanted = int((least - sizes[needy]).sum())
    if wanted == 0:
        return counts
    # The largest holders are cut to a common level: the highest one that frees enough samples.
    low, high = least, int(sizes.max())
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= wanted else (low, level - 1)
    freed = np.zeros(counts.shape[1], dtype=np.int64)
    still = wanted
    for holder in np.argsort(-sizes, kind="stable"):
        give = min(int(sizes[holder]) - low, still)
        if give <= 0:
            break
        taken = rng.multivariate_hypergeometric(counts[holder], give)
        counts[holder] -= taken
        freed += taken
        still -= give
    loose = rng.permutation(np.repeat(np.arange(counts.shape[1]), freed))
    receiver = np.repeat(needy, least - sizes[needy])
    np.add.at(counts, (receiver, loose), 1)
    return counts
