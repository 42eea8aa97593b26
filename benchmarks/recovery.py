# SPDX-License-Identifier: Apache-2.0
"""Recovery of planted groups: agreement (adjusted Rand index) and exact count, per row, view and recipe.

    python benchmarks/recovery.py --seeds 10
    python benchmarks/recovery.py --views data gradient fused --recipes default paper --seeds 5
    python benchmarks/recovery.py --data cifar10 --views fused --seeds 2 --epochs 2
    python benchmarks/recovery.py --data pacs --seeds 5             # clients as they are: domains, or people
    python benchmarks/recovery.py --rows "lda a=1" --part 0.8       # also of 80% of the clients

Federations, signatures and clusters are the package's own: what `feddag cluster` gives. Signatures are kept
in a folder, so that all views and recipes see the same ones; the data view alone trains nothing.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from feddag.algorithms.feddag import FedDAG
from feddag.clustering.agglomerative import agreement
from feddag.clustering.items import Items
from feddag.clustering.pipeline import ClusteringResult, cluster_signatures
from feddag.clustering.subspaces import Subspaces
from feddag.core import codec
from feddag.core.algorithm import broadcast
from feddag.experiment.settings import Experiment
from feddag.learning.signature import DATA_VIEWS, Signature, items_of, sign
from feddag.runs.driver import Driver
from feddag.runs.events import EventLog
from feddag.runs.simulate import Simulation, SimulationFacts, build

CONCEPTS = 'partition.concept.maps=["identity", "reverse", "shift"]'
STYLES = 'partition.feature.types=["clean", "gaussian_noise", "gaussian_blur", "contrast"]'  # severity 3
# Class sizes by Dirichlet(1) over all clients; every client holds every class.
DIRICHLET = [
    "partition.kind=label-groups",
    "partition.groups=1",
    "partition.label_share=1",
    "partition.alpha=1",
]
LDA = ["partition.kind=lda", "partition.alpha=1"]
ROWS: dict[str, list[str]] = {
    **{
        f"label {share}% a={alpha}": [
            "partition.kind=label-groups",
            f"partition.label_share={share / 100}",
            f"partition.alpha={alpha}",
        ]
        for share in (20, 30)
        for alpha in (0.25, 1)
    },
    "pairs 11": ["partition.kind=label-pairs", "partition.groups=11", "partition.alpha=1"],
    "concept shift": [*DIRICHLET, CONCEPTS],
    "feature skew": [*DIRICHLET, STYLES],
    "iid": ["partition.kind=iid"],
    "concept over lda": [*LDA, CONCEPTS],
    "feature over lda": [*LDA, STYLES],
    "composed": [
        "partition.kind=label-groups",
        "partition.label_share=0.3",
        "partition.alpha=1",
        'partition.feature.types=["clean", "contrast"]',
    ],
    "quantity": ["partition.kind=iid", "partition.quantity.alpha=1"],
    # No planted groups: stable numbers of clusters are asked for.
    "lda a=0.25": ["partition.kind=lda", "partition.alpha=0.25"],
    "lda a=1": LDA,
}
NATURAL = {"pacs": 20, "office-caltech10": 20, "uci-har": 30}  # clients of data that have groups themselves
TABLE = list(ROWS)
ROWS["as it is"] = []  # domains or people
RECIPES = {"default": [], "paper": ["algorithm.preset=paper"]}


def experiment_of(data: str, row: str, seed: int, settings: list[str]) -> Experiment:
    """The federation of one row, asked for clusters by FedDAG."""
    common = [f"data={data}", f"num_clients={NATURAL.get(data, 100)}", f"seed={seed}", "algorithm=feddag"]
    return Experiment().with_overrides([*common, *ROWS[row], *settings])


def ask(prepared: Simulation, algorithm: FedDAG) -> tuple[dict[str, Signature], int]:
    """The signatures of all clients, as `feddag cluster` asks for them, and the mask they share."""
    engine = prepared.open_engine()
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder) / "events.jsonl")
        facts = SimulationFacts(prepared.federation, engine.memories)
        try:
            driver = Driver(
                prepared.prepared, engine, prepared.presence, Path(folder), log, lambda event: None, facts
            )
            server = driver.server(0, list(prepared.trainable))
            start, mask = server.initial_params(), (server.seed / "sketch").integer()
            request = algorithm.signature_request(start, mask, keep=False)
            return server.ask(sign, broadcast(request, server.clients)), mask
        finally:
            engine.close()
            log.close()


def with_view(algorithm: FedDAG, view: str) -> FedDAG:
    """The same algorithm on other views of the clients: of the data, of the updates, or both (fused)."""
    unwanted = {"data": ("gradient",), "gradient": DATA_VIEWS, "fused": ()}[view]
    asked = algorithm.signature.views or (*DATA_VIEWS, "gradient")
    views = tuple(v for v in asked if v not in unwanted)
    return replace(algorithm, signature=replace(algorithm.signature, views=views))


def told(signatures: dict[str, Signature], view: str) -> Items:
    """What signatures tell in some views."""
    items = items_of(signatures)
    if view == "gradient":
        none = [Subspaces(i.vectors_PD[:0], i.classes_P[:0]) for i in items.subspaces]
        return Items(none, items.counts_NC, items.sketches_NK)
    return replace(items, sketches_NK=None) if view == "data" else items


class Signatures:
    """Signatures of one (data, row, seed), in one file by what was asked; each is a packed message."""

    def __init__(self, folder: Path, data: str, row: str, seed: int, settings: list[str]) -> None:
        self.setting = data, row, seed
        self.settings = settings
        self.name = folder / f"{data}_{row.replace(' ', '_').replace('%', '')}_{seed}"

    def of(self, recipe: str, trained: bool) -> tuple[dict[str, Signature], FedDAG, int, list[int]]:
        """Signatures, the algorithm that asks, the mask and the planted groups."""
        algorithm = self._experiment(recipe).build_algorithm()
        assert isinstance(algorithm, FedDAG)
        asked = codec.digest(algorithm.signature), codec.digest(algorithm.local)
        kept = Path(f"{self.name}_{'_'.join(asked) if trained else asked[0]}.npz")
        if not kept.exists():
            # Without training, starting workers would cost more than all signatures.
            prepared = build(self._experiment(recipe, "process" if trained else "inline"))
            # No warm model is asked for later, so the data view alone trains nothing.
            found, mask = ask(prepared, with_view(algorithm, "fused" if trained else "data"))
            groups = [prepared.federation.groups.get(client, 0) for client in found]
            kept.parent.mkdir(parents=True, exist_ok=True)
            packed = {client: np.frombuffer(codec.encode(s), np.uint8) for client, s in found.items()}
            np.savez(kept, **packed, **{" mask": np.array(mask), " groups": np.array(groups)})
        with np.load(kept) as stored:
            ids = [name for name in stored.files if not name.startswith(" ")]
            signatures = {client: codec.decode(Signature, stored[client].tobytes()) for client in ids}
            return signatures, algorithm, int(stored[" mask"]), stored[" groups"].tolist()

    def _experiment(self, recipe: str, engine: str = "process") -> Experiment:
        return experiment_of(*self.setting, [*RECIPES[recipe], *self.settings, f"engine={engine}"])


def outcome(row: str, seed: int, result: ClusteringResult, planted: list[int]) -> dict:
    """What was found, and by which questions."""
    return {
        "row": row,
        "seed": seed,
        "ari": agreement(result.labels_N, planted),
        "count": result.count,
        "planted": len(set(planted)),
        "weights": {fit.name: round(fit.weight, 3) for fit in result.frame.fits},
        "unlike": int(result.unlike_N.sum()),
        "labels": result.labels_N.tolist(),
        "splits": [
            [len(s.members), s.view, s.sizes, round(s.silhouette, 3), round(s.separation, 2)]
            for s in result.splits
            if s.view
        ],
    }


def of_a_part(
    items: Items, algorithm: FedDAG, share: float, labels_N: np.ndarray, seed: int
) -> dict[str, Any]:
    """What some of the clients alone give: number of clusters, and agreement with those of everybody."""
    drawn = np.random.default_rng(seed).permutation(len(items))[: round(share * len(items))]
    some = np.sort(drawn)
    part = cluster_signatures(items.take(some), algorithm.clustering_options, algorithm.graph, seed=seed)
    return {"part_count": part.count, "part_ari": agreement(part.labels_N, labels_N[some])}


def show(rows: list[str], results: list[dict], print_line: Callable[[str], None] = print) -> None:
    """One line per row: mean and least agreement, share of exact counts, counts found."""
    print_line(f"{'row':<18}{'ARI mean':>9}{'ARI least':>10}{'exact':>7}  clusters found (planted)")
    for row in rows:
        found = [r for r in results if r["row"] == row]
        scores = [r["ari"] for r in found]
        exact = np.mean([r["count"] == r["planted"] for r in found])
        counts = " ".join(str(r["count"]) for r in found)
        print_line(
            f"{row:<18}{np.mean(scores):9.3f}{np.min(scores):10.3f}{exact:7.0%}  {counts}"
            f" ({found[0]['planted']})"
        )
        if "part_count" in found[0]:
            agreed = np.mean([r["part_ari"] for r in found])
            print_line(
                f"{'':<18}a part of them: {' '.join(str(r['part_count']) for r in found)}; ARI {agreed:.3f}"
            )
        if row == "as it is" and len(found) > 1 and found[0]["planted"] == 1:
            pairs = [agreement(a["labels"], b["labels"]) for a, b in combinations(found, 2)]
            print_line(f"{'':<18}agreement between seeds {np.mean(pairs):.3f}, least {np.min(pairs):.3f}")


def main() -> None:
    """Every row, seed, view and recipe; one table per view and recipe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", choices=("fashion-mnist", "cifar10", "svhn", *NATURAL), default="fashion-mnist"
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW")
    parser.add_argument(
        "--views", nargs="+", choices=("data", "gradient", "fused"), default=["data"], metavar="VIEW"
    )
    parser.add_argument("--recipes", nargs="+", choices=tuple(RECIPES), default=["default"], metavar="RECIPE")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--part", type=float, help="also cluster this share of the clients, drawn at random")
    parser.add_argument("--rounds", type=int, help="warm-up rounds, instead of the recipe's")
    parser.add_argument("--epochs", type=int, help="epochs of a warm-up round, instead of the recipe's")
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / ".data" / "signatures")
    parser.add_argument("--json", type=Path, help="write every single result here")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="more settings"
    )
    options = parser.parse_args()
    options.rows = options.rows or (["as it is"] if options.data in NATURAL else TABLE)
    settings = list(options.settings)
    if options.rounds is not None:
        settings.append(f"algorithm.signature.warmup_rounds={options.rounds}")
    if options.epochs is not None:
        settings.append(f"training.local_epochs={options.epochs}")
    trained = options.views != ["data"]
    results: dict[str, list[dict]] = {f"{v} view, {r}": [] for r in options.recipes for v in options.views}
    for row in options.rows:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            stored = Signatures(options.cache, options.data, row, seed, settings)
            for recipe in options.recipes:
                begin = time.perf_counter()
                signatures, algorithm, mask, planted = stored.of(recipe, trained)
                signed = time.perf_counter() - begin
                for view in options.views:
                    begin = time.perf_counter()
                    chosen = with_view(algorithm, view)
                    items = told(signatures, view)
                    result = cluster_signatures(items, chosen.clustering_options, chosen.graph, seed=mask)
                    found = outcome(row, seed, result, planted)
                    found |= {"view": view, "recipe": recipe, "sign_seconds": round(signed, 2)}
                    found |= {"cluster_seconds": round(time.perf_counter() - begin, 2)}
                    if options.part:
                        found |= of_a_part(items, chosen, options.part, result.labels_N, seed)
                    results[f"{view} view, {recipe}"].append(found)
            if options.json:
                options.json.write_text(json.dumps([r for part in results.values() for r in part], indent=1))
    for title, found in results.items():
        clients = NATURAL.get(options.data, 100)
        print(f"\n{options.data}, {title}, {clients} clients, {options.seeds} seeds: {options.first_seed}…")
        show(options.rows, found)


if __name__ == "__main__":
    main()
