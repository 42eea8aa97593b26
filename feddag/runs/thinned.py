# SPDX-License-Identifier: Apache-2.0
"""Logs of very many clients: the values of some of them are written, and it is said that they are some."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from feddag.core.seeds import Seed
from feddag.core.task import ClientId

T = TypeVar("T")

LOGGED = 2000
"""Clients whose own values an event holds. The same ones are logged in every event of a run."""


def thinned(values: Mapping[ClientId, T], seed: Seed) -> dict[ClientId, T]:
    """All values, or those of some clients, drawn by the seed of the run."""
    if len(values) <= LOGGED:
        return dict(values)
    names = sorted(values)
    drawn = (seed / "logged").numpy().choice(len(names), size=LOGGED, replace=False)
    return {names[i]: values[names[i]] for i in np.sort(drawn).tolist()}


def thinned_sum(values: Mapping[ClientId, float], seed: Seed) -> dict[str, float]:
    """The same for values that readers add up: all others are one entry."""
    shown = thinned(values, seed)
    left = len(values) - len(shown)
    rest = {f"{left} others": round(sum(values.values()) - sum(shown.values()), 4)} if left else {}
    return {**shown, **rest}


def thinned_report(report: Mapping[str, Any], seed: Seed) -> dict[str, Any]:
    """An evaluation for the log: scores of some clients, `logged` says of how many; summaries stay whole."""
    result = dict(report)
    by_client = [name for name in report if name.endswith("_clients") or name == "uses"]
    for name in by_client:
        result[name] = thinned(report[name], seed)
        if len(result[name]) < len(report[name]):
            result["logged"] = LOGGED
    return result
