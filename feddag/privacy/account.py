# SPDX-License-Identifier: Apache-2.0
"""After a run: what the ledger says, as plain values for result.json["privacy"] (form: docs/privacy.md)."""

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Any

from feddag.core.task import ClientId
from feddag.privacy.accounting import Spend, total_epsilon
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.ledger import Entry, Ledger


def account(options: PrivacyOptions, ledger: Ledger) -> dict[str, Any]:
    """What left whom: by kind and mechanism, by client, and over the rounds."""
    entries = [entry for client in ledger.clients() for entry in ledger.of(client).values()]
    epsilons = {client: _epsilon(ledger.of(client), options.delta) for client in ledger.clients()}
    return {
        "releases": _releases(entries, options.delta),
        "clients": {client: round(value, 6) for client, value in epsilons.items()},
        "largest": round(max(epsilons.values(), default=0.0), 6),
        "median": round(median(epsilons.values()), 6) if epsilons else 0.0,
        "by_round": _by_round(ledger, options.delta),
    }


def by_cluster(clients: Mapping[ClientId, float], clusters: Mapping[ClientId, int]) -> dict[str, float]:
    """The largest ε in every cluster; clusters hold different clients, so nothing adds up between them."""
    found: dict[str, float] = {}
    for client, z in sorted(clusters.items()):
        found[str(z)] = max(found.get(str(z), 0.0), clients.get(client, 0.0))
    return found


def _epsilon(entries: Mapping[str, Entry], delta: float, up_to: float = float("inf")) -> float:
    spent = [e.spend for e in entries.values() if e.spend is not None and e.round <= up_to]
    return total_epsilon(spent, delta)


def _releases(entries: list[Entry], delta: float) -> list[dict[str, Any]]:
    """For every kind and mechanism: how often, from how many clients, and the largest ε of it alone."""
    times = Counter((e.kind, e.mechanism) for e in entries)
    rows = []
    for (kind, mechanism), number in sorted(times.items()):
        by_client: dict[ClientId, list[Spend]] = {}
        for e in entries:
            if (e.kind, e.mechanism) == (kind, mechanism):
                by_client.setdefault(e.client, []).extend([e.spend] if e.spend else [])
        alone = [total_epsilon(spent, delta) for spent in by_client.values() if spent]
        rows.append(
            {
                "kind": kind,
                "mechanism": mechanism,
                "times": number,
                "clients": len(by_client),
                "epsilon": round(max(alone), 6) if alone else None,
            }
        )
    return rows


def _by_round(ledger: Ledger, delta: float) -> list[dict[str, Any]]:
    """The largest and the median ε after every round in which somebody spent something."""
    clients = {client: ledger.of(client) for client in ledger.clients()}
    rounds = sorted({e.round for entries in clients.values() for e in entries.values() if e.spend})
    rows = []
    for round_ in rounds:
        values = [_epsilon(entries, delta, round_) for entries in clients.values()]
        rows.append({"round": round_, "largest": round(max(values), 6), "median": round(median(values), 6)})
    return rows
