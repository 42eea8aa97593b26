# SPDX-License-Identifier: Apache-2.0
"""A run in a few lines of HTML, for notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from feddag.core.text import listed, plural
from feddag.reporting.pages.render import render
from feddag.reporting.tables.clients import cluster_facts

METRICS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy"}
CLUSTERS_SHOWN = 20
NAMES_SHOWN = 12


def run_summary(
    folder: str,
    settings: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    clients: Sequence[Mapping[str, str]],
    rounds: Sequence[Mapping[str, str]],
) -> str:
    """Method, data and standing; of a finished run also scores and clusters."""
    headline: dict[str, dict[str, str]] = {}
    standing = "not finished; go on with feddag.resume"
    if rounds and rounds[-1]["accuracy"]:
        standing += f"; after round {rounds[-1]['round']}: {_percent(float(rounds[-1]['accuracy']))}"
    if result is not None:
        final = result["final"]
        headline["as served"] = _scores(final["before"])
        if "after" in final:
            headline["after local training"] = _scores(final["after"])
        standing = f"{_megabytes(result)} MB, {plural(result['failures'], 'client failure')}"
    who: dict[str, list[str]] = {}
    for row in clients:
        who.setdefault(row["cluster"], []).append(row["client"])
    clusters = [
        {
            "name": fact.cluster,
            "size": fact.size,
            "accuracy": _percent(fact.accuracy),
            "who": listed(who[fact.cluster], NAMES_SHOWN),
        }
        for fact in cluster_facts(clients)[:CLUSTERS_SHOWN]
    ]
    content = {
        "folder": folder,
        "method": settings["algorithm"]["name"],
        "data": settings["data"]["name"],
        "rounds": plural(settings["num_rounds"], "round"),
        "standing": standing,
        "headline": headline,
        "metrics": list(METRICS.values()),
        "clusters": clusters,
    }
    return render("run.html", content)


def _scores(scores: Mapping[str, Any]) -> dict[str, str]:
    return {words: _percent(scores[metric]) for metric, words in METRICS.items()}


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f}%"


def _megabytes(result: Mapping[str, Any]) -> str:
    return f"{(result['bytes_down'] + result['bytes_up']) / 1e6:,.1f}"


def comparison_summary(folder: str, rows: Sequence[Mapping[str, str]], metric: str) -> str:
    """The methods of a comparison, one line each."""
    cells = []
    for row in rows:
        mean, spread = row[f"{metric}_mean"], row[f"{metric}_std"]
        score = f"{_percent(float(mean))} ± {100 * float(spread or 0):.2f}" if mean else "–"
        megabytes = f"{float(row['bytes']) / 1e6:,.1f}" if row["bytes"] else "–"
        cells.append([row["setting"], row["method"], row["seeds"], score, row["verdict"], megabytes])
    columns = ["setting", "method", "seeds", metric.replace("_", " "), "against the first", "MB"]
    content = {"folder": folder, "metric": metric.replace("_", " "), "columns": columns, "rows": cells}
    return render("summary.html", content)
