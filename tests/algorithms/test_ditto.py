# SPDX-License-Identifier: Apache-2.0
from feddag.algorithms.ditto import Train, train
from feddag.core.deployment import LocalTraining
from feddag.engines.inline import InlineEngine
from feddag.learning.sgd import sgd
from tests.algorithms.helpers import fresh
from tests.contracts.toys import play, toy
from tests.support.toys import blob_site, toy_client

LOCAL = LocalTraining(local_epochs=1, batch_size=8, lr=0.1)


def test_the_personal_model_persists_and_is_pulled_to_the_received_global_one() -> None:
    client, first, second = toy_client(blob_site()), fresh(1), fresh(2)
    train(Train(params=first, pull=0.7, local=LOCAL), client)
    own = client.memory["personal"]
    assert own == sgd(client, first, LOCAL, proximal=(0.7, first))
    train(Train(params=second, pull=0.7, local=LOCAL), client)
    assert client.memory["personal"] == sgd(client, own, LOCAL, proximal=(0.7, second))


def test_the_personal_model_never_leaves_the_client() -> None:
    client, params = toy_client(blob_site()), fresh()
    client.memory["personal"] = params * 3.0
    reply = train(Train(params=params, pull=0.7, local=LOCAL), client)
    assert reply.update == sgd(client, params, LOCAL) - params


def test_without_pull_the_personal_model_is_local_training() -> None:
    client, first, second = toy_client(blob_site()), fresh(1), fresh(2)
    train(Train(params=first, pull=0.0, local=LOCAL), client)
    train(Train(params=second, pull=0.0, local=LOCAL), client)
    assert client.memory["personal"] == sgd(client, sgd(client, first, LOCAL), LOCAL)


def test_clients_use_their_own_model_and_newcomers_have_one_too() -> None:
    prepared = toy("ditto")
    engine = InlineEngine(prepared.site)
    play(prepared, engine)
    for client in prepared.federation.newcomers:
        assert "personal" in engine.memories.of[client]
    assert prepared.algorithm.deploy(play(prepared).states[-1], "c000").remembered == "personal"
