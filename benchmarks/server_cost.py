# SPDX-License-Identifier: Apache-2.0
"""Server cost: seconds and peak memory of every step from signatures to clusters and graph.

    python benchmarks/server_cost.py --clients 100 1000 5000 10000 --width 784 3072 --json server.json

Synthetic signatures: every client has 10 classes and 3 vectors each, in five groups. Each size runs in its
own process, with one thread unless --threads says more: idle threads of a matrix product spin, and would
count as work. "CPU s" is the processors' time: the one to read on a busy machine. Signatures lie in a
memory-mapped file, as a server would keep them, so that they can be paged out: "anonymous" is memory that
cannot, "peak" includes mapped pages that the system chose to keep. The matrix products that all angles need
are timed bare, some blocks of them, and their time for all blocks is stated as the bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

CLASSES, VECTORS, GROUPS = 10, 3, 5


def memory() -> tuple[float, float]:
    """Anonymous and whole resident memory of this process now, in GB."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return tuple(int(fields[name].split()[0]) / 1e6 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]


class Watch:
    """Peak memory and seconds of one step, sampled every 20 ms."""

    def __enter__(self) -> "Watch":
        self.peak, self.done = [0.0, 0.0], threading.Event()
        self.thread = threading.Thread(target=self._sample)
        self.thread.start()
        self.begin = time.perf_counter(), time.process_time()
        return self

    def _sample(self) -> None:
        while True:
            self.peak = [max(a, b) for a, b in zip(self.peak, memory(), strict=True)]
            if self.done.wait(0.02):
                return

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self.begin[0]
        self.processor = time.process_time() - self.begin[1]
        self.done.set()
        self.thread.join()


def signatures(n: int, width: int, folder: Path) -> tuple[list, np.ndarray, np.ndarray]:
    """Unit vectors near a base of the group and class, in one mapped file; counts and update sketches."""
    from feddag.clustering.subspaces import Subspaces

    generator = np.random.default_rng(0)
    rows = CLASSES * VECTORS
    base = generator.normal(size=(GROUPS, CLASSES, VECTORS, width)).astype(np.float32)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (n, rows, width))
    for i in range(n):
        noisy = base[i % GROUPS] + 0.5 * generator.standard_normal(base.shape[1:], dtype=np.float32)
        lower = np.linalg.cholesky((noisy @ noisy.transpose(0, 2, 1)).astype(np.float64))
        vectors[i] = np.linalg.solve(lower, noisy.astype(np.float64)).reshape(rows, width)
    vectors.flush()
    del vectors
    mapped = np.load(folder / "vectors.npy", mmap_mode="r")
    labels = np.repeat(np.arange(CLASSES), VECTORS)
    items = [Subspaces(mapped[i], labels) for i in range(n)]
    counts = generator.integers(5, 500, size=(n, CLASSES))
    sketches = generator.normal(size=(GROUPS, 1234))[np.arange(n) % GROUPS] + generator.normal(size=(n, 1234))
    return items, counts, sketches.astype(np.float32)


def bare_products(n: int, width: int) -> tuple[float, float]:
    """Seconds and CPU seconds of the products of all blocks of all classes, from some of them."""
    from feddag.clustering.angles import BLOCK_ITEMS

    side = min(n, BLOCK_ITEMS) * VECTORS
    generator = np.random.default_rng(1)
    left, right = (generator.standard_normal((side, width), dtype=np.float32) for _ in range(2))
    left @ right.T
    begin, repeats = (time.perf_counter(), time.process_time()), 0
    while time.process_time() - begin[1] < 1.0:
        left @ right.T
        repeats += 1
    # All blocks on and above the diagonal, by their area; diagonal blocks are computed whole.
    sizes = [min(BLOCK_ITEMS, n - start) for start in range(0, n, BLOCK_ITEMS)]
    area = sum(a * b for i, a in enumerate(sizes) for b in sizes[i:]) * VECTORS**2 * CLASSES
    blocks = area / side**2 / repeats
    return (time.perf_counter() - begin[0]) * blocks, (time.process_time() - begin[1]) * blocks


def literal_angles(items: list, counts: np.ndarray) -> np.ndarray:
    """Eq. 4 as it is written: a loop over pairs and classes (unweighted)."""
    n = len(items)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            for c in range(CLASSES):
                ours = items[i].vectors_PD[items[i].classes_P == c]
                theirs = items[j].vectors_PD[items[j].classes_P == c]
                out[i, j] += np.degrees(np.arccos(min(1.0, float(np.abs(ours @ theirs.T).max())))) / CLASSES
    return out


def measure(n: int, width: int) -> dict:
    """All steps at one size, in this process."""
    from feddag.clustering.agglomerative import agreement, link
    from feddag.clustering.angles import KeptAngles
    from feddag.clustering.complementarity import cluster_alignment, complementarity_graph
    from feddag.clustering.cut import choose_cut
    from feddag.clustering.fusion import entropy_weights, fuse, structure_weight
    from feddag.clustering.items import Items
    from feddag.clustering.options import ClusteringOptions
    from feddag.clustering.pipeline import cluster_signatures
    from feddag.clustering.proximity import measure as measure_angles
    from feddag.clustering.scores import score_cuts
    from feddag.clustering.similarity import gradient_angles, min_max, normalised
    from feddag.clustering.subspaces import Subspaces

    report: dict = {"clients": n, "width": width, "steps": {}}

    def step(name: str, function, *arguments, **options):
        with Watch() as watch:
            value = function(*arguments, **options)
        report["steps"][name] = [
            round(watch.seconds, 3),
            round(watch.processor, 3),
            *(round(p, 2) for p in watch.peak),
        ]
        return value

    with tempfile.TemporaryDirectory() as folder:
        items, counts, sketches = signatures(n, width, Path(folder))
        report["steps"]["bare products of all vectors (bound)"] = [*bare_products(n, width), 0.0, 0.0]
        if n <= 100:
            step("literal loop over pairs and classes", literal_angles, items, counts)
        together = Items.of(items, counts)
        paper = ClusteringOptions(angles="pairs", class_weighting="frequency")
        step("data angles, pairs (paper)", measure_angles, together, paper)
        kept = KeptAngles()
        default = ClusteringOptions()
        _, views = step("data angles, subspaces (default)", measure_angles, together, default, kept)
        data = views.data
        gradient = step("gradient angles", gradient_angles, sketches)
        data, gradient = normalised(data, min_max(data)), normalised(gradient, min_max(gradient))
        weight = step("fusion weight (default)", structure_weight, data, gradient, ClusteringOptions())
        step("fusion weights by entropy", entropy_weights, data, gradient)
        fused = step("fused matrix", fuse, data, gradient, np.full(n, weight))
        linked = step("linkage", link, fused)
        step("20 cuts scored", score_cuts, fused, linked)
        cut = step("whole choice, with linkage and cuts", choose_cut, fused)
        name = "alignment, from kept angles" if kept.blocks is not None else "alignment, of a sample"
        alignment = step(name, cluster_alignment, together, cut.labels_N, "subspace", known=kept.blocks)
        step("graph", complementarity_graph, counts, cut.labels_N, alignment, distances_NN=fused)
        # What FedDAG asks for: the vectors stand for two views, and class means of 12 numbers for texture.
        textures = [Subspaces(np.abs(item.vectors_PD[::VECTORS, :12]), np.arange(CLASSES)) for item in items]
        told = Items.of(items, counts, sketches, shapes=items, textures=textures)
        found = step("all views to clusters and graph (default)", cluster_signatures, told)
    report["agreement"] = agreement(found.labels_N, np.arange(n) % GROUPS)
    return report


def main() -> None:
    """One process per size; print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--width", type=int, nargs="+", default=[784])
    parser.add_argument("--threads", type=int, default=1, help="threads of one matrix product")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--one", action="store_true", help="measure in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.clients[0], arguments.width[0])))
        return
    reports = []
    for width in arguments.width:
        for n in arguments.clients:
            command = [sys.executable, __file__, "--one", "--clients", str(n), "--width", str(width)]
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(arguments.threads)}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                print(f"N={n} d={width}: failed ({done.returncode}): {done.stderr.strip()[-200:]}")
                continue
            reports.append(json.loads(done.stdout))
            found = f"agreement with the groups {reports[-1]['agreement']:.2f}"
            print(f"\nN={n} d={width} threads={arguments.threads}, {found}")
            print(f"{'step':<38}{'seconds':>9}{'CPU s':>9}{'anonymous GB':>14}{'peak GB':>9}")
            for name, (seconds, processor, anonymous, peak) in reports[-1]["steps"].items():
                print(f"{name:<38}{seconds:9.2f}{processor:9.2f}{anonymous:14.2f}{peak:9.2f}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
