# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: who is best, by how much, at which cost, and how the methods got there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from feddag.core.text import plural
from feddag.reporting.colours import PALETTE
from feddag.reporting.pages.report.traces import axis, band, line, share_axis
from feddag.reporting.pages.report.write import page_html
from feddag.reporting.pages.section import Block, Column, Plot, Section, Table, compact
from feddag.reporting.tables.comparison import Line, Metric, Outcome, Point
from feddag.reporting.tables.comparison_text import PROTOCOL, cells, headings, mean_ranks


def comparison_html(
    lines: Sequence[Line], outcomes: Sequence[Outcome], metric: Metric, targets: Sequence[float], title: str
) -> str:
    """The page as HTML; the first method is the one that the others are compared with."""
    methods = list(dict.fromkeys(line_.method for line_ in lines))
    colours = {method: PALETTE[k % len(PALETTE)] for k, method in enumerate(methods)}
    sections = []
    for k, setting in enumerate(dict.fromkeys(line_.setting for line_ in lines)):
        inside = [line_ for line_ in lines if line_.setting == setting]
        runs = [o for o in outcomes if o.setting == setting]
        first = methods[0]
        plots = [
            _scores(inside, runs, metric, colours),
            *_curves(runs, metric, colours),
            _cost(inside, metric, colours),
        ]
        table = _table(inside, first, metric, targets)
        shown = [plot for plot in plots if plot]
        block = Block([_sentence(inside, metric)], shown, [table], tables_first=True)
        sections.append(Section(f"setting-{k + 1}", setting or "Results", [block]))
    if len(sections) > 1:
        sections.insert(0, Section("ranks", "Over all settings", [_ranks(lines)]))
    sections.append(Section("protocol", "How it was measured", [Block([PROTOCOL])]))
    seeds = plural(max((line_.seeds for line_ in lines), default=0), "seed")
    content = {
        "title": f"{plural(len(methods), 'method')} compared: {title}",
        "tiles": [],
        "answer": _answer(lines, metric),
    }
    return page_html(sections, content | {"footer": f"Made by feddag. {seeds} per method and setting."})


def _answer(lines: Sequence[Line], metric: Metric) -> str:
    """The winner of every setting; where a method is within one deviation of it, that is said."""
    words = []
    for setting in dict.fromkeys(line_.setting for line_ in lines):
        scored = [line_ for line_ in lines if line_.setting == setting and line_.mean[metric] is not None]
        if scored:
            best = max(scored, key=lambda line_: line_.mean[metric] or 0)
            words.append(f"{f'{setting}: ' if setting else ''}{best.method} {_share(best, metric)}")
    if not words:
        return "No run is finished yet."
    what = metric.replace("_", " ")
    return f"Highest mean {what}: {'; '.join(words)}."


def _share(line_: Line, metric: Metric) -> str:
    spread = f" ± {line_.std[metric]:.1%}" if line_.seeds > 1 else ""
    return f"{line_.mean[metric]:.1%}{spread}"


def _sentence(lines: Sequence[Line], metric: Metric) -> str:
    scored = sorted(
        (line_ for line_ in lines if line_.mean[metric] is not None),
        key=lambda line_: -(line_.mean[metric] or 0),
    )
    if not scored:
        return "No run of this setting could be scored."
    best = scored[0]
    words = f"{best.method} is highest with {_share(best, metric)}"
    if len(scored) > 1:
        words += f", then {scored[1].method} with {_share(scored[1], metric)}"
    near = [
        o.method
        for o in scored[1:]
        if (best.mean[metric] or 0) - (o.mean[metric] or 0) <= best.std[metric] + o.std[metric]
    ]
    if near and best.seeds > 1:
        words += f". Within the spread over seeds of the highest: {', '.join(near)}"
    return f"{words}."


def _table(lines: Sequence[Line], first: str, metric: Metric, targets: Sequence[float]) -> Table:
    texts = [cells(line_, metric) for line_ in lines]
    names = headings(first, metric, targets)
    keep = [c for c in range(len(names)) if c < 2 or any(text[c] != "–" for text in texts)]
    columns = [Column(names[c], "number" if c else "text") for c in keep]
    return Table(columns, [[text[c] for c in keep] for text in texts])


def _scores(
    lines: Sequence[Line], runs: Sequence[Outcome], metric: Metric, colours: dict[str, str]
) -> Plot | None:
    """Mean and every seed of each method, the best first."""
    scored = sorted(
        (line_ for line_ in lines if line_.mean[metric] is not None),
        key=lambda line_: -(line_.mean[metric] or 0),
    )
    if not scored:
        return None
    names = [line_.method for line_ in scored]
    means = {"type": "scatter", "mode": "markers", "name": "mean", "y": names,
             "x": compact([line_.mean[metric] for line_ in scored]), "showlegend": False,
             "marker": {"color": [colours[n] for n in names], "size": 15, "symbol": "diamond"}}  # fmt: skip
    seeds = [o for o in runs if o.scores]
    dots = {"type": "scatter", "mode": "markers", "name": "one seed", "y": [o.method for o in seeds],
            "x": compact([o.scores[metric] for o in seeds]), "text": [f"seed {o.seed}" for o in seeds],
            "marker": {"color": [colours[o.method] for o in seeds], "size": 8, "opacity": 0.6},
            "showlegend": False}  # fmt: skip
    what = metric.replace("_", " ")
    layout = {
        "xaxis": share_axis(what),
        "yaxis": axis("", autorange="reversed", categoryorder="array", categoryarray=names),
    }
    title = f"Final {what}: every seed is a dot, their mean a diamond"
    return Plot(f"final-{metric}", title, [dots, means], layout, 130 + 30 * len(names), wide=True)


def _curves(runs: Sequence[Outcome], metric: Metric, colours: dict[str, str]) -> list[Plot]:
    """Mean over seeds at every evaluated round, with the spread over seeds."""
    against: tuple[tuple[str, str, Callable[[Point], float]], ...] = (
        ("rounds", "round", lambda p: p.round),
        ("bytes", "MB sent, both directions", lambda p: p.bytes / 1e6),
    )
    plots = []
    for key, title, place in against:
        traces: list[dict[str, Any]] = []
        for method, colour in colours.items():
            curves = [{p.round: p for p in o.curve} for o in runs if o.method == method and o.curve]
            rounds = sorted(set.intersection(*(set(c) for c in curves))) if curves else []
            if len(rounds) < 2:
                continue
            scores = np.array([[c[r].scores[metric] for r in rounds] for c in curves])
            x = compact(np.mean([[place(c[r]) for r in rounds] for c in curves], axis=0), 3)
            mean, spread = scores.mean(axis=0), scores.std(axis=0)
            traces += band(x, mean - spread, mean + spread, colour) if len(curves) > 1 else []
            traces.append(line(method, x, mean, colour))
        if traces:
            layout = {
                "xaxis": axis(title),
                "yaxis": share_axis(metric.replace("_", " ")),
                "hovermode": "closest",
            }
            plots.append(
                Plot(f"curves-against-{key}", f"Mean over seeds, against {key}", traces, layout, 400)
            )
    return plots


def _cost(lines: Sequence[Line], metric: Metric, colours: dict[str, str]) -> Plot | None:
    """What was paid for the accuracy: each method is a dot."""
    scored = [line_ for line_ in lines if line_.mean[metric] is not None]
    if len(scored) < 2:
        return None
    traces = [
        {"type": "scatter", "mode": "markers+text", "name": line_.method, "x": [round(line_.bytes / 1e6, 3)],
         "y": compact([line_.mean[metric]]), "text": [line_.method], "textposition": "top center",
         "marker": {"size": 12, "color": colours[line_.method]}, "showlegend": False}
        for line_ in scored
    ]  # fmt: skip
    layout = {
        "xaxis": axis("MB sent by one run", rangemode="tozero"),
        "yaxis": share_axis(metric.replace("_", " ")),
    }
    return Plot(
        "accuracy-and-cost",
        "Accuracy and what it cost: higher and further left is better",
        traces,
        layout,
        380,
        wide=True,
    )


def _ranks(lines: Sequence[Line]) -> Block:
    ranks = sorted(mean_ranks(lines).items(), key=lambda item: item[1])
    rows = [[method, round(rank, 2)] for method, rank in ranks]
    sentence = f"{ranks[0][0]} has the best mean rank over all settings: {ranks[0][1]:.2f}; 1 is best."
    return Block([sentence], tables=[Table([Column("method"), Column("mean rank", "number")], rows)])
