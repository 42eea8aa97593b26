# SPDX-License-Identifier: Apache-2.0
"""Clusterings, outcomes and checks that several tests of reporting share."""

import io
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from feddag.core.clustering import Clustering, Tree, View
from feddag.core.clusters import Clusters
from feddag.reporting.tables.comparison import Outcome, Point

HOSTILE = ["$", "[/b]", "<script>", "a_b%&", "\n", "é", "=1+1"]
ALL_HOSTILE = " ".join(HOSTILE) + "x^2$ [red]"  # two dollar signs: matplotlib would read a formula


def clients(n: int) -> tuple[str, ...]:
    return tuple(f"c{i:03d}" for i in range(n))


def tree_of(names: tuple[str, ...], positions: np.ndarray, threshold: float) -> Tree:
    """A tree of points on a line, with one plain cut per threshold."""
    distances_NN = np.abs(positions[:, None] - positions[None, :])
    if len(names) < 2:
        return Tree(names, np.zeros((0, 4)), threshold)
    linkage_matrix = linkage(squareform(distances_NN, checks=False), "average")
    thresholds_T = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 100.0])
    counts_T = np.array([len(names) - int((linkage_matrix[:, 2] <= t).sum()) for t in thresholds_T])
    return Tree(
        clients=names,
        linkage_matrix=linkage_matrix,
        threshold=threshold,
        thresholds_T=thresholds_T,
        counts_T=counts_T,
        losses_T=np.linspace(0.9, 0.1, len(thresholds_T)),
        silhouettes_T=np.linspace(0.1, 0.6, len(thresholds_T)),
    )


def full_clustering(n: int, num_classes: int = 3, names: tuple[str, ...] = (), **changes: Any) -> Clustering:
    """A clustering with everything in it: two groups on a line, the first half and the second half."""
    names = names or clients(n)
    labels_N = (np.arange(n) >= (n + 1) // 2).astype(int)
    positions_N = 10.0 * labels_N + np.linspace(0, 1, n) ** 2
    distances_NN = np.abs(positions_N[:, None] - positions_N[None, :])
    counts_NC = np.zeros((n, num_classes))
    counts_NC[np.arange(n), labels_N % num_classes] = 10
    counts_NC[:, -1] += 1
    fields: dict[str, Any] = {
        "clusters": Clusters(
            members=tuple(
                members
                for z in (0, 1)
                if (members := tuple(c for c, label in zip(names, labels_N, strict=True) if label == z))
            )
        ),
        "how": "Two groups were found.",
        "clients": names,
        "views": {
            "Data angles": View(distances_NN, "degrees"),
            "Gradient angles": View(distances_NN**2, "degrees"),
        },
        "counts_NC": counts_NC,
        "weights_N": np.linspace(0, 1, n),
        "tree": tree_of(names, positions_N, threshold=4.0),
        "sources": ((0, 1), (0,))[: max(1, int(labels_N.max(initial=0)) + 1)] if n > 1 else ((),) * n,
        "withheld": 0,
    }
    return Clustering(**{**fields, **changes})


def outcome(method: str, seed: int, accuracy: float, curve=(), setting: str = "", **fields: Any) -> Outcome:
    scores = {"accuracy": accuracy, "balanced_accuracy": accuracy / 2}
    points = tuple(Point(r, {"accuracy": a, "balanced_accuracy": a / 2}, b) for r, a, b in curve)
    values = {"after": {}, "newcomers": {}, "bytes_down": 3_000_000, "bytes_up": 1_000_000, "seconds": 2.0}
    return Outcome(method, setting, seed, scores, curve=points, **{**values, **fields})


def check_png(path: Path) -> None:
    """The file is a PNG that opens and is not one single colour."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        low, high = image.convert("L").getextrema()
    assert low < high


def check_svg(path: Path) -> None:
    """The file is well-formed XML whose root is an SVG element."""
    assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def shown_texts(figure: Figure) -> list[str]:
    """Every text that a figure shows, after layout; formulas would be missing here as plain text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(figure).draw()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text()]
    plain = [t._preprocess_math(t.get_text()) for t in texts]
    return [text for text, is_formula in plain if not is_formula]


def recording_console(encoding: str = "utf-8", terminal: bool = False, width: int = 100) -> Console:
    """A console that writes into memory, with a strict encoding as a real terminal has."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict", write_through=True)
    return Console(file=stream, width=width, force_terminal=terminal, color_system=None)


def recorded(console: Console) -> str:
    """What was printed to a recording console."""
    console.file.flush()
    raw = console.file.buffer.getvalue()  # type: ignore[attr-defined]
    return raw.decode(console.encoding)
