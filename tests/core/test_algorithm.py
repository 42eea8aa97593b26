# SPDX-License-Identifier: Apache-2.0
"""What an algorithm's class must be."""

import pytest

from feddag.core.algorithm import algorithm
from feddag.learning.train import train


def test_two_tasks_of_one_name_are_refused() -> None:
    class Twice:
        tasks = (train, train)

    with pytest.raises(TypeError, match="two tasks have one name"):
        algorithm(Twice)
