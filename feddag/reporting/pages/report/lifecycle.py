# SPDX-License-Identifier: Apache-2.0
"""Section: clients that join, leave and change, and how the clusters follow."""

from collections.abc import Mapping, Sequence
from typing import Any

from feddag.core.text import plural
from feddag.reporting.colours import GREY, PALETTE
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.report.traces import axis
from feddag.reporting.pages.section import Block, Plot
from feddag.reporting.tables.lifecycle import Story, curve, groups, lifecycle_summary

MOST_CLIENTS = 200  # rows of the strip; beyond, those to whom something happened come first
MARKS = {
    "data changed": ("line-ns-open", "#000000"),
    "alarm": ("triangle-up", "#cc0000"),
    "moved": ("diamond-open", "#000000"),
}
CURVES = {"drifted": PALETTE[1], "new": PALETTE[2], "untouched": PALETTE[0]}


def block(run: RunData) -> Block | None:
    """The strip client × round, coloured by cluster, and the accuracy of those who changed."""
    story = run.log.story
    summary = lifecycle_summary(story)
    if summary is None:
        return None
    plots = [strip(story)]
    shown = {name: clients for name, clients in groups(story).items() if clients}
    if story.accuracy and len(shown) > 1:
        plots.append(accuracy(story, shown))
    return Block(sentences(summary), plots)


def sentences(summary: dict[str, Any]) -> list[str]:
    """What happened, in words."""
    found = []
    if summary["drifts"]:
        found.append(
            f"The data of clients changed {plural(summary['drifts'], 'time')}; {summary['detected']} of "
            f"these changes were noticed, and {plural(summary['false_alarms'], 'alarm')} had no cause "
            f"(in {summary['client_checks']:,} checks)."
        )
    elif summary["client_checks"]:
        alarms = plural(summary["false_alarms"], "alarm")
        found.append(f"Nobody's data changed; {summary['client_checks']:,} checks gave {alarms}.")
    if summary["newcomers"]:
        right, later = summary["newcomers_right"], summary.get("newcomers_right_final")
        placed = "" if right is None else f"; {right:.0%} of them were placed with their planted group"
        placed += "" if later is None else f", and {later:.0%} are with it in the last round"
        found.append(f"{plural(summary['newcomers'], 'client')} joined during the run{placed}.")
    again = plural(summary["reclusterings"], "time")
    found.append(
        f"{plural(summary['moved'], 'move')} between clusters; everybody was clustered again {again}."
    )
    return found


def strip(story: Story) -> Plot:
    """One row per client, one column per round; white where a client is away."""
    rounds = sorted(story.standing)
    clients = _rows(story)
    number = {client: i for i, client in enumerate(clients)}
    z: list[list[int | None]] = [[None] * len(rounds) for _ in clients]
    text = [["away"] * len(rounds) for _ in clients]
    for k, round_ in enumerate(rounds):
        event = story.standing[round_]
        for client in event["present"]:
            if client in number:
                cluster = event["clusters"].get(client, -1)
                z[number[client]][k] = min(cluster, len(PALETTE) * 4) % len(PALETTE) if cluster >= 0 else -1
                waits = client in event["waiting"]
                text[number[client]][k] = (
                    "waiting" if waits else f"cluster {cluster}" if cluster >= 0 else "there"
                )
    heat = {
        "type": "heatmap", "x": rounds, "y": clients, "z": z, "text": text, "showscale": False,
        "zmin": -1.5, "zmax": len(PALETTE) - 0.5, "colorscale": _scale(), "xgap": 0.5, "ygap": 1,
        "hovertemplate": "%{y}, round %{x}: %{text}<extra></extra>", "hoverongaps": False,
    }  # fmt: skip
    happened = {
        "data changed": [(c, at) for c, at, _ in story.drifts],
        "alarm": story.alarms,
        "moved": story.moved,
    }
    traces = [heat]
    for name, places in happened.items():
        symbol, colour = MARKS[name]
        shown = [(c, r) for c, r in places if c in number]
        if shown:
            traces.append(
                {"type": "scatter", "mode": "markers", "name": name, "x": [r for _, r in shown],
                 "y": [c for c, _ in shown], "hovertemplate": f"%{{y}}, round %{{x}}: {name}<extra></extra>",
                 "marker": {"symbol": symbol, "color": colour, "size": 8, "line": {"width": 1.5}}}
            )  # fmt: skip
    layout = {
        "xaxis": axis("round"),
        "yaxis": axis("", autorange="reversed", type="category"),
        "hovermode": "closest",
        "showlegend": True,
    }
    height = min(1200, 140 + 13 * len(clients))
    return Plot("lifecycle", "Clients over time, coloured by cluster", traces, layout, height, wide=True)


def _rows(story: Story) -> list[str]:
    """The clients of the strip by first cluster; if there are too many, those with events come first."""
    first: dict[str, int] = {}
    for round_ in sorted(story.standing):
        event = story.standing[round_]
        for client in event["present"]:
            if client not in first or first[client] < 0:
                first[client] = event["clusters"].get(client, -1)
    events = {c for c, _, _ in story.drifts} | {c for c, _ in story.alarms} | {c for c, _ in story.moved}
    chosen = sorted(first, key=lambda c: (c not in events and c not in story.newcomers, c))[:MOST_CLIENTS]
    return sorted(chosen, key=lambda c: (first[c], c))


def _scale() -> list[list[Any]]:
    """Each cluster's colour as a step of a scale from -1 (no cluster) to the last colour."""
    colours = [GREY, *PALETTE]
    edges = [k / len(colours) for k in range(len(colours) + 1)]
    return [[edge, colour] for k, colour in enumerate(colours) for edge in edges[k : k + 2]]


def accuracy(story: Story, shown: Mapping[str, Sequence[str]]) -> Plot:
    """Mean accuracy of clients that changed, that are new, and of all others."""
    traces = []
    for name, clients in shown.items():
        means = curve(story, clients)
        traces.append(
            {"type": "scatter", "mode": "lines+markers", "name": f"{name} ({len(clients)})",
             "x": [int(r) for r in means], "y": [round(100 * v, 2) for v in means.values()],
             "line": {"color": CURVES[name], "width": 2}, "marker": {"size": 5}}
        )  # fmt: skip
    layout: dict[str, Any] = {"xaxis": axis("round"), "yaxis": axis("accuracy %"), "showlegend": True}
    drifts = sorted({at for _, at, _ in story.drifts})
    layout["shapes"] = [
        {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"color": GREY, "dash": "dot"}} for at in drifts[:50]
    ]  # fmt: skip
    return Plot("lifecycle-accuracy", "Accuracy of those who changed", traces, layout, 320, wide=True)
