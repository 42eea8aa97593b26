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
GOOD, BAD, LIMIT = "#228833", "#ee6677", "#444444"


def audit_figure(audit: Mapping[str, Any]) -> "Figure":
    """Curves over the class size, or single bars, green where the target holds."""
    from matplotlib.figure import Figure

    findings = audit["findings"]
    figure = Figure(figsize=(3.6 * len(findings), 4.1), layout="constrained")
    verdict = "all targets hold" if audit["passed"] else "some targets do not hold"
    figure.suptitle(
        f"Privacy audit: {figure_label(audit['dataset'], 40)}, level '{audit['level']}': {verdict}"
    )
    for axes, finding in zip(figure.subplots(1, len(findings), squeeze=False)[0], findings, strict=True):
        colour = GOOD if finding["passed"] else BAD
        if finding["curve"]:
            sizes, values = zip(*finding["curve"], strict=True)
            axes.plot(sizes, values, marker="o", color=colour)
            axes.set_xscale("log")
            axes.set_xlabel("samples of the class")
            if max(values) > 20 * finding["target"]:
                axes.set_yscale("log")
        else:
            axes.bar([0], [finding["value"]], width=0.5, color=colour)
            axes.set_xticks([])
            axes.set_xlim(-1, 1)
        axes.axhline(finding["target"], color=LIMIT, linestyle="--", label="target")
        axes.axhline(GUESSING[finding["attack"]], color=LIMIT, linestyle=":", label="guessing")
        axes.set_title(fill(NAMES[finding["attack"]], 30), fontsize=10)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    return figure
