# SPDX-License-Identifier: Apache-2.0
"""The numbers of an event, under the names that trackers show."""

from collections.abc import Mapping
from typing import Any


def numbers_of(event: Mapping[str, Any]) -> dict[str, float]:
    """Name → number; empty for events that have none for a chart."""
    kind = event["event"]
    if kind == "evaluation":
        return {
            f"{split}/{name}": float(value)
            for split in ("test", "validation")
            for name, value in event[split].items()
            if isinstance(value, int | float) and name != "clients"
        }
    if kind == "exchange":
        task = event["task"]
        return {
            f"bytes_down/{task}": float(event["bytes_down"]),
            f"bytes_up/{task}": float(event["bytes_up"]),
            f"failures/{task}": float(len(event["failures"])),
        }
    if kind == "round":
        return {"round/seconds": float(event["seconds"]), "round/cohort": float(len(event["cohort"]))}
    return {}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def final_scores(result: Mapping[str, Any]) -> dict[str, float]:
    """The headline of a finished run."""
    scores = {
        f"final/{which}/{name}": float(value)
        for which in ("before", "after")
        for name, value in (result["final"].get(which) or {}).items()
        if isinstance(value, int | float)
    }
    cost = {
        f"final/{name}": float(result[name]) for name in ("bytes_down", "bytes_up", "failures", "seconds")
    }
    clusters = {"final/clusters": float(result["clusters"])} if result.get("clusters") else {}
    return scores | cost | clusters
