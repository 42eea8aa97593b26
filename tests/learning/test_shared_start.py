# SPDX-License-Identifier: Apache-2.0
"""Who shares and who leaves: against a literal version of the rule, and by hand."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feddag.core.clusters import Clusters
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.partners import possible_partners, with_same_labels
from feddag.learning.shared_start import (
    Evidence,
    SharedStartOptions,
    Weigh,
    Weighed,
    averaged,
    partners_of,
    share,
    weigh,
)
from tests.support.toys import blob_site, toy_client, toy_server

CLUSTERS, SEED = Clusters(members=(("a",), ("b",), ("c",))), Seed(1)
SOURCES = ((1, 2), (0,), (0,), (1,))


def random_model(name: str) -> Params:
    return toy_server(blob_site()).initial_params(name=name) * 3.0


def literal_lack(request: Weigh, client: Any) -> list[float]:
    """ρ·(prior loss − own loss) − (prior loss − shared loss), one validation sample after another."""
    found = []
    for x, y in zip(client.validation.x, client.validation.y, strict=True):
        losses = []
        for model in (request.shared, request.own):
            module = client.network("single")
            module.load_state_dict(dict(model))
            z = module(torch.from_numpy(x)[None])[0].detach().double().numpy()
            losses.append(math.log(np.exp(z - z.max()).sum()) + z.max() - z[y])
        prior = -float(request.log_prior[y])
        found.append(request.enough * (prior - losses[1]) - (prior - losses[0]))
    return found


@pytest.mark.parametrize("enough", [0.0, 0.5, 1.0])
def test_clients_weigh_both_models_on_their_validation_samples_alone(enough: float) -> None:
    client = toy_client(blob_site())
    request = Weigh(
        shared=random_model("a"),
        own=random_model("b"),
        network="single",
        log_prior=np.log([0.5, 0.3, 0.2]),
        enough=enough,
    )
    reply, expected = weigh(request, client), literal_lack(request, client)
    assert reply.samples == len(client.validation) == 6
    assert reply.lack == pytest.approx(sum(expected), rel=1e-4)
    assert reply.squares == pytest.approx(sum(x**2 for x in expected), rel=1e-4)
    assert weigh.sees_validation
    assert not weigh.sees_test


@given(st.lists(st.lists(st.floats(-5, 5), max_size=6), min_size=1, max_size=4))
def test_the_evidence_of_several_clients_is_that_of_all_their_samples(parts: list[list[float]]) -> None:
    replies = [
        Weighed(samples=len(p), shared=0.0, own=0.0, prior=0.0, lack=sum(p), squares=sum(x * x for x in p))
        for p in parts
    ]
    found, everything = Evidence.of(replies), [x for p in parts for x in p]
    if len(everything) < 2:
        assert found.leaves(2.0, shares_by_default=True), "without evidence nobody shares"
        assert found.leaves(2.0, shares_by_default=False)
        return
    assert found.lack == pytest.approx(np.mean(everything), abs=1e-9)
    error = np.std(everything, ddof=1) / math.sqrt(len(everything))
    assert found.error == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize(
    ("lack", "by_default", "afterwards"),
    [(0.3, True, True), (0.1, False, True), (0.0, False, True), (-0.1, False, True), (-0.3, False, False)],
)
def test_evidence_against_is_needed_at_first_and_evidence_for_it_later(lack, by_default, afterwards) -> None:
    found = Evidence(samples=50, shared=1.0, own=1.0, prior=2.0, lack=lack, error=0.1)
    assert found.leaves(2.0, shares_by_default=True) == by_default
    assert found.leaves(2.0, shares_by_default=False) == afterwards


def test_an_own_step_that_tells_nothing_is_no_evidence_against_sharing() -> None:
    found = Evidence(samples=50, shared=2.5, own=2.0, prior=2.0, lack=0.5, error=0.1)
    assert not found.leaves(2.0, shares_by_default=True)
    assert found.leaves(2.0, shares_by_default=False)


def test_models_are_weighed_soon_then_ever_less_often_and_after_the_shared_rounds() -> None:
    plan = SharedStartOptions(rounds=0.4)
    assert plan.last(30) == 12
    assert [r for r in range(31) if plan.due(r, 30)] == [0, 1, 2, 4, 8, 12, 24]
    assert all(SharedStartOptions(rounds=0.01).due(r, 9) for r in range(10)), "no round divides by nothing"


def test_clusters_with_the_same_labels_are_told_from_those_with_other_tasks() -> None:
    counts_ZC = np.array([[10, 10, 0, 0], [30, 2, 0, 0], [0, 0, 5, 5], [8, 8, 4, 0]])
    found_ZZ = with_same_labels(counts_ZC, 0.75)
    assert np.array_equal(found_ZZ, found_ZZ.T)
    assert found_ZZ.diagonal().all()
    assert found_ZZ[0, 1], "the same labels, in other shares"
    assert not found_ZZ[0, 2]
    assert found_ZZ[0, 3], "16 of 20 samples"
    assert not with_same_labels(counts_ZC, 0.9)[0, 3]
    assert with_same_labels(counts_ZC, 0.0).all()


def test_partners_are_all_who_still_share_or_those_that_the_graph_names() -> None:
    server: Any = SimpleNamespace(seed=Seed(1))
    members = (("a",), ("b",), ("c",), ("d",))

    def found(how: Any, sharing: tuple[int, ...] = (0, 1, 2, 3), d: int = 0, away: Any = None) -> Any:
        labels = {"a": [1, 1], "b": [2, 2], "c": [5, 0], "d": [d, 3]}
        state: Any = SimpleNamespace(
            clusters=Clusters(members=members),
            sources=SOURCES,
            signatures={c: SimpleNamespace(counts=np.array(n)) for c, n in labels.items()},
            sharing=sharing,
            empty=away,
        )
        state.partners = possible_partners(state, 0.5, same_names=False)
        return partners_of(state, SharedStartOptions(partners=how), server)

    assert found("all", d=3) == ((0, 1, 2, 3),) * 4
    assert found("all") == ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2), (0, 1, 3)), (
        "c and d have no label in common"
    )
    assert found("all", (0, 2, 3), d=3) == ((0, 2, 3), (1,), (0, 2, 3), (0, 2, 3))
    assert found("all", away={"1": 4}, d=3) == ((0, 2, 3), (1,), (0, 2, 3), (0, 2, 3)), (
        "nobody of it is there"
    )
    assert found("graph") == ((0, 1, 2), (0, 1), (0, 2), (1, 3))
    assert found("graph", (0, 2, 3)) == ((0, 2), (1,), (0, 2), (3,))
    drawn = found("random")
    assert [len(of_z) for of_z in drawn] == [3, 2, 2, 2], "as many as the graph names"
    assert all(z in of_z for z, of_z in enumerate(drawn))
    assert drawn == found("random")


def test_a_cluster_that_newcomers_opened_meanwhile_shares_with_nobody() -> None:
    state: Any = SimpleNamespace(
        sources=((1,), (0,), (0,)), sharing=(0, 1), partners=((0, 1), (0, 1)), empty=None
    )
    server: Any = SimpleNamespace(seed=Seed(1))
    for how in ("all", "graph", "random"):
        assert partners_of(state, SharedStartOptions(partners=how), server)[2] == (2,)
    assert partners_of(state, SharedStartOptions(), server) == ((0, 1), (0, 1), (2,))


def test_models_are_averaged_over_partners_by_the_samples_behind_them() -> None:
    models = [Params.of({"w": torch.tensor([value])}) for value in (1.0, 2.0, 6.0)]
    partners = ((0, 1), (0, 1), (2,))
    values = [float(m["w"]) for m in averaged(models, {0: 30, 1: 10, 2: 5}, partners)]
    assert values == [1.25, 1.25, 6.0]
    assert averaged(models, {1: 10}, partners)[0]["w"] == 2.0, "cluster 0 had no participant"
    assert averaged(models, {}, partners) == tuple(models)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0, 1))
def test_a_model_is_drawn_to_the_mean_of_its_partners_by_the_given_share(samples: list, pull: float) -> None:
    numbers, partners = [1.0, 2.0, 6.0, -3.0], ((0, 1, 2), (0, 1), (2,), (1, 3))
    models = [Params.of({"w": torch.tensor([value])}) for value in numbers]
    found = averaged(models, dict(enumerate(samples)), partners, pull)
    for z, of_z in enumerate(partners):
        total = sum(samples[q] for q in of_z)
        if len(of_z) == 1 or not total:
            assert found[z] is models[z]
        else:
            middle = sum(samples[q] * numbers[q] for q in of_z) / total
            expected = (1 - pull) * numbers[z] + pull * middle
            assert float(found[z]["w"]) == pytest.approx(expected, abs=1e-5)


@dataclass(frozen=True)
class ToyState:
    """Three clusters of one client each, with as many samples as one can check by hand."""

    models: Any = ()
    clusters: Clusters = CLUSTERS
    sources: Any = ((1,), (2,), (0,))
    sharing: tuple[int, ...] = (0, 1, 2)
    partners: Any = ((0, 1, 2),) * 3
    empty: None = None

    @property
    def signatures(self) -> Any:
        return {c: SimpleNamespace(counts=np.array([n, 0])) for c, n in (("a", 10), ("b", 30), ("c", 10))}


@dataclass
class ToyServer:
    """Everybody answers with the lack that is given for it, without any doubt."""

    lacks: dict[str, float]
    round: int = 0
    num_rounds: int = 10
    seed: Seed = SEED
    cohort: tuple[str, ...] = ("a", "b", "c")
    asked: dict[str, Weigh] = field(default_factory=dict)

    def ask(self, task: Any, requests: dict[str, Weigh], quorum: float) -> dict[str, Weighed]:
        self.asked.update(requests)
        one = {c: self.lacks[c] for c in requests}
        return {
            c: Weighed(samples=4, shared=1.0, own=1.0, prior=4.0, lack=4 * x, squares=4 * x * x)
            for c, x in one.items()
        }

    def note(self, **notes: Any) -> None:
        pass


OWN = [Params.of({"w": torch.tensor([value])}) for value in (8.0, 2.0, 6.0)]


def values_after(server: ToyServer, **options: Any) -> tuple[list[float], tuple[int, ...]]:
    given = {"rounds": 0.5, "pull": 1.0, "evidence": True, "same_names": False}
    plan = SharedStartOptions(**{**given, **options})
    after = share(ToyState(), OWN, None, "single", plan, server)  # type: ignore[arg-type]
    return [float(m["w"]) for m in after.models], after.sharing


def test_who_leaves_keeps_its_own_step_and_the_others_are_averaged_without_it() -> None:
    server = ToyServer({"a": 0.1, "b": -0.1, "c": 0.0})
    assert values_after(server) == ([8.0, 3.0, 3.0], (1, 2))  # (30 · 2 + 10 · 6) / 40
    # before that, they compared their own steps with the mean over all, (80 + 60 + 60) / 50
    assert {c: float(r.shared["w"]) for c, r in server.asked.items()} == dict.fromkeys("abc", 4.0)
    assert {c: float(r.own["w"]) for c, r in server.asked.items()} == {"a": 8.0, "b": 2.0, "c": 6.0}
    assert np.exp(server.asked["b"].log_prior) == pytest.approx([31 / 32, 1 / 32])
    assert {r.enough for r in server.asked.values()} == {0.5}


def test_after_the_shared_rounds_a_cluster_needs_evidence_to_stay() -> None:
    server = ToyServer({"a": -0.1, "b": -0.1, "c": 0.0}, round=5)
    assert values_after(server) == ([3.5, 3.5, 6.0], (0, 1))  # (10 · 8 + 30 · 2) / 40
    assert {r.enough for r in server.asked.values()} == {1.0}, "the shared step must now be the better one"


def test_a_cluster_that_nobody_of_the_cohort_belongs_to_is_judged_later() -> None:
    server = ToyServer({"a": -0.1, "b": 0.1}, round=4, cohort=("a", "b"))
    assert values_after(server) == ([7.0, 2.0, 7.0], (0, 2))  # (10 · 8 + 10 · 6) / 20
    assert values_after(ToyServer({"a": -0.1, "b": -0.1}, round=0, cohort=("a", "b")))[1] == (0, 1)


def test_nobody_shares_alone() -> None:
    assert values_after(ToyServer({"a": 0.1, "b": -0.1, "c": 0.1})) == ([8.0, 2.0, 6.0], ())


def test_between_the_checks_nobody_is_asked_and_all_share() -> None:
    server = ToyServer({}, round=3)
    assert values_after(server) == ([4.0, 4.0, 4.0], (0, 1, 2))
    assert values_after(ToyServer({}), evidence=False) == ([4.0, 4.0, 4.0], (0, 1, 2))


def test_a_share_of_rounds_outside_0_to_1_is_refused() -> None:
    from feddag.core.errors import InvalidInput
    from feddag.experiment.settings import Experiment

    with pytest.raises(InvalidInput, match=r"shared_start\.rounds"):
        Experiment().with_overrides(["algorithm=feddag", "algorithm.shared_start.rounds=1.5"])
