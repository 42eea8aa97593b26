# SPDX-License-Identifier: Apache-2.0
"""Section: what left whom, protected how, and what it cost; from result.json["privacy"] or the plan."""

from collections.abc import Mapping
from typing import Any

from feddag.core.text import plural
from feddag.reporting.colours import PALETTE
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis
from feddag.reporting.pages.section import Block, Column, Plot, Table


def block(run: RunData) -> Block | None:
    """Sentences, the table of releases, and ε over the rounds; None where nothing is protected."""
    found: Mapping[str, Any] = (run.result or {}).get("privacy") or run.log.about.get("privacy") or {}
    if not found:
        return None
    tables = [_releases(found)] if found.get("releases") else []
    plots = [_over_rounds(found)] if len(found.get("by_round", ())) > 1 else []
    return Block(_sentences(found), plots, [_planned(found), *tables])


def _sentences(found: Mapping[str, Any]) -> list[str]:
    told = [f"Privacy level '{found['level']}'; updates leave as '{found['update_mode']}'."]
    if found.get("largest"):
        told.append(
            f"For {found['unit']} the largest ε is {found['largest']:.2f}, the median {found['median']:.2f}, "
            f"at δ = {found['delta']:g}; the budget is {found['budget']:g}."
        )
    elif found.get("planned_epsilon"):
        told.append(f"A typical client is planned to reach ε = {found['planned_epsilon']:.2f}.")
    if found.get("refused_sums"):
        told.append(f"{plural(found['refused_sums'], 'sum')} over too few clients were not made.")
    if found.get("withheld_classes"):
        told.append(
            f"{plural(found['withheld_classes'], 'class signature')} of too few samples stayed at home."
        )
    return [*told, *(f"Not covered: {text}" for text in found.get("not_covered", ()))]


def _planned(found: Mapping[str, Any]) -> Table:
    rows = [[r["what"], r["protection"], r["times"], r["epsilon"]] for r in found.get("planned", ())]
    columns = [
        Column("what leaves a client"),
        Column("protection"),
        Column("times"),
        Column("ε alone", "number"),
    ]
    return Table(columns, rows, "Planned")


def _releases(found: Mapping[str, Any]) -> Table:
    rows = [[r["kind"], r["mechanism"], r["times"], r["clients"], r["epsilon"]] for r in found["releases"]]
    columns = [Column("kind"), Column("mechanism"), Column("times", "number")]
    columns += [Column("clients", "number"), Column("largest ε alone", "number")]
    return Table(columns, rows, "What left the clients, by their own ledgers")


def _over_rounds(found: Mapping[str, Any]) -> Plot:
    rounds = [row["round"] for row in found["by_round"]]
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines+markers", "name": name, "x": rounds,
         "y": [row[name] for row in found["by_round"]], "line": {"color": PALETTE[k]}}
        for k, name in enumerate(("largest", "median"))
    ]  # fmt: skip
    layout = {"xaxis": axis("round"), "yaxis": axis("ε", rangemode="tozero"), "showlegend": True}
    return Plot("epsilon-over-rounds", "ε spent so far", traces, layout)
