# SPDX-License-Identifier: Apache-2.0
"""Promises about manners: nothing handed in is changed, nothing held out is seen, misfortune is survived."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from feddag.contracts.form import ContractBroken, require
from feddag.contracts.toys import Around, PowerCut, arrays_of, play, reference, toy
from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import QuorumMissed
from feddag.core.task import ClientTask
from feddag.data.federation import NO_INDICES, Pool
from feddag.engines.inline import InlineEngine
from feddag.runs.simulation import Simulation


class Watching(Around):
    """Notices when a task changes its request or what the client remembered before."""

    def ask(self, task: ClientTask, requests: Mapping[str, Any], exchange: Exchange) -> Mapping[str, Answer]:
        """Pass the question on, and compare before with after."""
        before = {client: dict(memory) for client, memory in self.memories.of.items()}
        digests = {client: arrays_of(memory) for client, memory in before.items()}
        sent = {client: codec.digest(request) for client, request in requests.items()}
        answers = super().ask(task, requests, exchange)
        for client, digest in digests.items():
            require(arrays_of(before[client]) == digest, f"{task.name} changed an array in memory in place")
            kept = client in requests or arrays_of(self.memories.of[client]) == digest
            require(kept, f"{task.name} changed the memory of a bystander")
        same = {client: codec.digest(request) for client, request in requests.items()} == sent
        require(same, f"{task.name} changed its request in place")
        return answers


def nothing_is_changed_in_place(name: str) -> None:
    """Requests, states, memories and samples stay as they were handed in."""
    prepared = toy(name)
    pool = prepared.federation.train
    samples = pool.x.tobytes(), pool.y.tobytes()
    trace = play(prepared, Watching(InlineEngine(prepared.site)))
    then = [digest.split()[0] for digest in trace.digests]
    require([codec.digest(state) for state in trace.states] == then, "a former state was changed in place")
    require((pool.x.tobytes(), pool.y.tobytes()) == samples, "samples were changed in place")


def with_other_held_out_samples(prepared: Simulation) -> Simulation:
    """The same training data; test labels all wrong, no validation samples."""
    federation = prepared.federation
    shares = {c: replace(share, validation=NO_INDICES) for c, share in federation.clients.items()}
    test = Pool(-federation.test.x, (federation.test.y + 1) % federation.num_classes)
    return replace(prepared, federation=replace(federation, clients=shares, test=test))


def held_out_samples_decide_nothing(name: str) -> None:
    """With other test and validation samples it trains the same models."""
    trace, expected = play(with_other_held_out_samples(toy(name))), reference(name)
    require(trace.digests == expected.digests, "its states depend on held-out samples")
    changed = any(trace.scores[c].loss != expected.scores[c].loss for c in expected.scores)
    require(changed, "the evaluation does not see the test samples")


def a_single_client_is_enough(name: str) -> None:
    """One client makes a federation."""
    prepared = toy(name, num_clients=1, fraction_train=1.0, partition={"kind": "iid"})
    require(play(prepared).scores.keys() == {"c000"}, "the one client is not served")


def a_client_that_fails_is_done_without(name: str) -> None:
    """At the start, in one round, or always: the others go on, and the client is served."""
    for rounds in ((0,), (1,), (0, 1, 2, 3)):
        prepared = toy(name)
        victim = prepared.trainable[0]
        engine = PowerCut(InlineEngine(prepared.site), victim, rounds)
        trace = play(prepared, engine, rounds=3, cohort=lambda round_: toy(name).trainable[:4])
        require(bool(trace.scores[victim].total.sum() > 0), "a client that failed is not served")
        finite = np.isfinite([scores.loss for scores in trace.scores.values()]).all()
        require(bool(finite), "after a client failed, a model gives losses that are not finite")


def a_round_with_too_few_answers_is_refused(name: str) -> None:
    """The quorum of the settings holds."""
    if not any(asked.answers for asked in reference(name).asked if asked.purpose == "round"):
        return  # it asks nobody
    prepared = toy(name)
    engine = PowerCut(InlineEngine(prepared.site), prepared.trainable[0], (0, 1, 2, 3))
    try:
        play(prepared, engine, cohort=lambda round_: prepared.trainable, rounds=3, quorum=1.0)
    except QuorumMissed as missed:
        require("power cut" in str(missed), f"the reason is lost: {missed}")
        return
    raise ContractBroken("it went on although fewer clients answered than the quorum asks for")


def a_newcomer_without_samples_is_survived(name: str) -> None:
    """Somebody who has nothing to train on is served too."""
    prepared = toy(name)
    federation, poor = prepared.federation, prepared.federation.newcomers[0]
    shares = {**federation.clients, poor: replace(federation.clients[poor], train=NO_INDICES)}
    trace = play(replace(prepared, federation=replace(federation, clients=shares)))
    require(bool(np.isfinite(trace.scores[poor].loss)), "its losses are not finite")
    failures = [q.answers[poor].failure for q in trace.asked if poor in q.answers]
    require(not any(failures), f"its client fails: {next(filter(None, failures), '')}")
