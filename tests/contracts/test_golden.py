# SPDX-License-Identifier: Apache-2.0
"""Golden results: what every method served, stored once, so that a change of structure changes no bit.

`golden.json` holds, for every case, a digest of all served models, memories and scores, and next to it some
plain numbers. On a machine of the kind it was recorded on (the same processor and libraries) digests must be
equal. On another machine float32 rounds differently: there the plain numbers must agree. After a change that
is meant to change results: `python -m tests.contracts.test_golden [CASE...]`, and say why in CHANGELOG.md.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn
import torch
from threadpoolctl import threadpool_info

from feddag import native
from feddag.core import codec
from feddag.engines.process import ProcessEngine
from feddag.runs.simulate import Simulation
from tests.contracts.toys import SETTINGS, Trace, every_algorithm, play, toy, toy_site

FRESH_WORKERS = True  # processes that share nothing with this one, not even memory
FILE = Path(__file__).parent / "golden.json"
BACKENDS = ("torch", "auto")  # auto: the native kernels where they can

# The same method in other settings; sixteen clients in four groups for those that find clusters themselves.
GROUPS = {
    "data": {"name": "synthetic", "synthetic": {"groups": 4, "dimensions": 6, "train": 1600, "test": 160}},
    "partition": {"newcomers": 0.2, "quantity": {"alpha": 4.0, "min_samples": 12}},
    "num_clients": 20,
    "fraction_train": 0.5,
}
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "feddag, automatic": ("feddag", {"signature": {"vectors": 2}}, GROUPS),
    "feddag, paper": ("feddag", {"preset": "paper"}, GROUPS),
    "feddag, data view": (
        "feddag",
        {
            "preset": "two_encoders",
            "signature": {"views": ["pixels", "shape", "texture"], "svd": "randomised"},
        },
        GROUPS,
    ),
    "feddag, gradient view": (
        "feddag",
        {
            "preset": "two_encoders",
            "clustering": {"cut_rule": "silhouette"},
            "signature": {"views": ["gradient"]},
        },
        GROUPS,
    ),
    "feddag, entropy": (
        "feddag",
        {
            "preset": "two_encoders",
            "clustering": {"fusion": "entropy", "cut_rule": "plateau"},
            "signature": {"warmup_update": "last"},
        },
        GROUPS,
    ),
    "feddag, pairs": (
        "feddag",
        {"preset": "two_encoders", "clustering": {"angles": "pairs", "fusion": "mean", "cut_rule": "loss"}},
        GROUPS,
    ),
    "feddag, frequency": (
        "feddag",
        {"preset": "two_encoders", "clustering": {"class_weighting": "frequency", "linkage": "complete"}},
        GROUPS,
    ),
    "feddag, threshold": (
        "feddag",
        {"preset": "two_encoders", "clustering": {"threshold": 0.3}, "graph": {"alignment": False}},
        GROUPS,
    ),
    "feddag, alone": ("feddag", {"preset": "one_encoder", "clustering": {"num_clusters": 2}}, {}),
    "feddag, two encoders": ("feddag", {"preset": "two_encoders", "signature": {"vectors": 2}}, GROUPS),
    "feddag, one encoder": (
        "feddag",
        {"preset": "two_encoders", "encoders": {"count": 1}, "clustering": {"num_clusters": 2}},
        {},
    ),
    "feddag, no sharing": ("feddag", {"preset": "no_sharing", "clustering": {"num_clusters": 2}}, {}),
    "feddag, schedule": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"primary_rounds": 1, "secondary_epochs": 1},
            "clustering": {"num_clusters": 2},
        },
        {},
    ),
    "feddag, parallel": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"phases": "parallel", "combine_learners": "sum", "source_updates": "sum"},
            "clustering": {"num_clusters": 3},
        },
        {},
    ),
    "feddag, random starts": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"primary_start": "random", "secondary_start": "random", "diversity": 0.1},
            "clustering": {"num_clusters": 2},
        },
        {},
    ),
    "feddag, copy": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"secondary_start": "copy", "head_start": "random"},
            "clustering": {"num_clusters": 2},
        },
        {},
    ),
    "feddag, common": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"secondary_start": "common"},
            "clustering": {"num_clusters": 2},
        },
        {},
    ),
    "feddag, shared start": (
        "feddag",
        {
            "preset": "two_encoders",
            "encoders": {"count": 1},
            "clustering": {"num_clusters": 2},
            "shared_start": {
                "rounds": 1.0,
                "pull": 1.0,
                "evidence": True,
                "enough": 0.0,
                "certainty": 4.0,
                "same_labels": 0.0,
                "same_names": False,
            },
        },
        {},
    ),
    "ifca, shared encoder": ("ifca", {"share_encoder": True}, {}),
    "fedrc, adaptive": ("fedrc", {"num_clusters": 3, "drop_below": 0.4}, {}),
    "fedsoft, cohort": ("fedsoft", {"selection": "cohort"}, {}),
    "perfedavg, hessian-free": ("perfedavg", {"variant": "hf", "beta": 0.05, "weighting": "uniform"}, {}),
    "pacfl, eq3": ("pacfl", {"measure": "eq3", "num_clusters": 2}, {}),
    "pacfl, subspace": ("pacfl", {"measure": "subspace", "num_clusters": 2}, {}),
    "cfl_gp, automatic": (
        "cfl_gp",
        {"num_clusters": "auto", "period": 1, "clustering_rounds": 2, "compression": 3, "normalise": True},
        GROUPS,
    ),
}
CASES = {name: (name, SETTINGS.get(name, {}), {}) for name in every_algorithm.args[1]} | VARIANTS


def machine_kind() -> str:
    """All that float32 rounding depends on: processor, instruction sets, libraries."""
    cpu = {}
    if Path("/proc/cpuinfo").exists():
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        cpu = dict(line.split("\t: ", 1) for line in first.splitlines() if "\t: " in line)
        cpu = {key.strip(): value for key, value in cpu.items()}
    facts = [
        platform.machine(),
        *(cpu.get(key, "?") for key in ("vendor_id", "cpu family", "model", "stepping")),
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        np.__version__,
        scipy.__version__,
        sklearn.__version__,
        native.isa() if native.available() else "no native",
        *sorted(f"{i['internal_api']} {i['version']} {i.get('architecture')}" for i in threadpool_info()),
    ]
    return hashlib.sha256("|".join(map(str, facts)).encode()).hexdigest()[:16]


def case(name: str, backend: str) -> Simulation:
    """One method in one setting, ready to run."""
    method, settings, changes = CASES[name]
    return toy(method, settings, engine={"name": "inline", "backend": backend}, **changes)


def digest_of(prepared: Simulation, trace: Trace) -> str:
    """All that was served, remembered and scored; not how a state is laid out."""
    sha = hashlib.sha256()
    clients = (*prepared.clients, *prepared.federation.newcomers)
    for number, (state, digests) in enumerate(zip(trace.states, trace.digests, strict=True), start=1):
        for client in clients if number == len(trace.states) else prepared.clients:
            deployment = prepared.algorithm.deploy(state, client)
            sha.update(" ".join(model.digest() for model in deployment.models).encode())
            sha.update(repr((deployment.network, deployment.weights, deployment.remembered)).encode())
        sha.update(" ".join(digests.split()[1:]).encode())
    for client in clients:
        sha.update(codec.digest(trace.scores[client]).encode())
    return sha.hexdigest()[:16]


def numbers_of(prepared: Simulation, trace: Trace) -> list[float]:
    """Some figures that rounding hardly touches: norms of what is served, and right answers."""
    deployments = [prepared.algorithm.deploy(trace.states[-1], client) for client in prepared.clients]
    norms = [float(np.mean([model.norm() for model in d.models])) for d in deployments]
    right = [float(trace.scores[client].correct.sum()) for client in prepared.clients]
    return [round(value, 4) for value in (*norms, sum(right))]


@pytest.fixture(scope="module", params=BACKENDS)
def workers(request: pytest.FixtureRequest) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(replace(toy_site(), backend=request.param), "mlp", 2)
    yield engine
    engine.close()


def check(name: str, backend: str, prepared: Simulation, trace: Trace) -> None:
    golden = json.loads(FILE.read_text())
    expected = golden["cases"][name][backend]
    if machine_kind() in golden["recorded on"]:
        assert digest_of(prepared, trace) == expected["digest"]
    *norms, right = numbers_of(prepared, trace)
    *expected_norms, expected_right = expected["numbers"]
    np.testing.assert_allclose(norms, expected_norms, rtol=2e-3)
    # A sample on the border between two classes may fall to the other side.
    assert abs(right - expected_right) <= 0.01 * sum(int(s.total.sum()) for s in trace.scores.values())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_that_were_recorded(name: str, backend: str) -> None:
    prepared = case(name, backend)
    check(name, backend, prepared, play(prepared))


@every_algorithm
def test_workers_give_what_was_recorded(name: str, workers: ProcessEngine) -> None:
    prepared = case(name, workers.site.backend)
    check(name, workers.site.backend, prepared, play(prepared, workers))


def record(names: list[str]) -> None:
    """Record these cases anew (all without a name), from the code as it is."""
    cases: dict[str, Any] = json.loads(FILE.read_text())["cases"] if names else {}
    for name in names or CASES:
        cases[name] = {}
        for backend in BACKENDS:
            prepared = case(name, backend)
            trace = play(prepared)
            cases[name][backend] = {
                "digest": digest_of(prepared, trace),
                "numbers": numbers_of(prepared, trace),
            }
        print(name, cases[name]["torch"]["numbers"][-1])
    FILE.write_text(json.dumps({"recorded on": [machine_kind()], "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])
