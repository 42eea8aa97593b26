# SPDX-License-Identifier: Apache-2.0
"""Writing the report: all sections in order, one file that opens from the disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feddag.core.files import write_durably
from feddag.reporting.pages.render import plots_json, render_interactive
from feddag.reporting.pages.report import (
    accuracy,
    clients,
    clusters,
    cost,
    lifecycle,
    overview,
    privacy,
    settings,
)
from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.section import Maker, Plot, Section

# The sections of a report, in the order of the page. See CONTRIBUTING.md for how to add one.
SECTIONS = (
    Maker("runs", "Runs", overview.table, per_run=False),
    Maker("accuracy", "Accuracy", accuracy.block, per_run=False),
    Maker("clients", "Clients", clients.distribution, per_run=False),
    Maker("over-rounds", "Clients over the rounds", clients.over_rounds),
    Maker("lifecycle", "Joining, leaving, changing", lifecycle.block),
    Maker("clusters", "Clusters", clusters.curves),
    Maker("classes", "Classes", clusters.classes),
    Maker("why", "Why these clusters", clusters.why),
    Maker("privacy", "What left whom", privacy.block),
    Maker("cost", "Cost", cost.phases, per_run=False),
    Maker("rounds", "Rounds", cost.rounds_block),
    Maker("failures", "Failures", cost.failures),
    Maker("differences", "What differs", settings.differences, per_run=False),
    Maker("settings", "Settings", settings.settings),
)
FOOTER = (
    "Made by feddag. Accuracy is that of the model as served, before local training, in the last round, "
    "as a mean over clients without weights. No test sample chose anything."
)


def report_html(runs: Sequence[RunData]) -> str:
    """The report as HTML."""
    sections = [made for maker in SECTIONS if (made := maker.section(runs)) is not None]
    content = {"title": overview.title(runs), "answer": overview.answer(runs), "tiles": overview.tiles(runs)}
    return page_html(sections, content | {"footer": FOOTER})


def page_html(sections: Sequence[Section], content: dict[str, Any]) -> str:
    """A page of sections; `content` holds title, answer, tiles and footer."""
    plots, first_plots = numbered_plots(sections)
    inside = {"sections": sections, "first_plots": first_plots, "plots": plots_json(plots)}
    return render_interactive("page.html", inside | content)


def numbered_plots(sections: Sequence[Section]) -> tuple[list[Plot], dict[str, list[int]]]:
    """All plots of a page, and the number of the first plot of each block of each section."""
    plots: list[Plot] = []
    first_plots: dict[str, list[int]] = {}
    for section in sections:
        first_plots[section.key] = []
        for block in section.blocks:
            first_plots[section.key].append(len(plots))
            plots += block.plots
    return plots, first_plots


def write_report(runs: Sequence[RunData], path: Path) -> Path:
    """Write the report; returns the path."""
    write_durably(path, report_html(runs).encode())
    return path
