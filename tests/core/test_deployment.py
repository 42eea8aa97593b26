# SPDX-License-Identifier: Apache-2.0
import numpy as np
import torch

from feddag.core.deployment import Deployment
from feddag.core.params import Params


def model(encoder: float, head: float) -> Params:
    return Params.of({"primary.w": torch.tensor([encoder]), "head.w": torch.tensor([head])})


def test_remembered_parts_replace_their_namesakes_in_the_first_model() -> None:
    deployment = Deployment(models=(model(1, 1), model(2, 2)), weights=(0.5, 0.5), remembered="own head")
    recalled = deployment.recall({"own head": model(9, 9).select("head.")})
    assert recalled.models == (model(1, 9), model(2, 2))


def test_without_memory_the_very_same_models_are_used() -> None:
    deployment = Deployment(models=(model(1, 1),), remembered="own", remembered_weights="shares")
    recalled = deployment.recall({})
    assert recalled.models[0] is deployment.models[0]
    assert (recalled.remembered, recalled.remembered_weights) == ("", "")


def test_remembered_weights_replace_the_general_ones() -> None:
    general = Deployment(models=(model(1, 1), model(2, 2)), weights=(0.5, 0.5), remembered_weights="shares")
    assert general.recall({"shares": np.array([0.1, 0.9])}).weights == (0.1, 0.9)


def test_weights_of_models_that_are_gone_are_left_out() -> None:
    rest = Deployment(
        models=(model(1, 1), model(2, 2)),
        weights=(0.5, 0.5),
        remembered_weights="shares",
        remembered_entries=(0, 2),
    )
    assert rest.recall({"shares": np.array([0.1, 0.6, 0.3])}).weights == (0.1, 0.3)
    assert rest.recall({"shares": np.array([0.0, 1.0, 0.0])}).weights == (0.5, 0.5)
