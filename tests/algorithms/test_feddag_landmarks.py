# SPDX-License-Identifier: Apache-2.0
"""FedDAG with more clients than landmarks: who is asked for what, what is kept, and whole runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from feddag.clustering.agglomerative import agreement
from feddag.core import codec
from feddag.core.errors import Interrupted
from feddag.data.federation import Federation
from feddag.experiment.settings import Experiment
from feddag.learning.signature import items_of
from feddag.learning.signatures import signatures_from
from feddag.reporting.pages.clustering import confidences, summarise_clustering
from feddag.reporting.pages.content import notes
from feddag.runs.simulate import build, resume, run
from tests.algorithms.toys import four_groups, with_newcomers
from tests.contracts.toys import play

CLIENTS, LANDMARKS = 44, 20


def federation(*newcomers: str) -> Federation:
    return with_newcomers(four_groups(CLIENTS), *newcomers)


def settings(**changes) -> Experiment:
    options = {"name": "feddag", "clustering": {"landmarks": LANDMARKS}, **changes}
    return Experiment.from_settings(
        {
            "algorithm": options,
            "engine": "inline",
            "num_rounds": 3,
            "fraction_train": 0.2,
            "training": {"local_epochs": 1, "batch_size": 16},
            "evaluation": {"every": 2, "after_training": False},
            "model": "mlp",
        }
    )


@pytest.fixture(scope="module")
def trace():
    return play(build(settings(), federation("c42", "c43")), rounds=3)


@pytest.fixture(scope="module")
def whole():
    """The start of the same run without landmarks."""
    everybody = settings(clustering={"landmarks": 0})
    return play(build(everybody, federation("c42", "c43")), rounds=0).states[0]


def found(state):
    clients = sorted(state.clusters.labels())
    return agreement(
        np.array([state.clusters.of(c) for c in clients]), np.array([int(c[1:]) % 4 for c in clients])
    )


def test_everybody_is_in_the_planted_cluster_newcomers_too(trace):
    assert len(trace.states[0].clusters.labels()) == CLIENTS - 2
    assert found(trace.states[0]) == 1.0
    assert found(trace.states[-1]) == 1.0
    assert {"c42", "c43"} <= trace.states[-1].clusters.labels().keys()
    assert trace.notes[0]["landmarks"] == LANDMARKS


def test_only_landmarks_train_at_the_start_where_updates_do_not_count():
    data_alone = settings(signature={"views": ["pixels", "texture"]}, encoders={"primary_start": "warm"})
    trace = play(build(data_alone, federation()), rounds=0)
    start = [asked for asked in trace.asked if asked.purpose == "round"]
    trained = {c for asked in start for c, answer in asked.answers.items() if answer.samples}
    assert len(trained) == LANDMARKS
    shared = [asked for asked in start if asked.task == "share_warm"]
    assert {c for asked in shared for c in asked.answers} == trained


def test_a_client_signs_alike_whether_it_is_a_landmark_or_not(trace, whole):
    assert whole.unsigned is None
    assert whole.clusters == trace.states[0].clusters
    for client, signature in trace.states[0].signatures.items():
        assert np.array_equal(signature.pixels, whole.signatures[client].pixels)
        assert np.array_equal(signature.counts, whole.signatures[client].counts)


def test_the_state_keeps_signatures_of_anchors_and_a_few_numbers_of_everybody(trace, whole):
    state = trace.states[0]
    assert state.signatures.keys() < state.clusters.labels().keys()
    assert len(state.signatures) <= LANDMARKS
    assert len(state.unsigned.clients) == len(state.unsigned.sure) == CLIENTS - 2
    counts = {c: s.counts for c, s in whole.signatures.items()}
    for z, members in enumerate(state.clusters.members):
        assert np.array_equal(state.unsigned.counts_ZC[z], sum(counts[c] for c in members))
    assert codec.digest(codec.decode(type(state), codec.encode(state))) == codec.digest(state)


def test_pages_show_some_of_every_cluster_and_say_so(trace):
    simulation = build(settings(), federation("c42", "c43"))
    clustering = simulation.algorithm.clustering(trace.states[0])
    shown = len(clustering.clients)
    assert {clustering.clusters.of(c) for c in clustering.clients} == set(range(4))
    assert f"{shown} of 42 clients are shown" in notes(clustering)[0]
    assert confidences(clustering).keys() == clustering.clusters.labels().keys()
    summary = summarise_clustering(clustering)
    assert summary["landmarks"] == LANDMARKS
    assert len(summary["labels"]) == 42
    assert len(summary["confidence"]) == shown
    sizes = (view.matrix_NN.shape for view in clustering.views.values())
    assert set(sizes) == {(shown, shown)}


def test_signatures_survive_the_way_through_items(trace):
    signatures = trace.states[0].signatures
    again = signatures_from(list(signatures), items_of(signatures))
    assert {c: codec.digest(s) for c, s in again.items()} == {
        c: codec.digest(replace(s, withheld=0)) for c, s in signatures.items()
    }


def fingerprint(folder):
    result = json.loads((folder / "result.json").read_text())
    digests = [
        json.loads(line)["digest"]
        for line in (folder / "events.jsonl").read_text().splitlines()
        if '"digest"' in line
    ]
    return result["state_digest"], digests, (folder / "clients.csv").read_text()


def test_engines_and_an_interrupted_run_end_with_the_same_bits(tmp_path):
    data = federation()
    whole = run(settings(), folder=tmp_path / "inline", data=data)
    processes = settings().with_overrides(["engine.name=process", "engine.workers=2"])
    other = run(processes, folder=tmp_path / "process", data=data)
    assert fingerprint(other.folder) == fingerprint(whole.folder)

    def cut(event):
        if event["event"] == "round" and event["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run(settings(), folder=tmp_path / "cut", data=data, watch=cut)
    resume(tmp_path / "cut", data=data)
    assert fingerprint(tmp_path / "cut") == fingerprint(whole.folder)
    assert (tmp_path / "inline" / "clustering" / "index.html").is_file()
