# SPDX-License-Identifier: Apache-2.0
"""How large a report is and how long it takes, at 1,000 clients and 200 rounds.

    python -m benchmarks.pages.report_size [FOLDER]

The run folder is made up. The page is then opened in a headless Chromium: "usable" is when the first plots
are drawn. Processor seconds are those of the page's own thread: they hold on a busy machine too. It also says
whether a request left the page or an error was printed.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from feddag.core.clustering import Clustering, View
from feddag.core.clusters import Clusters
from feddag.reporting.pages.report.run_data import CLUSTERING_BLOCK, read_run
from feddag.reporting.pages.report.write import write_report
from feddag.reporting.pages.section import save_block
from feddag.reporting.pages.why import why_block
from tests.reporting.run_folders import run_folder
from tests.reporting.toys import tree_of
from tests.support.browser import Browser

CLIENTS, ROUNDS, CLUSTERS, CLASSES = 1000, 200, 8, 10
CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot")
DRAWN = "document.querySelectorAll('.chart[data-drawn]').length"
USABLE = f"""new Promise(done => {{
const look = () => {DRAWN} >= 3 ? done(performance.now()) : setTimeout(look, 10); look(); }})"""


def explain(folder: Path) -> None:
    """A clustering of all clients with three views and a tree, as FedDAG gives it."""
    names = tuple(json.loads((folder / "data.json").read_text())["counts"])
    labels_N = np.arange(len(names)) % CLUSTERS
    rng = np.random.default_rng(0)
    positions_N = 10.0 * labels_N + rng.random(len(names))
    distances_NN = np.abs(positions_N[:, None] - positions_N[None, :])
    clustering = Clustering(
        clusters=Clusters(members=tuple(tuple(names[z::CLUSTERS]) for z in range(CLUSTERS))),
        how="Made up for a benchmark.",
        clients=names,
        views={f"View {k}": View(distances_NN**k, "degrees") for k in (1, 2, 3)},
        counts_NC=rng.integers(0, 50, (len(names), CLASSES)).astype(float),
        tree=tree_of(names, positions_N, threshold=4.0),
    )
    (folder / "clustering").mkdir()
    save_block(folder / CLUSTERING_BLOCK, why_block(clustering, None, CLOTHES))


def measure(folder: Path) -> dict[str, float | int | str]:
    """Write the report and open it."""
    started = time.process_time()
    path = write_report([read_run(folder)], folder / "report.html")
    seconds = time.process_time() - started
    with Browser() as browser:
        browser.open("about:blank")  # the browser itself is warm
        page = browser.open(path.as_uri())
        usable = page.run(USABLE)
        busy = page.processor_seconds()
        page.run("window.feddagDrawAll().then(() => 1)")
        whole = page.processor_seconds() - busy
        outside = [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))]
        return {
            "log, MB": round((folder / "events.jsonl").stat().st_size / 1e6, 1),
            "page, MB": round(path.stat().st_size / 1e6, 2),
            "written in, processor s": round(seconds, 2),
            "usable after, s": round(usable / 1000, 2),
            "usable after, processor s": round(busy, 2),
            "all plots drawn, processor s": round(whole, 2),
            "plots": page.run("document.querySelectorAll('.chart').length"),
            "requests to elsewhere": len(outside),
            "errors": len(page.problems),
        }


def main() -> None:
    """Make the run, measure, print."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary) / "run"
        run_folder(folder, clients=CLIENTS, rounds=ROUNDS, clusters=CLUSTERS, classes=CLOTHES, failures=True)
        explain(folder)
        for name, value in measure(folder).items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
