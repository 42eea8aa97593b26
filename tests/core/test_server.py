# SPDX-License-Identifier: Apache-2.0
from feddag.core.algorithm import Server
from feddag.core.seeds import Seed
from feddag.engines.inline import InlineEngine
from tests.support.toys import blob_site


def toy_server() -> Server:
    site = blob_site()
    clients = tuple(site.federation.ids)
    return Server(
        engine=InlineEngine(site),
        clients=clients,
        cohort=clients,
        round=0,
        seed=Seed(0),
        network=site.network,
        num_classes=3,
    )


def test_several_initial_models_all_differ_and_the_first_is_the_only_one_of_one() -> None:
    server = toy_server()
    models = server.initial_models(3)
    assert models[0] == server.initial_params()
    assert len(set(models)) == 3
    assert server.initial_models(3) == models


def test_another_draw_has_no_model_of_the_one_before() -> None:
    server = toy_server()
    assert len({*server.initial_models(2), *server.initial_models(2, draw=1)}) == 4
