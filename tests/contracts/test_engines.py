# SPDX-License-Identifier: Apache-2.0
"""The same bits on every engine, whatever the number of workers."""

from collections.abc import Iterator

import pytest

from feddag.core import codec
from feddag.engines.process import ProcessEngine
from tests.contracts.toys import Trace, every_algorithm, play, reference, toy, toy_site


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda n: f"{n} workers")
def workers(request: pytest.FixtureRequest) -> Iterator[ProcessEngine]:
    """One pool of worker processes for all methods: starting it takes longer than all of them together."""
    engine = ProcessEngine(toy_site(), "mlp", request.param)
    yield engine
    engine.close()


@every_algorithm
def test_states_memories_scores_and_bytes_are_the_same_as_inline(name: str, workers: ProcessEngine) -> None:
    trace, expected = play(toy(name), workers), reference(name)
    assert trace.digests == expected.digests
    assert digests(trace) == digests(expected)
    assert bytes_of(trace) == bytes_of(expected)


def digests(trace: Trace) -> dict[str, str]:
    return {client: codec.digest(scores) for client, scores in trace.scores.items()}


def bytes_of(trace: Trace) -> list[tuple[str, str, int, int]]:
    return [(q.task, c, a.bytes_down, a.bytes_up) for q in trace.asked for c, a in q.answers.items()]
