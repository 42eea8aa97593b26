# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from feddag.algorithms.scaffold import (
    CONTROL,
    Scaffold,
    State,
    TrainControlled,
    TrainedControlled,
    path_length,
    train_controlled,
)
from feddag.core.deployment import LocalTraining
from feddag.core.params import Params
from feddag.learning.sgd import batches, count_steps
from tests.algorithms.helpers import FixedMeans, fresh
from tests.algorithms.toys import Toy, two_groups
from tests.support.gradients import mean_gradient
from tests.support.toys import blob_site, toy_client

site = blob_site()
PLAIN = LocalTraining(local_epochs=2, batch_size=8, lr=0.05, momentum=0.0, weight_decay=0.0)


def request(control: Params, local: LocalTraining = PLAIN, renewal: float = 1.0) -> TrainControlled:
    return TrainControlled(params=fresh(), control=control, renewal=renewal, local=local)


def test_the_client_does_what_algorithm_1_says_literally() -> None:
    control, own = fresh(1) * 0.1, fresh(2) * 0.1
    client = toy_client(site, **{CONTROL: own})
    reply = train_controlled(request(control), client)

    module = copy.deepcopy(site.network("single"))
    module.load_state_dict({n: t.clone() for n, t in fresh().items()})
    steps = 0
    for _, rows in batches(len(client.train), PLAIN, client.seed):
        loss = nn.functional.cross_entropy(module(client.train.inputs(rows)), client.train.labels[rows])
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for (name, weight), slope in zip(module.named_parameters(), slopes, strict=True):
                weight -= PLAIN.lr * (slope - own[name] + control[name])
        steps += 1
    trained = Params.from_module(module)
    torch.testing.assert_close((fresh() + reply.update).vector, trained.vector, rtol=1e-5, atol=1e-6)
    renewed = own - control + (fresh() - trained) * (1 / (steps * PLAIN.lr))
    kept = client.memory[CONTROL]
    assert isinstance(kept, Params)
    torch.testing.assert_close(kept.vector, renewed.vector, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(reply.control_change.vector, (renewed - own).vector, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_control_variate_is_the_gradient_of_the_client_whatever_the_momentum(momentum: float) -> None:
    client = toy_client(site)
    local = LocalTraining(
        local_steps=4, batch_size=len(client.train), lr=1e-4, momentum=momentum, weight_decay=0.0
    )
    train_controlled(request(fresh(1) * 0.1, local), client)
    kept = client.memory[CONTROL]
    assert isinstance(kept, Params)
    gradient = mean_gradient(client, fresh())
    assert (kept - gradient).norm() < 0.05 * gradient.norm()


def test_the_length_of_a_path_by_hand() -> None:
    assert path_length(replace(PLAIN, lr=0.1), 3) == pytest.approx(0.3)
    assert path_length(replace(PLAIN, lr=0.1, momentum=0.5), 3) == pytest.approx(0.1 * (1 + 1.5 + 1.75))
    assert path_length(PLAIN, 0) == 0.0


def test_steps_are_counted_as_they_are_taken() -> None:
    client = toy_client(site)  # 30 samples
    assert count_steps(client, PLAIN) == 2 * 4
    assert count_steps(client, replace(PLAIN, local_steps=5)) == 5
    assert count_steps(toy_client(blob_site(sizes=(0, 5))), PLAIN) == 0


def test_a_client_without_samples_changes_nothing() -> None:
    client = toy_client(blob_site(sizes=(0, 5)))
    reply = train_controlled(request(fresh(1)), client)
    assert reply.update.norm() == reply.control_change.norm() == 0
    assert reply.examples == 0


def test_the_server_moves_the_control_by_the_share_of_clients_that_answered() -> None:
    def both(weight: float, variance: float) -> Params:
        return Params.of({"w": torch.tensor([weight]), "var": torch.tensor([variance])}, ["var"])

    reply = TrainedControlled(update=both(4.0, -0.25), control_change=both(8.0, 0.0), examples=5)
    state = State(params=both(1.0, 1.0), control=both(1.0, 0.0))
    after = Scaffold(server_lr=0.5).round(state, FixedMeans([reply]))  # type: ignore[arg-type]
    assert after.params == both(1.0 + 0.5 * 4.0, 0.75)
    assert after.control == both(1.0 + 8.0 * 2 / 4, 0.0)  # two of four clients


def test_it_ends_nearer_to_the_common_optimum_than_fedavg() -> None:
    local = LocalTraining(local_epochs=10, batch_size=16, lr=0.05, momentum=0.0, weight_decay=0.01)
    slopes = {}
    for renewal in (0.0, 1.0):  # 0 is FedAvg
        toy = Toy(two_groups(clients=4))
        state = toy.play(Scaffold(local=local, renewal=renewal), 30)
        clients = [toy_client(toy.site, client) for client in toy.site.federation.ids]
        gradients = [mean_gradient(client, state.params) for client in clients]
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        # weight decay is part of what is minimised
        slopes[renewal] = (total * (1 / len(clients)) + state.params * local.weight_decay).norm()
    assert slopes[1.0] < 0.5 * slopes[0.0]
