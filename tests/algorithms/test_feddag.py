# SPDX-License-Identifier: Apache-2.0
"""FedDAG's own equations and odd federations; what all methods share is tested in tests/contracts."""

import dataclasses
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from feddag.algorithms.feddag import FedDAG, State
from feddag.core import codec
from feddag.core.clusters import Clusters
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.engines.inline import InlineEngine
from feddag.learning.dual import PRIMARY, SECONDARY, TrainDual, TrainedDual, train_dual
from feddag.learning.signature import sketch_mask
from feddag.learning.train import Train, train
from tests.contracts.toys import TRAINING, Around, play, toy


def model(value: float) -> Params:
    """A toy two-encoder model all of whose numbers are alike."""
    return Params.of({n: torch.full((2,), value) for n in ("primary.w", "secondary.w", "head.w")})


def state(sources: tuple[tuple[int, ...], ...], members: tuple[tuple[str, ...], ...]) -> State:
    return State(
        clusters=Clusters(members=members),
        models=tuple(model(10.0 * (z + 1)) for z in range(len(members))),
        sources=sources,
        signatures={},
        start=model(0.0),
        mask=1,
        weights=np.zeros(0),
        noise=np.zeros((0, 0), dtype=np.float32),
        ranges=(0.0,) * 6,
        threshold=0.5,
    )


def reply(primary: float | None, visiting: float | None, examples: int) -> TrainedDual:
    update = (
        None
        if primary is None
        else Params.of({n: torch.full((2,), primary) for n in ("primary.w", "head.w")})
    )
    guest = None if visiting is None else Params.of({"secondary.w": torch.full((2,), visiting)})
    return TrainedDual(update=update, visiting=guest, examples=examples)


def numbers(params: Params) -> dict[str, float]:
    return {name: float(tensor[0]) for name, tensor in params.items()}


class TestLearning:
    """Eqs. 18 and 21 with numbers one can check by hand. Cluster 0 learns from 1 and 2; 1 and 2 from 0."""

    before = state(((1, 2), (0,), (0,)), (("a", "b"), ("c",), ("d",)))
    replies = MappingProxyType(
        {0: {"a": reply(1.0, 8.0, 3), "b": reply(5.0, 4.0, 1)}, 1: {"c": reply(2.0, 6.0, 7)}}
    )

    def test_primary_encoder_and_head_move_by_the_example_weighted_mean_of_their_own_members(self):
        models = FedDAG().learn(self.before, self.replies).models
        assert numbers(models[0])["primary.w"] == 10 + (3 * 1 + 1 * 5) / 4
        assert numbers(models[0])["head.w"] == 10 + (3 * 1 + 1 * 5) / 4
        assert numbers(models[1])["primary.w"] == 20 + 2

    def test_a_secondary_encoder_moves_by_the_mean_update_of_its_sources(self):
        models = FedDAG().learn(self.before, self.replies).models
        assert numbers(models[0])["secondary.w"] == 10 + 6, "source 2 had no participant"
        assert numbers(models[1])["secondary.w"] == 20 + (3 * 8 + 1 * 4) / 4
        assert numbers(models[2])["secondary.w"] == 30 + (3 * 8 + 1 * 4) / 4

    def test_a_cluster_without_participants_keeps_every_bit_of_its_primary_encoder_and_head(self):
        models = FedDAG().learn(self.before, self.replies).models
        assert models[2].select(*PRIMARY) == self.before.models[2].select(*PRIMARY)

    def test_several_sources_are_summed_or_averaged(self):
        replies = {**self.replies, 2: {"d": reply(0.0, 2.0, 1)}}
        summed = FedDAG(source_updates="sum").learn(self.before, replies).models[0]
        averaged = FedDAG().learn(self.before, replies).models[0]
        assert numbers(summed)["secondary.w"] == 10 + 6 + 2
        assert numbers(averaged)["secondary.w"] == 10 + (6 + 2) / 2

    def test_nobody_answered_changes_nothing(self):
        assert FedDAG().learn(self.before, {}).models == self.before.models


class TestLessons:
    before = state(((1, 2), (0,), (0,)), (("a", "b"), ("c",), ("d",)))

    def test_a_source_receives_the_mean_or_sum_of_its_learners_secondary_encoders(self):
        lesson = FedDAG().lesson(self.before, 0, 1)  # learners 1 and 2
        assert numbers(lesson.visiting) == {"secondary.w": 25.0}
        assert numbers(FedDAG(combine="sum").lesson(self.before, 0, 1).visiting) == {"secondary.w": 50.0}
        assert numbers(FedDAG().lesson(self.before, 2, 1).visiting) == {"secondary.w": 10.0}

    def test_a_cluster_without_learners_has_no_visitor_and_is_sent_none(self):
        alone = state(((1,), (0,), (0,)), (("a",), ("b",), ("c",)))
        assert FedDAG().lesson(alone, 2, 1).visiting is None
        assert FedDAG().lesson(alone, 2, 1).primary

    def test_a_schedule_of_two_to_one_has_two_primary_rounds_then_a_secondary_one(self):
        method = FedDAG(schedule=2)
        plan = [method.lesson(self.before, 0, r) for r in range(1, 7)]
        assert [lesson.primary for lesson in plan] == [True, True, False, True, True, False]
        assert [lesson.visiting is not None for lesson in plan] == [False, False, True, False, False, True]

    def test_a_cluster_with_nothing_to_do_in_a_secondary_round_is_not_asked(self):
        alone = state(((1,), (0,), (0,)), (("a",), ("b",), ("c",)))
        assert FedDAG(schedule=1).lesson(alone, 2, 2) is None


def test_the_sketch_keeps_the_same_coordinates_for_everyone_and_two_percent_of_them():
    mask = sketch_mask(42, 0.02, 1000)
    assert len(mask) == 20
    assert np.array_equal(mask, sketch_mask(42, 0.02, 1000))
    assert not np.array_equal(mask, sketch_mask(43, 0.02, 1000))
    assert len(sketch_mask(1, 0.001, 10)) == 1


def warm_mean(prepared: Any) -> Params:
    """What FedDAG* starts from when there is one cluster."""
    return play(prepared, rounds=0).states[0].models[0]


def test_one_encoder_and_one_cluster_is_fedavg_from_the_warm_start():
    prepared = toy("feddag", {"encoders": 1, "num_clusters": 1})
    trace = play(prepared, rounds=3)
    fedavg = toy("fedavg")
    algorithm = fedavg.algorithm

    class FromWarmStart:
        tasks = (train,)
        start = staticmethod(
            lambda server: dataclasses.replace(algorithm.start(server), params=warm_mean(prepared))
        )
        round, deploy, onboard = algorithm.round, algorithm.deploy, algorithm.onboard

    other = dataclasses.replace(fedavg.prepared, algorithm=FromWarmStart())
    base = play(dataclasses.replace(fedavg, prepared=other), rounds=3)
    assert trace.states[3].models[0] == base.states[3].params


def test_with_a_secondary_encoder_that_outputs_zero_it_follows_the_single_encoder():
    """Equal primary and head at the start, no secondary phase: both train the same function."""
    prepared = toy("feddag", {"num_clusters": 1})
    single = warm_mean(toy("feddag", {"encoders": 1, "num_clusters": 1}))
    engine = InlineEngine(prepared.site)
    dual = play(prepared, rounds=0).states[0].models[0]
    features = single["head.weight"].shape[1]
    head = torch.cat([single["head.weight"], torch.zeros_like(single["head.weight"])], dim=1)
    dual = dual.replace(single.select("primary.")).replace(dual.select(*SECONDARY) * 0.0)
    dual = dual.replace(Params.of({"head.weight": head, "head.bias": single["head.bias"]}))
    local = LocalTraining(local_epochs=3, batch_size=8, lr=0.1)
    from feddag.core.engine import Exchange
    from feddag.core.seeds import Seed

    exchange, client = Exchange(1, Seed(1)), prepared.trainable[0]
    request = TrainDual(
        model=dual,
        visiting=None,
        primary=True,
        in_turn=True,
        diversity=0.0,
        local=local,
        secondary_epochs=0,
    )
    ours = engine.ask(train_dual, {client: request}, exchange)[client].reply.update
    plain = engine.ask(train, {client: Train(params=single, local=local)}, exchange)[client].reply.update
    torch.testing.assert_close(ours["primary.1.weight"], plain["primary.1.weight"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours["head.weight"][:, :features], plain["head.weight"], rtol=1e-4, atol=1e-6)


def test_primary_encoders_start_as_the_example_weighted_mean_of_the_members_warm_encoders():
    """Eq. 22, literally, from what the clients remember."""
    prepared = toy("feddag", {"num_clusters": 2})
    engine = InlineEngine(prepared.site)
    kept: dict[str, Params] = {}

    class Spy(Around):
        def ask(self, task, requests, exchange):
            answers = super().ask(task, requests, exchange)
            if task.name == "sign":
                kept.update(
                    {c: self.memories.of[c]["warm"] for c in answers if "warm" in self.memories.of[c]}
                )
            return answers

    begun = play(prepared, Spy(engine), rounds=0).states[0]
    for z, members in enumerate(begun.clusters.members):
        counts = {c: int(begun.signatures[c].counts.sum()) for c in members}
        expected = sum(
            (counts[c] / sum(counts.values())) * kept[c].select("primary.").vector.double() for c in members
        )
        torch.testing.assert_close(begun.models[z].select("primary.").vector, expected.float())
    assert not any("warm" in m for m in engine.memories.of.values()), "it is not needed any longer"


def first_models(**settings):
    return play(toy("feddag", {"num_clusters": 2, **settings}), rounds=0).states[0].models


def test_secondary_encoders_start_from_the_sources_or_one_random_encoder_or_one_each_or_a_copy():
    def as_secondary(model):
        return model.select("primary.").rename("primary.", "secondary.")

    first, second = first_models()  # of two clusters each is the other's source
    assert first.select(*SECONDARY) == as_secondary(second)
    assert second.select(*SECONDARY) == as_secondary(first)
    first, second = first_models(secondary_start="common")
    assert first.select(*SECONDARY) == second.select(*SECONDARY)
    first, second = first_models(secondary_start="random")
    assert first.select(*SECONDARY) != second.select(*SECONDARY)
    first, _ = first_models(secondary_start="copy")
    assert first.select(*SECONDARY) == as_secondary(first)


def test_a_warm_head_makes_two_encoders_start_as_the_model_of_one():
    """FedDAG begins where FedDAG* begins: the second encoder's columns of the head are 0."""
    for dual, single in zip(first_models(), first_models(encoders=1), strict=True):
        features = single["head.weight"].shape[1]
        assert torch.equal(dual["head.weight"][:, :features], single["head.weight"])
        assert not dual["head.weight"][:, features:].any()
        assert torch.equal(dual["head.bias"], single["head.bias"])
        assert dual.select("primary.") == single.select("primary.")


def test_random_heads_differ_between_clusters():
    first, second = first_models(head_start="random")
    assert first.select("head.") != second.select("head.")


def test_without_sharing_every_cluster_is_its_own_source():
    begun = play(toy("feddag", {"num_clusters": 2, "sharing": False}), rounds=0).states[0]
    assert begun.sources == ((0,), (1,))


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_the_smallest_federations_run_whole(clients):
    prepared = toy("feddag", num_clients=clients, fraction_train=1.0, partition={"kind": "iid"})
    trace = play(prepared, rounds=2)
    assert sorted(c for m in trace.states[-1].clusters.members for c in m) == list(prepared.clients)


def test_more_sources_than_other_clusters_are_not_asked_for():
    begun = play(toy("feddag", {"num_clusters": 2, "num_sources": 9}), rounds=0).states[0]
    assert begun.sources == ((1,), (0,))


def test_a_client_with_a_broken_signature_is_named_and_the_rest_is_clustered():
    prepared = toy("feddag", {"num_clusters": 2})
    victim = prepared.trainable[0]

    class Broken(Around):
        def ask(self, task, requests, exchange):
            answers = dict(super().ask(task, requests, exchange))
            if task.name == "sign" and exchange.round == 0:
                answers[victim] = dataclasses.replace(
                    answers[victim],
                    reply=None,
                    failure="field 'sketch': expected finite numbers, got nan at position 3",
                )
            return answers

    everyone = lambda round_: prepared.trainable  # noqa: E731
    trace = play(prepared, Broken(InlineEngine(prepared.site)), rounds=1, cohort=everyone)
    assert victim not in trace.states[0].clusters.labels()
    assert victim in trace.states[1].clusters.labels(), "asked again when its turn to train comes"
    assert victim in trace.scores, "and served meanwhile"


def test_permuting_the_order_in_which_signatures_arrive_changes_no_cluster():
    prepared = toy("feddag")
    begun = play(prepared, rounds=0).states[0]
    shuffled = dict(reversed(begun.signatures.items()))
    labels = prepared.algorithm.cluster(shuffled, begun.mask).labels_N
    assert Clusters.from_labels(list(shuffled), labels) == begun.clusters


def test_newcomers_never_move_old_clients():
    trace = play(toy("feddag"), rounds=1)
    before, after = trace.states[-2].clusters.labels(), trace.states[-1].clusters.labels()
    assert {c: after[c] for c in before} == before
    assert len(after) == len(before) + 2
    assert len(trace.states[-1].weights) == len(after)


def test_a_state_with_classes_that_clients_lack_survives_a_checkpoint():
    for options in ({}, {"weighting": "frequency"}, {"similarity": "gradient"}):
        prepared = toy("feddag", options, partition={"kind": "label-groups", "groups": 2})
        state = play(prepared, rounds=1).states[-1]
        assert any((s.counts == 0).any() for s in state.signatures.values())
        again = codec.decode(State, codec.encode(state))
        np.testing.assert_array_equal(again.noise, state.noise)
        if not options:
            assert state.noise.shape == (len(state.signatures), prepared.federation.num_classes)


def test_the_explanation_shows_the_clusters_in_use_after_newcomers_joined():
    prepared = toy("feddag")
    state = play(prepared, rounds=1).states[-1]
    moved = dataclasses.replace(state, clusters=Clusters(members=(sum(state.clusters.members, ()),)))
    explained = prepared.algorithm.explain(
        dataclasses.replace(moved, models=state.models[:1], sources=((0,),))
    )
    assert explained.count == 1
    assert explained.labels_N.tolist() == [0] * len(state.signatures)
    assert len(explained.graph.learners_E) == 0
    labels = state.clusters.labels()
    explained = prepared.algorithm.explain(state)
    assert explained.labels_N.tolist() == [labels[c] for c in state.signatures]


def test_planted_groups_are_found_on_the_toy_problem():
    prepared = toy("feddag")
    labels = play(prepared, rounds=0).states[0].clusters.labels()
    groups = prepared.federation.groups
    pairs = {(labels[c], groups[c]) for c in labels}
    assert len(pairs) == len(set(labels.values())) == 2


def test_nobody_trains_for_data_angles_alone_unless_the_warm_model_is_wanted():
    def rounds(keep: bool, **settings: Any) -> int:
        return FedDAG(**settings).question(model(0.0), mask=1, keep=keep).warmup_rounds

    assert rounds(keep=False, similarity="data") == 0
    assert rounds(keep=True, similarity="data") == 2
    assert rounds(keep=False, similarity="fused") == 2


def test_signatures_are_those_of_plain_training_whatever_the_prior_correction():
    """Which labels a client has is what its update should tell: clusters must not depend on τ."""
    trainings = [{**TRAINING, "prior_correction": tau} for tau in (0.0, 1.0)]
    plain, corrected = (toy("feddag", training=training) for training in trainings)
    first, second = (play(prepared, rounds=1) for prepared in (plain, corrected))
    for client, signature in first.states[0].signatures.items():
        np.testing.assert_array_equal(signature.sketch, second.states[0].signatures[client].sketch)
    assert first.states[0].clusters == second.states[0].clusters
    assert first.states[1].models[0] != second.states[1].models[0]
