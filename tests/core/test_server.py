# SPDX-License-Identifier: Apache-2.0
from tests.support.toys import blob_site, toy_server


def test_several_initial_models_all_differ_and_the_first_is_the_only_one_of_one() -> None:
    server = toy_server(blob_site())
    models = server.initial_models(3)
    assert models[0] == server.initial_params()
    assert len(set(models)) == 3
    assert server.initial_models(3) == models


def test_another_draw_has_no_model_of_the_one_before() -> None:
    server = toy_server(blob_site())
    assert len({*server.initial_models(2), *server.initial_models(2, draw=1)}) == 4
