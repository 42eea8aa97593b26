# SPDX-License-Identifier: Apache-2.0
"""Clustering of very many clients: seconds, memory, and agreement with the planted groups.

    python benchmarks/many_clients.py --clients 10000 100000

Signatures have the default form for 3 x 32 x 32 images (3,072 numbers, averaged to 768): every client has 10
classes, with 3 principal vectors of pixels and of shape each, textures, counts, and the sketch of an update.
They are made block by block when they are read, as they would come from a disk or from clients: 100,000 of
them would take 18 GB. Making them is timed apart ("making"); their memory is part of the peak.

Planted: four concepts in two styles, of unequal sizes, and a rare ninth group (one in 2,000 clients), of
which a sample of landmarks has too few members. `--whole` also clusters everybody at once.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CLASSES, VECTORS, WIDTH, BANDS, SKETCH = 10, 3, 768, 12, 1234
GROUPS, RARE = 8, 2000  # ordinary groups; one client in so many belongs to one more
CONCEPTS, POOL = 5, 256


class MadeSignatures:
    """A reader of signatures that are put together when they are read, from the client's number and a seed.

    There are `POOL` samples of vectors for every concept and class; a client takes one for each class.
    """

    def __init__(self, clients: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.seed, self.seconds = seed, 0.0
        shares = np.arange(2, 2 + GROUPS) / np.arange(2, 2 + GROUPS).sum()
        self.groups_N = rng.choice(GROUPS, size=clients, p=shares)
        self.groups_N[:: min(RARE, max(clients // 5, 1))] = GROUPS
        # Unit length on average: what all concepts share, and what is their own.
        shape = (CLASSES, 1, VECTORS, WIDTH)
        common = rng.standard_normal((2, 1, *shape), dtype=np.float32) / np.sqrt(WIDTH)
        own = rng.standard_normal((2, CONCEPTS, *shape), dtype=np.float32) / np.sqrt(WIDTH)
        # The expected sin² of a vector's error falls with the number of samples, as for real classes.
        self.counts = rng.integers(5, 50, size=(CONCEPTS, CLASSES, POOL))
        size = np.sqrt(1.0 / self.counts / WIDTH).astype(np.float32)[..., None, None]
        self.vectors = np.empty((2, CONCEPTS, CLASSES, POOL, VECTORS, WIDTH), dtype=np.float32)
        for view in range(2):
            for concept in range(CONCEPTS):
                noise = rng.standard_normal((CLASSES, POOL, VECTORS, WIDTH), dtype=np.float32)
                noisy = (common + 0.5 * own)[view, concept] + size[concept] * noise
                self.vectors[view, concept] = _orthonormal(noisy)
        self.styles = rng.uniform(0.2, 0.8, size=(2, CLASSES, BANDS))

    def __len__(self) -> int:
        return len(self.groups_N)

    def read(self, rows: np.ndarray, views: tuple[str, ...] | None) -> tuple[np.ndarray, object]:
        """The signatures of some clients; the same bits whenever they are read."""
        from feddag.clustering.items import Items
        from feddag.clustering.subspaces import Subspaces

        begin = time.process_time()
        classes, per_class = np.arange(CLASSES), np.repeat(np.arange(CLASSES), VECTORS)
        told: list[list] = [[], [], []]
        counts, sketches = [], []
        for i in rows.tolist():
            rng = np.random.default_rng([self.seed, i])
            group = int(self.groups_N[i])
            concept, style = (4, 0) if group == GROUPS else (group % 4, group // 4)
            taken_C = rng.integers(POOL, size=CLASSES)
            counts_C = self.counts[concept, classes, taken_C]
            for view in range(2):
                vectors = self.vectors[view, concept, classes, taken_C].reshape(-1, WIDTH)
                told[view].append(Subspaces(vectors, per_class))
            noise = rng.normal(size=(CLASSES, BANDS)) * 0.1 / np.sqrt(counts_C)[:, None]
            means = np.clip(self.styles[style] + noise, 0, 1).astype(np.float32)
            told[2].append(Subspaces(means, classes))
            counts.append(counts_C)
            if views is None or "gradient" in views:
                sketches.append(rng.standard_normal(SKETCH, dtype=np.float32))
        counts_NC = np.array(counts, dtype=np.float64)
        items = Items(told[0], counts_NC, np.array(sketches) if sketches else None, told[1], told[2])
        self.seconds += time.process_time() - begin
        return rows, items


def _orthonormal(vectors: np.ndarray) -> np.ndarray:
    """Orthonormal bases in place of the last two axes."""
    grams = (vectors @ np.swapaxes(vectors, -1, -2)).astype(np.float64)
    return np.linalg.inv(np.linalg.cholesky(grams)).astype(np.float32) @ vectors


def measure(clients: int, landmarks: int, seed: int, whole: bool) -> dict:
    """One size in this process."""
    from feddag.clustering.agglomerative import agreement
    from feddag.clustering.options import ClusteringOptions
    from feddag.clustering.pipeline import cluster_signatures

    reader = MadeSignatures(clients, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, begin = time.perf_counter(), time.process_time()
    found = cluster_signatures(reader, ClusteringOptions(landmarks=landmarks), seed=seed)
    seconds, processor = time.perf_counter() - wall, time.process_time() - begin
    report = {
        "clients": clients,
        "landmarks": min(landmarks, clients),
        "seconds": seconds,
        "cpu": processor,
        "making": reader.seconds,
        "start_gb": before / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "clusters": found.count,
        "ari": agreement(found.labels_N, reader.groups_N),
        "unlike": int(found.unlike_N.sum()),
        "opened": len(found.everyone.opened_from) if found.everyone is not None else 0,
    }
    if whole:
        begin = time.process_time()
        everybody = cluster_signatures(reader, ClusteringOptions(landmarks=0), seed=seed)
        report["whole_cpu"] = time.process_time() - begin
        report["same"] = agreement(found.labels_N, everybody.labels_N)
    return report


def main() -> None:
    """One process per size; print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000])
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1, help="threads of one matrix product")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="cluster everybody at once, too, and compare")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--one", action="store_true", help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.clients[0], options.landmarks, options.seed, options.whole)))
        return
    reports = []
    print(f"{'clients':>9}{'seconds':>9}{'CPU s':>8}{'making':>8}{'peak GB':>9}{'clusters':>10}{'ARI':>8}")
    for clients in options.clients:
        command = [sys.executable, __file__, "--one", "--clients", str(clients)]
        command += ["--landmarks", str(options.landmarks), "--seed", str(options.seed)]
        command += ["--whole"] if options.whole else []
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(options.threads)}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        r = json.loads(done.stdout)
        reports.append(r)
        print(
            f"{clients:9,}{r['seconds']:9.1f}{r['cpu']:8.1f}{r['making']:8.1f}{r['peak_gb']:9.2f}"
            f"{r['clusters']:10}{r['ari']:8.4f}"
            + (
                f"   whole: {r['whole_cpu']:.1f} CPU s, the same to ARI {r['same']:.4f}"
                if options.whole
                else ""
            ),
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
