# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from feddag.algorithms.fedrc import FedRC, Offer, State, Train, expect, marginals, shares, train
from feddag.core.deployment import LocalTraining
from feddag.core.task import Client
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site
from feddag.learning.evaluation import logits, sample_losses, score, serve
from tests.algorithms.helpers import fresh
from tests.contracts.toys import arrays_of, play, toy
from tests.support.toys import blob_site, toy_client

LOCAL = LocalTraining(local_epochs=1, batch_size=8, lr=0.1)


@pytest.fixture
def site() -> Site:
    return blob_site()


@pytest.fixture
def client(site: Site) -> Client:
    return toy_client(site)


def offer(site: Site, number: int = 2, classes: int = 3) -> Offer:
    models = tuple(fresh(k, site=site) for k in range(number))
    marginals_KC = np.arange(1.0, number * classes + 1).reshape(number, classes)
    marginals_KC /= marginals_KC.sum(1, keepdims=True)
    return Offer(models=models, marginals=marginals_KC.astype(np.float32), clusters=tuple(range(number)))


def literal_expectation(client: Client, offer: Offer, omega: list[float]) -> np.ndarray:
    """γ_jk = ω_k·exp(−f_jk)/C_yk, normalised over k: sample by sample."""
    losses = [sample_losses(client, model).double().tolist() for model in offer.models]
    rows = []
    for j, y in enumerate(client.train.y):
        row = [omega[k] * np.exp(-losses[k][j]) / offer.marginals[k, y] for k in range(len(omega))]
        rows.append([value / sum(row) for value in row])
    return np.array(rows)


def test_the_first_expectation_starts_from_equal_shares(site: Site, client: Client) -> None:
    question = offer(site)
    gamma = expect(client, question)
    np.testing.assert_allclose(gamma, literal_expectation(client, question, [0.5, 0.5]), rtol=1e-6)
    np.testing.assert_allclose(client.memory["weights"], gamma.mean(0))


def test_the_next_expectation_uses_the_shares_of_the_last(site: Site, client: Client) -> None:
    question = offer(site)
    omega = expect(client, question).mean(0).tolist()
    assert abs(omega[0] - omega[1]) > 1e-4
    again = expect(client, question)
    np.testing.assert_allclose(again, literal_expectation(client, question, omega), rtol=1e-6)


def test_steps_of_a_newcomer_are_repeated_expectations(site: Site) -> None:
    question, one, other = offer(site), toy_client(site), toy_client(site)
    for _ in range(3):
        expect(one, question)
    expect(other, question, steps=3)
    np.testing.assert_allclose(one.memory["responsibilities"], other.memory["responsibilities"], rtol=1e-12)


def test_label_mass_counts_every_sample_once(site: Site, client: Client) -> None:
    reply = train(Train(offer=offer(site), local=LOCAL), client)
    np.testing.assert_allclose(reply.label_mass.sum(0), client.train.counts(), rtol=1e-6)
    assert len(reply.updates) == 2


def test_marginals_are_label_shares_of_all_last_reports() -> None:
    mass = {"a": np.array([[1.0, 1.0], [0.0, 0.0]]), "b": np.array([[2.0, 0.0], [0.0, 0.0]])}
    np.testing.assert_allclose(marginals(mass), [[0.75, 0.25], [0.5, 0.5]])


def test_shares_are_uniform_when_nothing_is_left() -> None:
    assert shares(np.zeros((3, 2))).tolist() == [0.5, 0.5]


def test_responsibilities_and_marginals_sum_to_one_in_every_round() -> None:
    prepared = toy("fedrc", {"num_clusters": 3})
    engine = InlineEngine(prepared.site)
    trace = play(prepared, engine, rounds=4)
    for state in trace.states:
        np.testing.assert_allclose(state.marginals.sum(1), 1.0, rtol=1e-6)
    remembered = [memory for memory in engine.memories.of.values() if memory]
    assert len(remembered) > 3
    for memory in remembered:
        np.testing.assert_allclose(memory["responsibilities"].sum(1), 1.0, rtol=1e-6)


def test_the_per_sample_state_survives_rounds_in_which_others_train() -> None:
    prepared = toy("fedrc")
    a, b = prepared.trainable[:2]
    one, three = InlineEngine(prepared.site), InlineEngine(prepared.site)
    play(prepared, one, rounds=1, cohort=lambda round_: (a,))
    play(prepared, three, rounds=3, cohort=lambda round_: (a,) if round_ == 1 else (b,))
    assert arrays_of(one.memories.of[a]) == arrays_of(three.memories.of[a])
    kept = three.memories.of[a]["responsibilities"]
    assert kept.shape == (len(prepared.federation.clients[a].train), 2)
    assert np.ptp(kept[:, 0]) > 0, "each sample has its own"


class Noted:
    def __init__(self) -> None:
        self.notes: dict = {}

    def note(self, **metrics: object) -> None:
        self.notes.update(metrics)


def reported(*mass: list[list[float]]) -> State:
    k = len(mass[0])
    reports = {f"c{i}": np.array(m) for i, m in enumerate(mass)}
    models = tuple(fresh(i) for i in range(k))
    return State(models=models, marginals=marginals(reports), clusters=tuple(range(k)), label_mass=reports)


def test_adaptive_k_drops_the_least_cluster_only_when_it_is_small() -> None:
    state = reported([[60.0, 0.0], [1.0, 1.0], [18.0, 20.0]])  # shares 0.60, 0.02, 0.38
    assert FedRC(drop_below=0.01).drop(state, Noted()) == state  # type: ignore[arg-type]
    less = FedRC(drop_below=0.05).drop(state, Noted())  # type: ignore[arg-type]
    assert less.clusters == (0, 2)
    assert less.models == (state.models[0], state.models[2])
    assert less.label_mass["c0"].tolist() == [[60.0, 0.0], [18.0, 20.0]]


def test_the_last_cluster_is_never_dropped() -> None:
    state = reported([[1.0, 0.0]])
    assert len(FedRC(drop_below=0.99).drop(state, Noted()).models) == 1  # type: ignore[arg-type]


def test_adaptive_k_ends_with_fewer_clusters_and_still_serves_everyone() -> None:
    prepared = toy("fedrc", {"num_clusters": 3, "drop_below": 0.4})
    trace = play(prepared, rounds=6)
    assert 1 <= len(trace.states[-1].models) < 3
    assert trace.accuracy(prepared.clients) > 0.4


def fresh_shares(client: Client, question: Offer, omega: list[float]) -> list[float]:
    return literal_expectation(client, question, omega).mean(0).tolist()


def test_a_client_whose_cluster_is_gone_uses_the_others(site: Site, client: Client) -> None:
    client.memory["weights"] = np.array([1.0, 0.0, 0.0])
    question = offer(site, 3)
    left = Offer(models=question.models[1:], marginals=question.marginals[1:], clusters=(1, 2))
    state = State(models=left.models, marginals=left.marginals, clusters=(1, 2), label_mass={})
    for remembered, omega in (([1.0, 0.0, 0.0], [0.5, 0.5]), ([0.5, 0.1, 0.4], [0.2, 0.8])):
        client.memory["weights"] = np.array(remembered)
        served = serve(client, FedRC(num_clusters=3).deploy(state, client.id))
        assert served.weights == pytest.approx(fresh_shares(client, left, omega), rel=1e-6)


def test_clients_use_the_mixture_of_predicted_probabilities(site: Site, client: Client) -> None:
    client.memory["weights"] = np.array([0.2, 0.8])
    question = offer(site)
    state = State(models=question.models, marginals=question.marginals, clusters=(0, 1), label_mass={})
    got = score(client, serve(client, FedRC().deploy(state, client.id)), client.test)
    p = [logits(client, m, client.test).double().softmax(1).numpy() for m in question.models]
    first, second = fresh_shares(client, question, [0.2, 0.8])
    mixed = first * p[0] + second * p[1]
    assert got.correct.sum() == (mixed.argmax(1) == client.test.y).sum()
    assert got.loss == pytest.approx(-np.log(mixed[np.arange(len(client.test)), client.test.y]).sum())


def test_shares_are_those_of_the_models_as_they_are_now(site: Site, client: Client) -> None:
    # Since the client took part, the two models have changed places: its old shares would be wrong.
    better = train(Train(offer=offer(site, 1), local=LOCAL), client).updates[0] + fresh(0, site=site)
    models, even = (fresh(5, site=site), better), np.full((2, 3), 1 / 3, dtype=np.float32)
    client.memory["weights"] = np.array([0.6, 0.4])
    state = State(models=models, marginals=even, clusters=(0, 1), label_mass={})
    weights = serve(client, FedRC().deploy(state, client.id)).weights
    assert weights[1] > 0.5 > weights[0]


def test_a_client_without_samples_keeps_its_shares(site: Site, client: Client) -> None:
    client.memory["weights"] = np.array([0.25, 0.75])
    question = offer(site)
    state = State(models=question.models, marginals=question.marginals, clusters=(0, 1), label_mass={})
    nobody = replace(client, train=client.train.take(np.empty(0, dtype=np.int64)))
    assert serve(nobody, FedRC().deploy(state, client.id)).weights == (0.25, 0.75)
