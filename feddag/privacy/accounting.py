# SPDX-License-Identifier: Apache-2.0
"""From releases to ε: `dp-accounting` composes. Protected is one sample of one client, added or removed."""

import logging
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from feddag.core.errors import InvalidInput

LAPLACE, GAUSSIAN, DPSGD = "discrete-laplace", "gaussian", "dpsgd"
MECHANISMS = (LAPLACE, GAUSSIAN, DPSGD)
MAX_EPSILON = 1e6  # beyond, a figure means nothing


@dataclass(frozen=True, order=True)
class Spend:
    """One use of a mechanism: ε of the Laplace noise, or the standard deviation over the sensitivity."""

    mechanism: str
    noise: float
    rate: float = 1.0  # DP-SGD: probability that a sample is in a batch
    steps: int = 1  # DP-SGD: number of batches


def library() -> Any:
    """dp_accounting, or one sentence that says how to get it."""
    try:
        import dp_accounting
    except ImportError:
        raise InvalidInput(
            "privacy levels 'private' and 'strict' need the package dp-accounting: "
            "pip install 'feddag[privacy]'"
        ) from None
    # It reports orders of Rényi divergence that it leaves out, which only makes ε larger.
    logging.getLogger("absl").setLevel(logging.ERROR)
    return dp_accounting


@lru_cache(maxsize=64)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The standard deviation that makes the Gaussian mechanism with sensitivity 1 (ε, δ)-private."""
    return float(library().get_sigma_gaussian(epsilon, delta))


def total_epsilon(spends: Iterable[Spend], delta: float) -> float:
    """ε of all releases together, at δ. The order of releases has no effect."""
    counted: Counter[Spend] = Counter()
    for spend in spends:
        if spend.mechanism == DPSGD:  # equal batches add up, whoever asked for them
            counted[Spend(DPSGD, spend.noise, spend.rate)] += spend.steps
        else:
            counted[spend] += 1
    return _composed(tuple(sorted(counted.items())), delta)


@lru_cache(maxsize=65536)
def _composed(counted: tuple[tuple[Spend, int], ...], delta: float) -> float:
    if not counted:
        return 0.0
    if any(spend.mechanism == DPSGD for spend, _ in counted):
        return _by_renyi(counted, delta)
    dp = library()
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    for spend, times in counted:
        accountant.compose(event_of(spend), times)
    return float(accountant.get_epsilon(delta))


def event_of(spend: Spend) -> Any:
    """The release as dp-accounting describes it."""
    dp = library()
    if spend.mechanism == LAPLACE:
        return dp.dp_event.DiscreteLaplaceDpEvent(spend.noise, 1)
    if spend.mechanism == GAUSSIAN:
        return dp.GaussianDpEvent(spend.noise)
    return dp.SelfComposedDpEvent(
        dp.PoissonSampledDpEvent(spend.rate, dp.GaussianDpEvent(spend.noise)), spend.steps
    )


def _by_renyi(counted: tuple[tuple[Spend, int], ...], delta: float) -> float:
    """Rényi divergences add up: those of each mechanism are computed once, so many steps are cheap."""
    dp = library()
    orders = dp.rdp.RdpAccountant().orders
    total = [0.0] * len(orders)
    for spend, times in counted:
        one = _divergences(spend)
        total = [t + times * r for t, r in zip(total, one, strict=True)]
    epsilon = float(dp.rdp.compute_epsilon(orders, total, delta)[0])
    return epsilon if epsilon < MAX_EPSILON else math.inf


@lru_cache(maxsize=4096)
def _divergences(spend: Spend) -> tuple[float, ...]:
    """Rényi divergence of one step at each order."""
    dp = library()
    if spend.mechanism == LAPLACE:  # any ε-private release is ε²/2-concentrated
        event = dp.ZCDpEvent(spend.noise**2 / 2)
    elif spend.mechanism == GAUSSIAN:
        event = dp.GaussianDpEvent(spend.noise)
    else:
        event = dp.PoissonSampledDpEvent(spend.rate, dp.GaussianDpEvent(spend.noise))
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(event)
    return tuple(float(r) for r in accountant.rdp)
