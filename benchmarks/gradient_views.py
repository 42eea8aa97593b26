# SPDX-License-Identifier: Apache-2.0
"""Forms of the gradient view: which of them sees groups that views of the data do not?

    python benchmarks/gradient_views.py --data svhn --rows "concept shift" "feature skew" --seeds 2

Every client trains alone (the warm-up of a signature), and its update is looked at in several forms:

sketch      2% of the coordinates, at random: what a signature sends
whole       all coordinates
prior       all coordinates, the loss corrected for the client's label shares
head rows   for every class, the row of the head's update: compared class by class, absent classes left out
common      one epoch from the mean of all warm models, all coordinates; and its head rows

For each form: agreement with the planted groups if the *number* of groups is told (average linkage), the
silhouette of the planted groups, and what FedDAG's own rule finds if class signatures are withheld, so that
nothing but this form and the class counts is there.
"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import recovery
import torch

from feddag.clustering.again import separation
from feddag.clustering.agglomerative import agreement, cut_into, link
from feddag.clustering.items import Items
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.clustering.subspaces import Subspaces
from feddag.clustering.views import unfitted_views
from feddag.core.engine import Exchange
from feddag.core.params import Params, state_tensors
from feddag.core.seeds import Seed
from feddag.engines.perform import perform, single_threaded
from feddag.learning.signature import sketch_mask
from feddag.learning.train import Train, train
from feddag.runs.simulate import Simulation, build

HEAD = "head.weight"


def updates(prepared: Simulation, start: Params, local, turn: int) -> dict[str, Params]:
    """What training alone from a common model changes, for every client."""
    found = {}
    exchange = Exchange(round=turn, seed=Seed(turn))
    for client in prepared.trainable:
        with single_threaded():
            request = Train(params=start, local=local)
            answer, _ = perform(prepared.site, train, request, client, exchange, {})
        if answer.failure:
            raise SystemExit(answer.failure)
        found[client] = answer.reply.update
    return found


def of_whole(changed: dict[str, Params], counts_NC: np.ndarray, share: float = 1.0) -> Items:
    """Updates as one vector for every client."""
    rows = np.stack([update.parameters.numpy() for update in changed.values()])
    rows = rows[:, sketch_mask(1, share, rows.shape[1])] if share < 1 else rows
    return Items.of([nothing() for _ in changed], counts_NC, rows)


def of_head(changed: dict[str, Params], counts_NC: np.ndarray) -> Items:
    """Rows of the head's update as one vector for every class that a client has."""
    told = []
    for update, counts_C in zip(changed.values(), counts_NC, strict=True):
        rows = update[HEAD].numpy()
        held = np.flatnonzero((counts_C > 0) & (np.abs(rows).max(axis=1) > 0))
        told.append(Subspaces((rows / np.linalg.norm(rows, axis=1, keepdims=True))[held], held))
    return Items.of(told, counts_NC)


def nothing() -> Subspaces:
    """A class signature that is withheld."""
    return Subspaces(np.zeros((0, 1), np.float32), np.zeros(0, np.int64))


def judge(items: Items, planted: list[int]) -> dict[str, float]:
    """How well one form shows the planted groups."""
    options = ClusteringOptions()
    _, matrix = unfitted_views(items, options)[-1].fit(items)
    labels, _ = cut_into(link(matrix.distances_NN, "average"), len(set(planted)))
    found = cluster_signatures(items, options)
    return {
        "told": agreement(labels, planted),
        "silhouette": separation(matrix.distances_NN, np.asarray(planted)),
        "rule": agreement(found.labels_N, planted),
        "clusters": found.count,
    }


def forms(prepared: Simulation) -> dict[str, Items]:
    """Every form of the gradient view of one federation."""
    algorithm = prepared.experiment.build_algorithm()
    tensors = state_tensors(prepared.site.network("single"))
    start = Params.of({name: tensor.clone() for name, tensor in tensors.items()})
    epochs = algorithm.local.local_epochs * algorithm.signature.warmup_rounds
    local = replace(algorithm.local, local_epochs=epochs)
    counts_NC = np.stack([prepared.federation.examples(c).counts() for c in prepared.trainable])
    plain = updates(prepared, start, local, 0)
    prior = updates(prepared, start, replace(local, prior_correction=1.0), 0)
    step = torch.stack([update.vector for update in plain.values()]).mean(dim=0)
    common = updates(prepared, Params(start.vector + step, start.layout), replace(local, local_epochs=1), 1)
    return {
        "sketch": of_whole(plain, counts_NC, 0.02),
        "whole": of_whole(plain, counts_NC),
        "prior": of_whole(prior, counts_NC),
        "head rows": of_head(plain, counts_NC),
        "prior, head rows": of_head(prior, counts_NC),
        "common": of_whole(common, counts_NC),
        "common, head rows": of_head(common, counts_NC),
    }


def main() -> None:
    """One line per row, seed and form."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="svhn")
    parser.add_argument("--rows", nargs="+", default=["concept shift", "feature skew"], metavar="ROW")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--samples", type=int, default=12000, help="training samples of all clients")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=300)
    parser.add_argument("--json", type=Path, help="append every result here, one JSON object per line")
    options = parser.parse_args()
    small = [f"num_clients={options.clients}", f"data.max_train={options.samples}", "engine=inline"]
    print(f"{'row':<18}{'seed':>5}  {'form':<18}{'ARI, number told':>17}{'silhouette':>11}{'ARI, rule':>10}")
    for row in options.rows:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            prepared = build(recovery.experiment_of(options.data, row, seed, small))
            planted = [prepared.federation.groups.get(c, 0) for c in prepared.trainable]
            for name, items in forms(prepared).items():
                found = judge(items, planted)
                line = f"{row:<18}{seed:>5}  {name:<18}{found['told']:>17.2f}{found['silhouette']:>11.2f}"
                print(f"{line}{found['rule']:>10.2f} ({found['clusters']})", flush=True)
                if options.json:
                    said = {"data": options.data, "row": row, "seed": seed, "form": name, **found}
                    with options.json.open("a") as file:
                        file.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
