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

import numpy as np

from feddag.clustering.outliers import BORDERLINE, confidence
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
    if clustering.splits:
        summary["splits"] = [
            {"view": s.view, "sizes": [len(part) for part in s.parts], "silhouette": rounded(s.silhouette)}
            for s in clustering.splits
        ]
    if clustering.views:
        sure = confidences(clustering)
        summary |= {"unlike": list(clustering.unlike), "borderline": borderline(sure)}
        if clustering.sampled is not None:  # clients.csv of a run holds everybody's
            summary |= {"landmarks": clustering.sampled.landmarks, "shown": len(clustering.clients)}
            sure = {c: sure[c] for c in clustering.clients if c in sure}
        summary |= {
            "confidence": {c: {"silhouette": rounded(s), "second": z} for c, (s, z) in sure.items()},
        }
    agreement = _agreement(clustering, truth)
    return summary | (agreement or {})


def confidences(clustering: Clustering) -> dict[str, tuple[float, int]]:
    """Of every client that was measured: its silhouette, and the second nearest cluster.

    The distances are those of the last view, by which clusters are in use. Nobody if there is one cluster.
    """
    used = clustering.clusters.labels()
    if clustering.sampled is not None:
        return {c: told for c, told in clustering.sampled.confidence.items() if c in used}
    rows = [i for i, client in enumerate(clustering.clients) if client in used]
    labels_N = np.array([used[clustering.clients[i]] for i in rows], dtype=np.int64)
    numbers, labels_N = np.unique(labels_N, return_inverse=True)
    if not clustering.views or len(numbers) < 2:
        return {}
    matrix_NN = list(clustering.views.values())[-1].matrix_NN[np.ix_(rows, rows)]
    sure_N, second_N = confidence(matrix_NN, labels_N)
    names = [clustering.clients[i] for i in rows]
    return {c: (float(s), int(numbers[z])) for c, s, z in zip(names, sure_N, second_N, strict=True)}


def borderline(sure: Mapping[str, tuple[float, int]]) -> list[str]:
    """Clients for whom the second nearest cluster is nearly as near as their own, the least sure first."""
    return sorted((c for c, (s, _) in sure.items() if s < BORDERLINE), key=lambda c: sure[c][0])


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
