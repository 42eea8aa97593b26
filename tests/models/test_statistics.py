# SPDX-License-Identifier: Apache-2.0
import pytest
from torch import nn

from feddag.core.errors import InvalidInput
from feddag.core.problem import Problem
from feddag.models import Networks


def cumulative(input_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(input_shape[0], momentum=None), nn.Linear(input_shape[0], num_classes)
    )


def usual(input_shape: tuple[int, ...], num_classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(input_shape[0]), nn.Linear(input_shape[0], num_classes))


def test_statistics_that_need_a_counter_are_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"primary\.1 \(BatchNorm1d\) has momentum=None.*such as 0\.1"):
        Networks(f"{__name__}:cumulative", Problem((6,), 3))
    assert Networks(f"{__name__}:usual", Problem((6,), 3))("dual") is not None
