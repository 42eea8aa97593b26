# SPDX-License-Identifier: Apache-2.0
"""The picture of an audit: one panel per attack, with its target and what guessing gives."""

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

from feddag.reporting.text import figure_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GUESSING = {"membership": 0.5, "tail": 0.01, "re-identification": 1.0, "counts": 0.0, "canaries": 0.0}
NAMES = {
    "membership": "membership: AUC",
    "tail": "unusual samples found at 1% false alarms",
    "re-identification": "members picked, times guessing",
    "counts": "one sample seen in a count: advantage over a coin",
    "canaries": "planted samples: proven ε",
}
COLOURS = {"within": "#228833", "unclear": "#ccbb44", "above": "#ee6677"}
SUMMARY = {
    "above": "some goals are not met",
    "unclear": "no goal is surely missed",
    "within": "all goals are met",
}  # the first that applies
LIMIT = "#444444"
SURE = 2.6  # standard errors that bars show


def audit_figure(audit: Mapping[str, Any]) -> "Figure":
    """Curves over the class size, or single bars, green where the goal is surely met."""
    from matplotlib.figure import Figure

    findings = audit["findings"]
    figure = Figure(figsize=(3.6 * len(findings), 4.1), layout="constrained")
    verdict = next(
        (text for verdict, text in SUMMARY.items() if any(f["verdict"] == verdict for f in findings)), ""
    )
    figure.suptitle(
        f"Privacy audit: {figure_label(audit['dataset'], 40)}, level '{audit['level']}': {verdict}"
    )
    for axes, finding in zip(figure.subplots(1, len(findings), squeeze=False)[0], findings, strict=True):
        colour = COLOURS[finding["verdict"]]
        if finding["curve"]:
            sizes, values, errors = zip(*finding["curve"], strict=True)
            axes.errorbar(sizes, values, [SURE * e for e in errors], marker="o", color=colour, capsize=2)
            axes.set_xscale("log")
            axes.set_xlabel("samples of the class")
            if max(values) > 20 * finding["target"]:
                axes.set_yscale("log")
        else:
            axes.bar([0], [finding["value"]], yerr=[SURE * finding["error"]], width=0.5, color=colour)
            axes.set_xticks([])
            axes.set_xlim(-1, 1)
        axes.axhline(finding["target"], color=LIMIT, linestyle="--", label="goal")
        axes.axhline(GUESSING[finding["attack"]], color=LIMIT, linestyle=":", label="guessing")
        axes.set_title(fill(NAMES[finding["attack"]], 30), fontsize=10)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    return figure
