# SPDX-License-Identifier: Apache-2.0
"""The page about a clustering: who is with whom, how that was decided, and pictures.

The page is one HTML file that opens from the disk without network. Any method that reports a `Clustering`
gets a page; whatever the method does not report is left out.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feddag.core.clustering import Clustering
from feddag.reporting.pages.cuts import CutFacts, cut_facts


@dataclass(frozen=True)
class PlantedTruth:
    """The groups that a simulation planted in its data. Nobody else knows them."""

    groups: Mapping[str, int]  # client → planted group
    names: Mapping[int, str] = field(default_factory=dict)  # planted group → what it is, in words


def write_clustering_page(
    folder: Path,
    clustering: Clustering,
    truth: PlantedTruth | None = None,
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Write index.html, clustering.json, report.json and every figure as PNG and SVG; return the summary.

    report.json is the part of a run's report that explains the clusters.

    The summary holds plain values: the content of clustering.json, and "page", the path of index.html.
    """
    from feddag.reporting.pages.content import page_content
    from feddag.reporting.pages.pictures import draw_pictures
    from feddag.reporting.pages.render import render
    from feddag.reporting.pages.section import save_block
    from feddag.reporting.pages.why import why_block

    facts = cut_facts(clustering)
    names = named_classes(clustering, class_names)
    summary = summarise_clustering(clustering, truth, facts)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = draw_pictures(folder, clustering, facts, names)
    content = page_content(clustering, summary, truth, facts, names, pictures)
    (folder / "clustering.json").write_text(json.dumps(summary, indent=1, allow_nan=False))
    save_block(folder / "report.json", why_block(clustering, truth, class_names))
    page = folder / "index.html"
    page.write_text(render("clustering.html", content), encoding="utf-8")
    return {**summary, "page": str(page)}


def summarise_clustering(
    clustering: Clustering, truth: PlantedTruth | None = None, facts: CutFacts | None = None
) -> dict[str, Any]:
    """The clustering as plain values; without the values that are not known."""
    clusters = clustering.clusters
    summary: dict[str, Any] = {
        "num_clusters": len(clusters),
        "sizes": [len(members) for members in clusters.members],
        "labels": clusters.labels(),
        "how": clustering.how,
        "withheld": clustering.withheld,
    }
    if clustering.tree is not None:
        summary["threshold"] = rounded(clustering.tree.threshold)
    if facts is not None:
        scores = {"silhouette": facts.silhouette, "loss": facts.loss}
        summary |= {name: rounded(score) for name, score in scores.items() if score is not None}
    if clustering.sources is not None:
        summary["learns_from"] = [list(edge) for edge in learning_edges(clustering)]
    agreement = _agreement(clustering, truth)
    return summary | (agreement or {})


def _agreement(clustering: Clustering, truth: PlantedTruth | None) -> dict[str, Any] | None:
    """How well the clusters match the planted groups, over the clients that have both."""
    if truth is None:
        return None
    both = [(truth.groups[c], z) for c, z in clustering.clusters.labels().items() if c in truth.groups]
    if not both:
        return None
    from sklearn.metrics import adjusted_rand_score

    planted, found = zip(*both, strict=True)
    return {"planted_groups": len(set(planted)), "ari": rounded(float(adjusted_rand_score(planted, found)))}


def learning_edges(clustering: Clustering) -> list[tuple[int, int]]:
    """Pairs of learner and source; a cluster that learns from itself is not a pair."""
    sources = clustering.sources or ()
    return [(p, q) for p, others in enumerate(sources) for q in others if p != q]


def named_classes(clustering: Clustering, class_names: Sequence[str]) -> list[str]:
    """A name for every class that was counted; "class 7" where there is none."""
    counted = 0 if clustering.counts_NC is None else clustering.counts_NC.shape[1]
    return [class_names[c] if c < len(class_names) else f"class {c}" for c in range(counted)]


def rounded(value: float) -> float | None:
    """Six decimals, as JSON can hold them: None for infinity and for not-a-number."""
    return round(float(value), 6) if math.isfinite(value) else None
