# SPDX-License-Identifier: Apache-2.0
"""Nothing handed in is changed, nothing held out is seen, and misfortune is survived."""

from dataclasses import replace

import numpy as np
import pytest

from feddag.algorithms import ALGORITHMS
from feddag.core import codec
from feddag.core.errors import QuorumMissed
from feddag.data.federation import NO_INDICES, Pool
from feddag.engines.inline import InlineEngine
from feddag.runs.simulate import Simulation
from tests.contracts.toys import (
    Around,
    PowerCut,
    arrays_of,
    every_algorithm,
    experiment,
    play,
    reference,
    toy,
)

clustered = pytest.mark.parametrize(
    "name", sorted(n for n, cls in ALGORITHMS.items() if "num_clusters" in cls.__dataclass_fields__)
)


class Watching(Around):
    """Notices when a task changes its request or what the client remembered before."""

    def ask(self, task, requests, exchange):
        before = {client: dict(memory) for client, memory in self.memories.of.items()}
        digests = {client: arrays_of(memory) for client, memory in before.items()}
        sent = {client: codec.digest(request) for client, request in requests.items()}
        answers = super().ask(task, requests, exchange)
        for client, digest in digests.items():
            assert arrays_of(before[client]) == digest, f"{task.name} changed an array in memory in place"
            assert client in requests or arrays_of(self.memories.of[client]) == digest, "a bystander's memory"
        assert {client: codec.digest(request) for client, request in requests.items()} == sent
        return answers


@every_algorithm
def test_requests_states_memories_and_samples_are_never_changed_in_place(name: str) -> None:
    prepared = toy(name)
    pool = prepared.federation.train
    samples = pool.x.tobytes(), pool.y.tobytes()
    trace = play(prepared, Watching(InlineEngine(prepared.site)))
    first_words = [digest.split()[0] for digest in trace.digests]
    assert [codec.digest(state) for state in trace.states] == first_words
    assert (pool.x.tobytes(), pool.y.tobytes()) == samples


def with_other_held_out_samples(prepared: Simulation) -> Simulation:
    """The same training data; test labels all wrong, no validation samples."""
    federation = prepared.federation
    shares = {c: replace(share, validation=NO_INDICES) for c, share in federation.clients.items()}
    test = Pool(-federation.test.x, (federation.test.y + 1) % federation.num_classes)
    federation = replace(federation, clients=shares, test=test)
    return replace(prepared, federation=federation)


@every_algorithm
def test_held_out_samples_decide_nothing(name: str) -> None:
    trace = play(with_other_held_out_samples(toy(name)))
    assert trace.digests == reference(name).digests
    expected = reference(name).scores
    assert any(trace.scores[c].loss != expected[c].loss for c in expected), "the test samples did change"


@every_algorithm
def test_a_single_client_is_enough(name: str) -> None:
    prepared = toy(name, num_clients=1, fraction_train=1.0, partition={"kind": "iid"})
    trace = play(prepared)
    assert trace.scores.keys() == {"c000"}


@clustered
def test_more_clusters_than_clients_are_survived(name: str) -> None:
    options = {**experiment(name).algorithm.model_extra, "num_clusters": 9}
    trace = play(toy(name, options), rounds=3)
    assert len(trace.scores) == 8


@every_algorithm
@pytest.mark.parametrize("rounds", [(0,), (1,), (0, 1, 2, 3)], ids=["start", "round 1", "always"])
def test_a_client_that_fails_is_done_without(name: str, rounds: tuple[int, ...]) -> None:
    prepared = toy(name)
    engine = PowerCut(InlineEngine(prepared.site), prepared.trainable[0], rounds)
    trace = play(prepared, engine, rounds=3, cohort=lambda round_: prepared.trainable[:4])
    assert trace.scores[prepared.trainable[0]].total.sum() > 0
    assert np.isfinite([scores.loss for scores in trace.scores.values()]).all()


@every_algorithm
def test_a_round_with_too_few_answers_is_refused(name: str) -> None:
    prepared = toy(name)
    if not any(asked.answers for asked in reference(name).asked if asked.purpose == "round"):
        pytest.skip("asks nobody")
    engine = PowerCut(InlineEngine(prepared.site), prepared.trainable[0], (0, 1, 2, 3))
    with pytest.raises(QuorumMissed, match="power cut"):
        play(prepared, engine, cohort=lambda round_: prepared.trainable, rounds=3, quorum=1.0)


@every_algorithm
def test_a_newcomer_without_training_samples_is_survived(name: str) -> None:
    prepared = toy(name)
    federation, poor = prepared.federation, prepared.federation.newcomers[0]
    shares = {**federation.clients, poor: replace(federation.clients[poor], train=NO_INDICES)}
    trace = play(replace(prepared, federation=replace(federation, clients=shares)))
    assert np.isfinite(trace.scores[poor].loss)
    assert [
        q.answers[poor].failure for q in trace.asked if poor in q.answers and q.answers[poor].failure
    ] == []
