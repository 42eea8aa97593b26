# SPDX-License-Identifier: Apache-2.0
"""FedDAG's own equations and odd federations; what all methods share is tested in tests/contracts."""

import dataclasses
import inspect
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from feddag.algorithms.feddag import FedDAG, State
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.pipeline import cluster_signatures
from feddag.core import codec
from feddag.core.averaging import Mean, mean_reply
from feddag.core.capabilities import FindsClusters
from feddag.core.clusters import Clusters
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.engines.inline import InlineEngine
from feddag.experiment.settings import Experiment
from feddag.learning.dual import (
    PRIMARY,
    SECONDARY,
    EncoderOptions,
    TrainDual,
    TrainedDual,
    aggregate,
    borrowed_secondary,
    train_dual,
    training_request,
)
from feddag.learning.signature import DATA_VIEWS, SignatureOptions, items_of, sketch_mask
from feddag.learning.train import Train, train
from tests.contracts.toys import TRAINING, Around, play, toy, toy_server


def model(value: float) -> Params:
    """A toy two-encoder model all of whose numbers are alike."""
    return Params.of({n: torch.full((2,), value) for n in ("primary.w", "secondary.w", "head.w")})


def reply(primary: float | None, borrowed: float | None, examples: int) -> TrainedDual:
    update = (
        None
        if primary is None
        else Params.of({n: torch.full((2,), primary) for n in ("primary.w", "head.w")})
    )
    secondary = None if borrowed is None else Params.of({"secondary.w": torch.full((2,), borrowed)})
    return TrainedDual(update=update, borrowed_secondary=secondary, examples=examples)


def numbers(params: Params) -> dict[str, float]:
    return {name: float(tensor[0]) for name, tensor in params.items()}


MODELS = tuple(model(10.0 * (z + 1)) for z in range(3))
SOURCES = ((1, 2), (0,), (0,))  # cluster 0 learns from 1 and 2; 1 and 2 learn from 0


class TestAggregation:
    """Eqs. 18 and 21 with numbers one can check by hand."""

    replies = MappingProxyType(
        {0: {"a": reply(1.0, 8.0, 3), "b": reply(5.0, 4.0, 1)}, 1: {"c": reply(2.0, 6.0, 7)}}
    )

    def after(self, replies: Any = None, **options: Any) -> tuple[Params, ...]:
        means = {z: mean_reply(of_z) for z, of_z in (self.replies if replies is None else replies).items()}
        return aggregate(MODELS, SOURCES, means, EncoderOptions(**options))

    def test_primary_encoder_and_head_move_by_the_example_weighted_mean_of_their_own_members(self):
        models = self.after()
        assert numbers(models[0])["primary.w"] == 10 + (3 * 1 + 1 * 5) / 4
        assert numbers(models[0])["head.w"] == 10 + (3 * 1 + 1 * 5) / 4
        assert numbers(models[1])["primary.w"] == 20 + 2

    def test_a_secondary_encoder_moves_by_the_mean_update_of_its_sources(self):
        models = self.after()
        assert numbers(models[0])["secondary.w"] == 10 + 6, "source 2 had no participant"
        assert numbers(models[1])["secondary.w"] == 20 + (3 * 8 + 1 * 4) / 4
        assert numbers(models[2])["secondary.w"] == 30 + (3 * 8 + 1 * 4) / 4

    def test_a_cluster_without_participants_keeps_every_bit_of_its_primary_encoder_and_head(self):
        assert self.after()[2].select(*PRIMARY) == MODELS[2].select(*PRIMARY)

    def test_several_sources_are_summed_or_averaged(self):
        replies = {**self.replies, 2: {"d": reply(0.0, 2.0, 1)}}
        summed = self.after(replies, source_updates="sum")[0]
        averaged = self.after(replies)[0]
        assert numbers(summed)["secondary.w"] == 10 + 6 + 2
        assert numbers(averaged)["secondary.w"] == 10 + (6 + 2) / 2

    def test_nobody_answered_changes_nothing(self):
        assert self.after({}) == MODELS


class TestBuffers:
    """Statistics of batch normalisation: the same clusters, with numbers one can check by hand."""

    variances = (0.1, 2.0, 4.0)

    @staticmethod
    def encoder(weight: float, variance: float) -> Params:
        tensors = {"secondary.w": torch.tensor([weight]), "secondary.var": torch.tensor([variance])}
        return Params.of(tensors, ["secondary.var"])

    @pytest.mark.parametrize("how", ["mean", "sum"])
    def test_learners_get_the_variance_that_the_clients_of_their_sources_found(self, how: Any) -> None:
        models = [self.encoder(10.0 * (z + 1), variance) for z, variance in enumerate(self.variances)]
        options = EncoderOptions(combine_learners=how, source_updates=how)
        lent = [borrowed_secondary(z, models, SOURCES, options) for z in range(3)]
        # Cluster 0 trains the encoders of learners 1 and 2 together: a variance has a mean, but no sum.
        assert [float(encoder["secondary.var"]) for encoder in lent] == pytest.approx([3.0, 0.1, 0.1])
        found = (0.5, 0.02, 0.04)  # what the clients of each cluster measure
        replies = {
            z: Mean(TrainedDual(update=None, borrowed_secondary=trained - lent[z], examples=5), ("a",))
            for z, trained in enumerate(
                self.encoder(float(lent[z]["secondary.w"]) + 1.0, found[z]) for z in range(3)
            )
        }
        after = aggregate(models, SOURCES, replies, options)
        # Eq. 21 as it is written would give learner 1 a variance of 2.0 + (0.5 - 3.0) = -0.5.
        assert [float(m["secondary.var"]) for m in after] == pytest.approx([0.03, 0.5, 0.5], abs=1e-6)
        summed = 2.0 if how == "sum" else 1.0
        assert [float(m["secondary.w"]) for m in after] == [10.0 + summed, 21.0, 31.0]

    def test_a_cluster_that_is_its_own_source_has_the_same_bits_as_by_plain_addition(self) -> None:
        models = [self.encoder(1.0, 0.3), self.encoder(2.0, 0.7)]
        update = self.encoder(0.1, -0.2)
        reply = TrainedDual(update=None, borrowed_secondary=update, examples=5)
        (after, _) = aggregate(models, ((0,), (1,)), {0: Mean(reply, ("a",))}, EncoderOptions(sharing=False))
        assert after == models[0] + update


class TestTrainingRequests:
    alone = ((1,), (0,), (0,))  # nobody learns from cluster 2

    def request(self, z: int, round_: int = 1, sources: Any = SOURCES, **options: Any) -> Any:
        return training_request(z, MODELS, sources, EncoderOptions(**options), LocalTraining(), round_)

    def test_a_source_receives_the_mean_or_sum_of_its_learners_secondary_encoders(self):
        assert numbers(self.request(0).borrowed_secondary) == {"secondary.w": 25.0}  # learners 1 and 2
        summed = self.request(0, combine_learners="sum")
        assert numbers(summed.borrowed_secondary) == {"secondary.w": 50.0}
        assert numbers(self.request(2).borrowed_secondary) == {"secondary.w": 10.0}

    def test_a_cluster_without_learners_borrows_no_encoder_and_is_sent_none(self):
        assert self.request(2, sources=self.alone).borrowed_secondary is None
        assert self.request(2, sources=self.alone).primary

    def test_two_primary_rounds_are_followed_by_a_secondary_one(self):
        plan = [self.request(0, r, primary_rounds=2) for r in range(1, 7)]
        assert [p.primary for p in plan] == [True, True, False, True, True, False]
        borrowed = [p.borrowed_secondary is not None for p in plan]
        assert borrowed == [False, False, True, False, False, True]

    def test_a_cluster_with_nothing_to_do_in_a_secondary_round_is_not_asked(self):
        assert self.request(2, 2, self.alone, primary_rounds=1) is None


def test_the_sketch_keeps_the_same_coordinates_for_everyone_and_two_percent_of_them():
    mask = sketch_mask(42, 0.02, 1000)
    assert len(mask) == 20
    assert np.array_equal(mask, sketch_mask(42, 0.02, 1000))
    assert not np.array_equal(mask, sketch_mask(43, 0.02, 1000))
    assert len(sketch_mask(1, 0.001, 10)) == 1


TWO = {"preset": "two_encoders"}  # the paper's form: warm start, two encoders


def warm_mean(prepared: Any) -> Params:
    """What FedDAG* starts from when there is one cluster."""
    return play(prepared, rounds=0).states[0].models[0]


def test_one_cluster_is_fedavg():
    settings = {"signature": {"views": ["pixels"]}, "clustering": {"num_clusters": 1}}
    ours = play(toy("feddag", settings), rounds=3).states
    fedavg = play(toy("fedavg"), rounds=3).states
    assert [state.models for state in ours] == [(state.params,) for state in fedavg]


def test_one_encoder_and_one_cluster_is_fedavg_from_the_warm_start():
    prepared = toy("feddag", {**TWO, "encoders": {"count": 1}, "clustering": {"num_clusters": 1}})
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
    prepared = toy("feddag", {**TWO, "clustering": {"num_clusters": 1}})
    single = warm_mean(toy("feddag", {**TWO, "encoders": {"count": 1}, "clustering": {"num_clusters": 1}}))
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
        borrowed_secondary=None,
        primary=True,
        sequential=True,
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
    prepared = toy("feddag", {**TWO, "clustering": {"num_clusters": 2}})
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
    return (
        play(toy("feddag", {**TWO, "clustering": {"num_clusters": 2}, "encoders": settings}), rounds=0)
        .states[0]
        .models
    )


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
    for dual, single in zip(first_models(), first_models(count=1), strict=True):
        features = single["head.weight"].shape[1]
        assert torch.equal(dual["head.weight"][:, :features], single["head.weight"])
        assert not dual["head.weight"][:, features:].any()
        assert torch.equal(dual["head.bias"], single["head.bias"])
        assert dual.select("primary.") == single.select("primary.")


def test_random_heads_differ_between_clusters():
    first, second = first_models(head_start="random")
    assert first.select("head.") != second.select("head.")


def test_without_sharing_every_cluster_is_its_own_source():
    begun = play(
        toy("feddag", {"clustering": {"num_clusters": 2}, "encoders": {"sharing": False}}), rounds=0
    ).states[0]
    assert begun.sources == ((0,), (1,))


def test_a_cluster_without_anybody_there_keeps_its_model_bit_for_bit_and_later_teaches_nobody():
    prepared = toy("feddag", {**TWO, "clustering": {"num_clusters": 2}, "follow": {"idle": 3}})
    method, engine = prepared.algorithm, InlineEngine(prepared.site)
    begun = method.start(toy_server(prepared.site, engine, clients=prepared.trainable))
    assert begun.sources == ((1,), (0,))
    there = begun.clusters.members[0]

    def after(state: State, round_: int) -> State:
        server = toy_server(prepared.site, engine, clients=there, round=round_, num_rounds=99)
        return method.round(state, server)

    alone = after(begun, 5)
    assert alone.models[1] == begun.models[1], "nobody is there to learn, its source must not change it"
    assert alone.models[0].select(*PRIMARY) != begun.models[0].select(*PRIMARY)
    assert alone.models[0].select(*SECONDARY) == begun.models[0].select(*SECONDARY), "its source is away"
    later = after(alone, 8)
    assert later.models[1] == begun.models[1]
    assert later.models[0].select(*SECONDARY) != begun.models[0].select(*SECONDARY), "it learns from itself"
    assert (later.sources, later.empty) == (begun.sources, {"1": 5})


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_the_smallest_federations_run_whole(clients):
    prepared = toy("feddag", num_clients=clients, fraction_train=1.0, partition={"kind": "iid"})
    trace = play(prepared, rounds=2)
    assert sorted(c for m in trace.states[-1].clusters.members for c in m) == list(prepared.clients)


def test_more_sources_than_other_clusters_are_not_asked_for():
    begun = play(
        toy("feddag", {"clustering": {"num_clusters": 2}, "graph": {"num_sources": 9}}), rounds=0
    ).states[0]
    assert begun.sources == ((1,), (0,))


def test_a_client_with_a_broken_signature_is_named_and_the_rest_is_clustered():
    prepared = toy("feddag", {"clustering": {"num_clusters": 2}})
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
    algorithm = prepared.algorithm
    found = cluster_signatures(items_of(shuffled), algorithm.clustering_options, algorithm.graph, begun.mask)
    labels = found.labels_N
    assert Clusters.from_labels(list(shuffled), labels) == begun.clusters


def test_newcomers_never_move_old_clients():
    trace = play(toy("feddag"), rounds=1)
    before, after = trace.states[-2].clusters.labels(), trace.states[-1].clusters.labels()
    assert {c: after[c] for c in before} == before
    assert len(after) == len(before) + 2
    assert len(trace.states[-1].frame.weights_N) == len(after)


def test_a_state_with_classes_that_clients_lack_survives_a_checkpoint():
    for options in ({}, {"class_weighting": "frequency"}, {"fusion": "structure"}):
        views = ["gradient"] if "fusion" in options else ["pixels", "gradient"]
        settings = {"clustering": options, "signature": {"views": views}}
        prepared = toy("feddag", settings, partition={"kind": "label-groups", "groups": 2})
        state = play(prepared, rounds=1).states[-1]
        assert any((s.counts == 0).any() for s in state.signatures.values())
        again = codec.decode(State, codec.encode(state))
        assert codec.digest(again.frame) == codec.digest(state.frame)
        if not options:
            levels = {fit.name: fit.angles.levels_NC.shape for fit in state.frame.fits if fit.angles}
            shape = (len(state.signatures), prepared.federation.num_classes)
            assert levels == {"pixels": shape, "gradient": (len(state.signatures), 1)}


def test_the_clustering_shows_the_clusters_in_use_after_newcomers_joined():
    prepared = toy("feddag")
    trace = play(prepared, rounds=1)
    first, last = trace.states[0], trace.states[-1]
    assert isinstance(prepared.algorithm, FindsClusters)
    assert prepared.algorithm.clusters_at_start
    found = prepared.algorithm.clustering(codec.decode(State, codec.encode(last)))
    assert found.clusters == last.clusters
    assert found.sources == last.sources
    assert found.clients == tuple(last.signatures)
    assert len(found.clients) == len(first.signatures) + 2
    assert list(found.views) == ["Labels", "Pixels", "Shape", "Gradient", "Proximity"]
    assert all(v.matrix_NN.shape == (len(found.clients),) * 2 for v in found.views.values())
    assert len(found.counts_NC) == len(found.clients)
    assert found.weights_N is None, "views have one weight for all clients"
    assert found.tree.clients == tuple(first.signatures), "the tree is that of the clustering in use"
    assert found.tree.linkage_matrix.shape == (len(first.signatures) - 1, 4)
    assert found.tree.threshold == first.tree.threshold
    assert found.how == "The cut was chosen to give 2 clusters on average linkage."


def test_the_clustering_clusters_nothing_again(monkeypatch):
    prepared = toy("feddag")
    state = play(prepared, rounds=0).states[0]
    moved = dataclasses.replace(
        state,
        clusters=Clusters(members=(sum(state.clusters.members, ()),)),
        models=state.models[:1],
        sources=((0,),),
    )
    monkeypatch.setattr("scipy.cluster.hierarchy.linkage", None)
    assert len(prepared.algorithm.clustering(moved).clusters) == 1


def test_a_clustering_of_one_view_shows_this_view_and_the_rule_of_the_cut():
    prepared = toy("feddag", {"signature": {"views": ["pixels", "shape", "texture"]}})
    found = prepared.algorithm.clustering(play(prepared, rounds=0).states[0])
    assert list(found.views) == ["Labels", "Pixels", "Proximity"]
    assert found.weights_N is None
    assert found.how == "No view shows groups that chance would not show, so nobody was split."


OLD_KEYS = {
    "signature": "warmup_rounds warmup_update sketch_share vectors svd min_samples_per_vector",
    "clustering": "angles delta weigh_absent fusion fusion_rule linkage num_clusters threshold",
    "graph": "num_sources alignment lacking_classes shared_alignment",
    "encoders": "sharing source_updates phases secondary_epochs primary_start head_start secondary_start "
    "diversity",
}
NEW_NAMES = {
    "similarity": "signature.views",
    "weighting": "clustering.class_weighting",
    "rule": "clustering.cut_rule",
    "encoders": "encoders.count",
    "combine": "encoders.combine_learners",
    "schedule": "encoders.primary_rounds",
} | {key: f"{group}.{key}" for group, keys in OLD_KEYS.items() for key in keys.split()}


@pytest.mark.parametrize(("old", "new"), NEW_NAMES.items())
def test_a_former_setting_is_answered_with_its_new_name(old, new):
    with pytest.raises(InvalidInput, match=f"'{old}' is now 'algorithm.{new}'"):
        Experiment.from_settings({"algorithm": {"name": "feddag", old: 1}})


def test_the_second_switch_of_views_is_answered_with_the_one_that_is_left():
    with pytest.raises(InvalidInput, match=r"'clustering\.views' is now 'algorithm\.signature\.views'"):
        Experiment.from_settings({"algorithm": {"name": "feddag", "clustering": {"views": "data"}}})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clustering": {"linkage": "ward"}}, "algorithm.clustering.linkage"),
        ({"clustering": {"delta": 2}}, "algorithm.clustering.delta = 2: expected less than or equal to 1"),
        ({"clustering": {"rule": "loss"}}, "'clustering.rule' is unknown: 'clustering' has angles"),
        ({"encoders": {"phases": "in turn"}}, "algorithm.encoders.phases"),
        ({"signature": {"vectors": 2.5}}, "expected a whole number, or a share below 1"),
        ({"clustering_options": {}}, "'clustering_options' is unknown: 'feddag' has clustering"),
    ],
)
def test_a_wrong_setting_in_a_group_is_named_with_its_group(settings, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        Experiment.from_settings({"algorithm": {"name": "feddag", **settings}})


def test_a_preset_and_single_settings_are_merged_inside_a_group():
    settings = {"name": "feddag", "preset": "paper", "clustering": {"num_clusters": 3, "fusion": "mean"}}
    made = Experiment.from_settings({"algorithm": settings}).build_algorithm()
    assert made.clustering_options == ClusteringOptions(
        **{**FedDAG.presets["paper"]["clustering"], "num_clusters": 3, "fusion": "mean"}
    )
    assert made.signature.vectors == 0.01
    made = Experiment().with_overrides(["algorithm=feddag", "algorithm.clustering.linkage=single"])
    assert made.build_algorithm().clustering_options.linkage == "single"


def test_the_algorithm_reads_on_a_few_screens():
    assert len(inspect.getsource(inspect.getmodule(FedDAG)).splitlines()) <= 200


def test_planted_groups_are_found_on_the_toy_problem():
    prepared = toy("feddag")
    labels = play(prepared, rounds=0).states[0].clusters.labels()
    groups = prepared.federation.groups
    pairs = {(labels[c], groups[c]) for c in labels}
    assert len(pairs) == len(set(labels.values())) == 2


def test_the_views_suit_the_data_unless_some_are_named():
    def views(
        shape: tuple[int, ...], codes: bool = False, noisy: bool = False, **named: Any
    ) -> tuple[str, ...]:
        problem = Problem(shape, 3, integer_codes=codes)
        return FedDAG(signature=SignatureOptions(**named)).suited(problem, noisy).signature.views

    assert views((1, 28, 28)) == views((9, 128)) == views((80,), codes=True) == DATA_VIEWS
    assert views((6,)) == (*DATA_VIEWS, "gradient"), "a table"
    assert views((6,), views=("pixels",)) == ("pixels",)
    # Views with noise share one ε, so there are fewer of them, unless they are named.
    assert views((1, 28, 28), noisy=True) == ("pixels", "shape", "texture")
    assert views((1, 28, 28), noisy=True, views=("pixels", "tones")) == ("pixels", "tones")


def test_nobody_trains_for_data_angles_alone_unless_the_warm_model_is_wanted():
    def rounds(keep: bool, **settings: Any) -> int:
        algorithm = FedDAG(signature=SignatureOptions(**settings))
        return algorithm.signature_request(model(0.0), mask=1, keep=keep).signature.warmup_rounds

    assert rounds(keep=False, views=("pixels",)) == 0
    assert rounds(keep=True, views=("pixels",)) == 2
    assert rounds(keep=False, views=("pixels", "gradient")) == 2


def test_signatures_are_those_of_plain_training_whatever_the_prior_correction():
    """Which labels a client has is what its update should tell: clusters must not depend on τ."""
    trainings = [{**TRAINING, "prior_correction": tau} for tau in (0.0, 1.0)]
    plain, corrected = (toy("feddag", training=training) for training in trainings)
    first, second = (play(prepared, rounds=1) for prepared in (plain, corrected))
    for client, signature in first.states[0].signatures.items():
        np.testing.assert_array_equal(signature.gradient, second.states[0].signatures[client].gradient)
    assert first.states[0].clusters == second.states[0].clusters
    assert first.states[1].models[0] != second.states[1].models[0]


def test_updates_of_a_corrected_warm_up_can_be_asked_for():
    views = {"views": ["pixels", "gradient"]}
    told = [
        play(toy("feddag", {"signature": {**views, "prior_correction": tau}}), rounds=0).states[0]
        for tau in (0.0, 1.0)
    ]
    client = next(iter(told[0].signatures))
    plain, corrected = (state.signatures[client].gradient for state in told)
    assert plain.shape == corrected.shape
    assert not np.array_equal(plain, corrected)
