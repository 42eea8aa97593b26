# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
import torch

from feddag.algorithms.fedsoft import Assess, FedSoft, State, Train, assess, train
from feddag.core.averaging import mean
from feddag.core.deployment import LocalTraining
from feddag.core.engine import Exchange
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.learning.evaluation import sample_losses
from feddag.learning.sgd import sgd
from tests.algorithms.helpers import fresh
from tests.contracts.toys import Trace, play, toy
from tests.support.toys import blob_site, toy_client

LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.1)


def scalar(value: float) -> Params:
    return Params.of({"w": torch.tensor([value])})


def state(*counts: tuple[int, ...]) -> State:
    """Centres 0, 1, 2, …; client i has counts[i]."""
    centres = tuple(scalar(float(s)) for s in range(len(counts[0])))
    return State(centres=centres, counts={f"c{i}": np.array(c) for i, c in enumerate(counts)})


def test_importance_is_the_share_of_samples_and_never_zero() -> None:
    soft = FedSoft(num_clusters=3, least_importance=1e-4)
    assert soft.importance(state((3, 1, 0)), "c0").tolist() == [0.75, 0.25, 1e-4]


def test_one_request_pulls_like_all_centres_together() -> None:
    soft = FedSoft(num_clusters=2, pull=0.5, least_importance=0.25)
    known = state((3, 1), (4, 0))
    requests = soft.requests(known, ["c0", "c1"])
    for client, u in (("c0", (0.75, 0.25)), ("c1", (1.0, 0.25))):
        w = torch.tensor([5.0], requires_grad=True)
        for u_s, c in zip(u, known.centres, strict=True):
            (0.5 / 2 * u_s * (w - c["w"]).square()).sum().backward()
        ours = requests[client].pull * (5.0 - requests[client].centre["w"])
        assert ours.item() == pytest.approx(w.grad.item(), rel=1e-6)


def test_clients_of_equal_importance_share_one_request() -> None:
    requests = FedSoft(num_clusters=2).requests(state((3, 1), (6, 2), (0, 4)), ["c0", "c1", "c2"])
    assert requests["c0"] is requests["c1"]
    assert requests["c0"] is not requests["c2"]


def test_samples_are_counted_by_their_least_loss() -> None:
    site = blob_site()
    client = toy_client(site)
    centres = tuple(fresh(s, site=site) for s in range(3))
    losses = [sample_losses(client, centre).tolist() for centre in centres]
    expected = [0, 0, 0]
    for j in range(len(client.train)):
        expected[min(range(3), key=lambda s: losses[s][j])] += 1
    assert assess(Assess(centres=centres), client).counts.tolist() == expected
    assert assess(Assess(centres=centres[:1] * 2), client).counts.tolist() == [30, 0], "ties to the lowest"


def test_the_personal_model_goes_on_where_it_stopped() -> None:
    site = blob_site()
    client = toy_client(site)
    centre = fresh(site=site)
    request = Train(centre=centre, pull=0.1, local=LOCAL)
    train(request, client)
    first = client.memory["personal"]
    assert first == sgd(client, centre, LOCAL, proximal=(0.1, centre))
    reply = train(request, client)
    assert client.memory["personal"] == sgd(client, first, LOCAL, proximal=(0.1, centre))
    assert reply.update == client.memory["personal"] - centre


def test_selection_follows_importance() -> None:
    # Ten clients; c0 … c4 belong to centre 0, the others to centre 1.
    prepared = toy("fedsoft", {"least_importance": 1e-9})
    soft = prepared.algorithm
    known = state(*[(10, 0)] * 5, *[(0, 10)] * 5)

    class Stub:
        clients = tuple(known.counts)
        cohort = clients[:6]
        round, seed = 3, Seed(0)

    assert set(soft.team(known, 0, Stub)) <= {f"c{i}" for i in range(5)}
    assert set(soft.team(known, 1, Stub)) <= {f"c{i}" for i in range(5, 10)}
    assert [len(soft.team(known, s, Stub)) for s in (0, 1)] == [3, 3], "⌊m/S⌋ of each"


def test_everyone_is_asked_every_second_round_and_a_cohort_at_most_trains() -> None:
    prepared = toy("fedsoft")
    trace = play(prepared, rounds=5)
    asked = [(q.round, q.task, len(q.answers)) for q in trace.asked if q.purpose == "round"]
    assert [(r, n) for r, task, n in asked if task == "assess"] == [(r, 6) for r in (1, 3, 5)]
    assert [r for r, task, _ in asked if task == "train"] == [1, 2, 3, 4, 5]
    assert all(n <= 3 for _, task, n in asked if task == "train")


def test_personal_models_are_served_and_survive_rounds_in_which_others_train() -> None:
    prepared = toy("fedsoft")
    deployment = prepared.algorithm.deploy(play(prepared).states[-1], "c000")
    assert deployment.remembered == "personal"
    own = deployment.models[0] * 2.0
    assert deployment.recall({"personal": own}).models == (own,)


def test_one_cluster_without_pull_is_local_training_and_its_mean() -> None:
    settings = {"num_clusters": 1, "pull": 0.0, "selection": "cohort"}
    prepared = toy("fedsoft", settings, partition={"kind": "iid"})
    everyone = prepared.trainable
    trace: Trace = play(prepared, rounds=3, cohort=lambda round_: everyone)
    alone = dict.fromkeys(everyone, trace.states[0].centres[0])
    for round_ in (1, 2, 3):
        # In rounds with a reassessment training is the second question.
        question = Seed(1) / "round" / round_ / "question" / (1 if round_ % 2 else 0)
        for name in everyone:
            seed = Exchange(round_, question).client_seed(name)
            client = replace(toy_client(prepared.site, name), seed=seed)
            alone[name] = sgd(client, alone[name], prepared.experiment.training)
        sizes = [len(prepared.federation.clients[name].train) for name in everyone]
        expected = mean([alone[name] for name in everyone], sizes)
        assert torch.allclose(trace.states[round_].centres[0].vector, expected.vector, atol=1e-6, rtol=0)


def test_personal_models_start_in_one_common_model() -> None:
    prepared = toy("fedsoft", {"num_clusters": 3})
    trace = play(prepared, rounds=1)
    first = trace.states[0].centres
    assert first[0] == first[1] == first[2]
    requests = [q for q in trace.asked if q.task == "train"]
    assert requests
    assert len(set(trace.states[1].centres)) == 3, "random teams part the centres in the first round"


def test_a_client_that_no_centre_serves_is_in_no_team() -> None:
    soft, known = FedSoft(num_clusters=2), state((0, 0), (3, 1), (0, 0))

    class Stub:
        clients = cohort = tuple(known.counts)
        round, seed = 1, Seed(0)

    assert set(soft.team(known, 0, Stub)) == {"c1"}
    assert soft.team(state((0, 0)), 0, Stub) == {}
