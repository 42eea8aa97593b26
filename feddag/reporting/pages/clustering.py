# SPDX-License-Identifier: Apache-2.0
"""The "why this clustering" page: one HTML file that opens offline, and every figure as PNG and SVG."""

import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from feddag.reporting.figures import clustering as figures

# Nothing on the page may run or load anything: client and class names come from strangers.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem} h2{font-size:1.1rem;margin-top:2rem} .row{display:flex;flex-wrap:wrap;gap:1rem}
table{border-collapse:collapse;font-size:13px} th{background:#f4f4f4} svg{max-width:100%;height:auto}
td,th{border:1px solid #ddd;padding:.2rem .5rem;text-align:left}
.fact{background:#f4f7fb;padding:.6rem 1rem;border-radius:6px}
"""


@dataclass(frozen=True)
class Explanation:
    """Everything the page shows; arrays only, so that any method that clusters can fill it."""

    clients: Sequence[str]
    labels_N: np.ndarray
    counts_NC: np.ndarray
    matrices: Mapping[str, tuple[np.ndarray, str]]  # title → (matrix, unit)
    linkage_matrix: np.ndarray
    threshold: float
    thresholds_T: np.ndarray
    counts_T: np.ndarray
    losses_T: np.ndarray
    silhouettes_T: np.ndarray
    rule: str  # how the cut was chosen, in words
    weights_N: np.ndarray | None = None
    edges: tuple[np.ndarray, np.ndarray] | None = None  # learners, sources
    withheld: int = 0  # class signatures that were not sent, for privacy
    class_names: Sequence[str] = ()
    groups: Mapping[str, int] = field(default_factory=dict)  # planted truth, where known

    @property
    def num_clusters(self) -> int:
        """Number of clusters."""
        return int(self.labels_N.max(initial=-1)) + 1


def summarise(explanation: Explanation) -> dict[str, Any]:
    """The clustering as plain values: labels, number, threshold, scores and agreement with planted groups."""
    e = explanation
    at = int(np.argmin(np.abs(e.thresholds_T - e.threshold))) if len(e.thresholds_T) else 0
    silhouette = float(e.silhouettes_T[at]) if len(e.silhouettes_T) else float("nan")
    summary: dict[str, Any] = {
        "num_clusters": e.num_clusters,
        "threshold": round(e.threshold, 6),
        "rule": e.rule,
        "loss": round(float(e.losses_T[at]), 6) if len(e.losses_T) else None,
        "silhouette": None if np.isnan(silhouette) else round(silhouette, 6),
        "sizes": np.bincount(e.labels_N, minlength=e.num_clusters).tolist(),
        "labels": {client: int(label) for client, label in zip(e.clients, e.labels_N, strict=True)},
        "withheld": e.withheld,
    }
    if e.edges is not None:
        pairs = zip(*e.edges, strict=True)
        summary["learns_from"] = [[int(learner), int(source)] for learner, source in pairs]
    if e.groups:
        truth = [e.groups[client] for client in e.clients]
        summary["planted_groups"] = len(set(truth))
        summary["ari"] = round(_adjusted_rand(truth, e.labels_N), 6)
    return summary


def write_page(folder: Path, explanation: Explanation, title: str = "Why this clustering") -> Path:
    """Write index.html, clustering.json and the figures; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(explanation)
    pictures = {name: _save(figure, folder / name) for name, figure in _figures(explanation).items()}
    (folder / "clustering.json").write_text(json.dumps(summary, indent=1))
    page = folder / "index.html"
    page.write_text(_html(explanation, summary, pictures, title), encoding="utf-8")
    return page


def _figures(e: Explanation) -> dict[str, Figure]:
    order_N = figures.leaf_order(e.linkage_matrix, len(e.clients))
    class_names = list(e.class_names) or [str(c) for c in range(e.counts_NC.shape[1])]
    counts_ZC = np.stack([e.counts_NC[e.labels_N == z].sum(axis=0) for z in range(e.num_clusters)])
    drawn = {
        f"matrix-{_slug(name)}": figures.draw_matrix(matrix, e.labels_N, order_N, name, unit)
        for name, (matrix, unit) in e.matrices.items()
    }
    drawn["dendrogram"] = figures.draw_dendrogram(e.linkage_matrix, e.labels_N, list(e.clients), e.threshold)
    drawn["threshold"] = figures.draw_curves(
        e.thresholds_T, e.counts_T, e.losses_T, e.silhouettes_T, e.threshold
    )
    if e.weights_N is not None:
        drawn["weights"] = figures.draw_weights(e.weights_N, e.labels_N, order_N)
    drawn["classes"] = figures.draw_classes(counts_ZC, class_names)
    if e.edges is not None:
        drawn["graph"] = figures.draw_graph(*e.edges, np.bincount(e.labels_N, minlength=e.num_clusters))
    return drawn


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _save(figure: Figure, path: Path) -> str:
    """Save as PNG and SVG; the SVG as text for the page (its glyphs are outlines: no fonts needed)."""
    figure.savefig(path.with_suffix(".png"), dpi=130)
    text = io.StringIO()
    # A fixed salt and no date: the same clustering gives the same file.
    with mpl.rc_context({"svg.hashsalt": path.name}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    path.with_suffix(".svg").write_text(text.getvalue(), encoding="utf-8")
    return text.getvalue()[text.getvalue().index("<svg") :]


def _html(e: Explanation, summary: dict[str, Any], pictures: Mapping[str, str], title: str) -> str:
    def picture(*names: str) -> str:
        shown = "".join(f"<div>{pictures[n]}</div>" for n in names if n in pictures)
        return f'<div class="row">{shown}</div>'

    matrices = [name for name in pictures if name.startswith("matrix-")]
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="fact">{html.escape(_in_words(e, summary))}</p>',
        "<h2>How near the clients are to each other</h2>",
        "<p>Dark is near. Blocks along the diagonal are groups; the strip shows the clusters chosen.</p>",
        picture(*matrices),
        "<h2>Where the tree was cut</h2>",
        picture("dendrogram"),
        f"<p>{html.escape(e.rule)}</p>",
        picture("threshold"),
    ]
    if e.weights_N is not None:
        sections += ["<h2>Which view counted for whom</h2>", picture("weights")]
    sections += ["<h2>What the clusters hold, and who learns from whom</h2>", picture("classes", "graph")]
    if e.groups:
        sections += ["<h2>Agreement with the planted groups</h2>", _agreement_table(e)]
    sections += ["<h2>Members</h2>", _member_table(e)]
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    )
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(sections)}</body></html>"


def _in_words(e: Explanation, summary: dict[str, Any]) -> str:
    sizes = ", ".join(map(str, summary["sizes"]))
    words = (
        f"{len(e.clients)} clients fall into {e.num_clusters} clusters of {sizes}, cut at {e.threshold:.3f}."
    )
    if e.num_clusters == 1:
        words = f"{len(e.clients)} clients show no structure worth splitting: one cluster."
    if e.groups:
        words += f" {summary['planted_groups']} groups were planted; "
        words += f"agreement (adjusted Rand index) {summary['ari']:.3f}."
    words += f" {e.withheld} class signatures were withheld for privacy."
    return words


def _agreement_table(e: Explanation) -> str:
    groups = sorted(set(e.groups.values()))
    rows = []
    for z in range(e.num_clusters):
        members = [c for c, label in zip(e.clients, e.labels_N, strict=True) if label == z]
        cells = "".join(f"<td>{sum(e.groups[c] == g for c in members) or ''}</td>" for g in groups)
        rows.append(f"<tr><th>cluster {z}</th>{cells}</tr>")
    head = "".join(f"<th>group {g}</th>" for g in groups)
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _member_table(e: Explanation) -> str:
    rows = []
    for z in range(e.num_clusters):
        members = [c for c, label in zip(e.clients, e.labels_N, strict=True) if label == z]
        names = html.escape(", ".join(members))
        cells = f"<td>{len(members)}</td><td>{names}</td>"
        rows.append(f'<tr><th style="color:{figures.colour(z)}">{z}</th>{cells}</tr>')
    return f"<table><tr><th>cluster</th><th>clients</th><th>who</th></tr>{''.join(rows)}</table>"


def _adjusted_rand(truth: Sequence[int], labels_N: np.ndarray) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, labels_N))
