# SPDX-License-Identifier: Apache-2.0
"""The same bits on every engine, whatever the number of workers."""

from collections.abc import Iterator

import pytest

from feddag.contracts.checks import same_as_inline
from feddag.engines.process import ProcessEngine
from tests.contracts.toys import every_algorithm, toy_site


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda n: f"{n} workers")
def workers(request: pytest.FixtureRequest) -> Iterator[ProcessEngine]:
    """One pool of worker processes for all methods: starting it takes longer than all of them together."""
    engine = ProcessEngine(toy_site(), "mlp", request.param)
    yield engine
    engine.close()


@every_algorithm
def test_states_memories_scores_and_bytes_are_the_same_as_inline(name: str, workers: ProcessEngine) -> None:
    same_as_inline(name, workers)
