# SPDX-License-Identifier: Apache-2.0
"""FedDAG with a shared start: its limits, its traffic, every engine, and resuming at every round."""

import json
from pathlib import Path
from typing import Any

import pytest

from feddag.core import codec
from feddag.core.algorithm import broadcast
from feddag.core.averaging import add_mean, mean
from feddag.core.seeds import Seed
from feddag.engines.process import ProcessEngine
from feddag.learning.train import Train, train
from feddag.reporting.tables.log import read_events
from feddag.runs.simulate import Simulation, resume, run
from tests.contracts.test_resume import Killed, kill_in_round
from tests.contracts.toys import experiment, toy
from tests.support.played import played, without_validation
from tests.support.toys import toy_server

WARMUP, ROUNDS = 2, 6  # the start stands for the first two rounds
BASE = {
    "preset": "two_encoders",  # its warm start: models differ from the beginning
    "clustering": {"num_clusters": 2},
    "signature": {"vectors": 1},
    "encoders": {"count": 1},
}
COLD = {
    "preset": "shared_start",
    "clustering": {"num_clusters": 2},
    "signature": {"vectors": 1, "views": ["pixels"]},
}

ANYBODY = {"same_labels": 0.0, "same_names": False}  # shares with everybody


def settings(**shared: Any) -> dict[str, Any]:
    given = {"rounds": 0.5, "pull": 1.0, "evidence": True, "certainty": 0.0, **ANYBODY, **shared}
    return {**BASE, "shared_start": given}


def states(simulation: Simulation, engine: Any = None, log: list | None = None) -> list[Any]:
    """The start and all rounds, with everybody."""
    return played(simulation, ROUNDS, engine=engine, log=log)


def digests(found: list[Any]) -> list[str]:
    return [codec.digest(state) for state in found]


def test_no_shared_rounds_is_feddag_without_a_shared_start_and_asks_nothing_more() -> None:
    log: list = []
    off = states(toy("feddag", {**BASE, "shared_start": {"rounds": 0.0}}), log=log)
    on_its_own = {**BASE, "shared_start": {"rounds": 0.0, "partners": "graph"}}
    assert digests(off) == digests(states(toy("feddag", on_its_own)))
    assert all(s.sharing == () for s in off)
    assert "weigh" not in [name for name, _, _ in log]


def test_without_validation_samples_every_cluster_trains_alone() -> None:
    alone = states(toy("feddag", {**BASE, "shared_start": {"rounds": 0.0}}))
    shared = states(without_validation(toy("feddag", settings())))
    assert [s.models for s in shared] == [s.models for s in alone]
    assert shared[0].sharing == ()


def test_from_a_common_start_everybody_shares_until_there_is_evidence() -> None:
    log: list = []
    shared = states(
        toy("feddag", {**COLD, "shared_start": {"enough": 0.0, **ANYBODY}}),
        log=log,
    )
    assert shared[0].models[0] == shared[0].models[1]
    assert shared[0].sharing == (0, 1), "there is nothing to weigh yet"
    assert next(r for name, r, _ in log if name == "weigh") == 1
    assert shared[1].models[0] == shared[1].models[1]


def test_clusters_with_other_labels_never_share_and_are_asked_nothing() -> None:
    log: list = []
    partition = {"kind": "label-groups", "groups": 2}
    shared = states(toy("feddag", COLD, partition=partition), log=log)
    alone = states(toy("feddag", {**COLD, "preset": "one_encoder"}, partition=partition))
    assert [s.models for s in shared] == [s.models for s in alone]
    assert "weigh" not in [name for name, _, _ in log]


def test_a_single_cluster_has_nobody_to_share_with() -> None:
    one = {**BASE, "clustering": {"num_clusters": 1}}
    log: list = []
    shared = states(toy("feddag", {**one, "shared_start": {"rounds": 0.5}}), log=log)
    assert [s.models for s in shared] == [s.models for s in states(toy("feddag", one))]
    assert "weigh" not in [name for name, _, _ in log]


def test_always_shared_with_one_encoder_is_fedavg_from_the_warm_mean_of_all() -> None:
    simulation = toy("feddag", settings(rounds=1.0, evidence=False))
    found = states(simulation)
    alone = states(toy("feddag", BASE))[0]
    samples = [sum(int(alone.signatures[c].counts.sum()) for c in m) for m in alone.clusters.members]
    params = mean(alone.models, samples)
    assert found[0].models == (params, params)
    for round_ in range(WARMUP + 1, ROUNDS + 1):
        server = toy_server(
            simulation.site, clients=simulation.trainable, round=round_, seed=Seed(1), num_rounds=ROUNDS
        )
        request = Train(params=params, local=simulation.algorithm.local)  # type: ignore[attr-defined]
        params = add_mean(params, server.ask_mean(train, broadcast(request, server.clients)))
        # a mean of two clusters' means is rounded once more than a mean of all clients
        for model in found[round_].models:
            assert (model - params).norm() < 1e-5 * params.norm()
        params = found[round_].models[0]


def test_after_exactly_the_shared_rounds_models_part_without_evidence() -> None:
    first, second = zip(*[s.models for s in states(toy("feddag", settings(evidence=False)))], strict=True)
    equal = [a == b for a, b in zip(first, second, strict=True)]
    assert equal == [True] * 4 + [False] * 3


def test_weighing_costs_two_models_down_and_six_numbers_up() -> None:
    log: list = []
    simulation = toy("feddag", settings(enough=0.0, certainty=9.0))
    found = states(simulation, log=log)
    floats = found[0].models[0].layout.size
    asked = [(r, answers) for name, r, answers in log if name == "weigh"]
    assert [r for r, _ in asked][:2] == [0, 3], "round 1 and 2 are those of the warm-up"
    for _, answers in asked:
        for answer in answers.values():
            assert answer.bytes_down == 4 * 2 * floats + 8 * 4 + len("single") + 8
            assert answer.bytes_up == 6 * 8


def test_workers_give_the_same_bits() -> None:
    simulation = toy("feddag", settings())
    expected = digests(states(simulation))
    engine = ProcessEngine(simulation.site, "mlp", 2)
    try:
        assert digests(states(simulation, engine)) == expected
    finally:
        engine.close()


def test_a_run_that_is_killed_in_every_round_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    made = experiment("feddag", settings(), num_rounds=ROUNDS)
    whole, cut = run(made, folder=tmp_path / "whole"), tmp_path / "cut"
    with pytest.raises(Killed):
        run(made, folder=cut, watch=kill_in_round(WARMUP + 1, Killed))
    for round_ in range(WARMUP + 2, ROUNDS + 1):
        with pytest.raises(Killed):
            resume(cut, watch=kill_in_round(round_, Killed))
    resume(cut)

    def recorded(folder: Path) -> Any:
        rounds = {e["round"]: e["digest"] for e in read_events(folder / "events.jsonl") if "digest" in e}
        return rounds, json.loads((folder / "result.json").read_text())["state_digest"]

    assert recorded(cut) == recorded(whole)


# -- who may share: the same names for the same things -----------------------------------------------------

DIGITS = {"data": {"name": "digits"}, "partition": {"kind": "iid"}, "num_clients": 8}
LOOKS = {"feature": {"types": ["clean", "contrast"], "severity": 5}}
NAMES = {"concept": {"maps": ["identity", "reverse"]}}


@pytest.mark.parametrize(("planted", "shares"), [(LOOKS, True), (NAMES, False)])
def test_clusters_share_through_other_looks_and_never_under_other_names(planted: Any, shares: bool) -> None:
    changed = {**DIGITS, "partition": {"kind": "iid", **planted}}
    told = {"clustering": {"num_clusters": 2}, "shared_start": {"pull": 1.0}}
    found = states(toy("feddag", told, **changed))
    assert len(found[0].clusters) == 2
    assert (found[0].sharing == (0, 1)) == shares
    alone = states(toy("feddag", {**told, "preset": "one_encoder"}, **changed))
    if not shares:
        assert [s.models for s in found] == [s.models for s in alone]
    else:
        equal = [s.models[0] == s.models[1] for s in found]
        assert equal == [True] * (ROUNDS // 2 + 1) + [False] * (ROUNDS // 2), "the first half, then apart"
        assert found[-1].models != alone[-1].models
        assert found[-1].partners == found[-1].sharing == ()
        near = states(toy("feddag", {**told, "shared_start": {}}, **changed))
        assert near[1].models[0] != near[1].models[1]
        assert 0 < apart(near[1]) < apart(alone[1]), "by default clusters stay near each other"


def apart(state: Any) -> float:
    return float((state.models[0].vector - state.models[1].vector).norm())
