# SPDX-License-Identifier: Apache-2.0
"""One new client for a finished run: which cluster is its own, how near it is, and which model it gets.

The run is not changed. The newcomer does what newcomers do during a run: it trains alone from the stored
start, signs, and is placed while everybody else stays where they are.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.algorithm import Server
from feddag.core.capabilities import FindsClusters
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.core.task import ClientId
from feddag.data.federation import Federation, Pool, Share, Source
from feddag.data.names import is_allowed
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site
from feddag.learning.evaluation import Evaluate, evaluate
from feddag.runs.assignment import labels_of
from feddag.runs.checkpoint import latest_checkpoint
from feddag.runs.predict import read_for
from feddag.runs.prepare import prepare
from feddag.runs.run import Run
from feddag.runs.saved_models import save_models


@dataclass(frozen=True)
class Placed:
    """Where a new client belongs. Distances are means over a cluster's members, in the unit of the method."""

    client: ClientId
    samples: int
    cluster: int | None
    mates: tuple[ClientId, ...]
    distances: dict[int, float]  # cluster → distance; empty where the method measures none
    threshold: float | None
    weak: bool
    accuracy: float | None  # of its model on its own samples, before any training of its own
    files: tuple[str, ...]  # of its model

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "distances": {str(z): d for z, d in self.distances.items()}}


def place_newcomer(run: Run, path: Path, name: str = "") -> Placed:
    """Place a client that brings labelled samples: a folder, an .npz file or a table."""
    name = name or path.stem
    if not is_allowed(name):
        raise InvalidInput(f"client '{name}': letters, digits, dot, dash and underscore only; use --name")
    if name in run.models.clients:
        raise InvalidInput(f"client '{name}' took part in this run: give the new one another name (--name)")
    samples = read_for(run, path)
    if samples.labels is None:
        raise InvalidInput(
            f"{path}: expected samples with their classes (class folders, an array y in an .npz file, "
            f"or a column '{run.experiment.data.label}' in a table)"
        )
    y, problem = run.models.class_numbers(list(samples.labels)), run.models.problem
    prepared = prepare(run.experiment, problem)
    found, _ = latest_checkpoint(run.folder / "checkpoints", prepared.state_class)
    if found is None:
        raise InvalidInput(f"the run in {run.folder} has no checkpoint that can be read")
    x = np.ascontiguousarray(samples.x)
    everything = Share(train=np.arange(len(y)), test=np.arange(len(y)))
    pool = Pool(x, y)
    federation = Federation(
        {name: everything}, pool, pool, problem.num_classes, Source("newcomer", "local"), problem.scaling
    )
    engine = InlineEngine(Site(federation, prepared.network, run.experiment.engine.backend))
    try:
        round_ = found[0].round
        server = Server(
            engine=engine,
            clients=(),
            cohort=(),
            round=round_,
            seed=Seed(run.experiment.seed),
            network=prepared.network,
            problem=problem,
            num_rounds=run.experiment.num_rounds,
            purpose="newcomers",
        )
        state = prepared.algorithm.onboard(found[1], (name,), server)
        deployment = prepared.algorithm.deploy(state, name)
        request = Evaluate(deployment=deployment, local=run.experiment.training)
        scores = server.ask(evaluate, {name: request})[name].test
    finally:
        engine.close()
    labels = labels_of(prepared.algorithm, state)
    cluster = labels.get(name)
    distances, threshold = _distances(prepared.algorithm, state, name)
    return Placed(
        client=name,
        samples=len(y),
        cluster=cluster,
        mates=tuple(c for c, z in sorted(labels.items()) if z == cluster and c != name),
        distances=distances,
        threshold=threshold,
        weak=name in server.notes.get("weak", ()),
        accuracy=int(scores.correct.sum()) / len(y) if len(y) else None,
        files=_files(run, name, deployment),
    )


def _distances(algorithm: Any, state: Any, name: ClientId) -> tuple[dict[int, float], float | None]:
    """Mean distance of the newcomer to every cluster, in the view that clusters were cut in."""
    if not isinstance(algorithm, FindsClusters):
        return {}, None
    found = algorithm.clustering(state)
    threshold = found.tree.threshold if found.tree is not None else None
    if not found.views or name not in found.clients:
        return {}, threshold
    matrix_NN = [*found.views.values()][-1].matrix_NN
    row = matrix_NN[found.clients.index(name)]
    places = {c: i for i, c in enumerate(found.clients)}
    distances = {}
    for z, members in enumerate(found.clusters.members):
        others = [places[c] for c in members if c != name and c in places]
        if others:
            distances[z] = round(float(row[others].mean()), 4)
    return distances, None if threshold is None else round(float(threshold), 4)


def _files(run: Run, name: ClientId, deployment: Any) -> tuple[str, ...]:
    """Files with the newcomer's model; one that nobody had before is written to the run's newcomers/."""
    models = run.models
    wanted = [model.digest() for model in deployment.models]
    for clients in models.users():
        entry = models.description["clients"][clients[0]]
        if entry["adapt"] or entry["network"] != deployment.network:
            continue
        files = entry["files"]
        if len(files) == len(wanted) and list(entry["weights"]) == list(deployment.weights):
            known = [models._params(file, entry["network"]).digest() for file in files]
            if known == wanted:
                return tuple(str(models.folder / file) for file in files)
    folder = run.folder / "newcomers" / name
    folder.mkdir(parents=True, exist_ok=True)
    save_models(folder, models.networks.name, models.problem, {name: deployment}, {})
    return tuple(str(path) for path in sorted(folder.glob("*.safetensors")))
