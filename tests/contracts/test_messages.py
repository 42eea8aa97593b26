# SPDX-License-Identifier: Apache-2.0
"""Whatever an algorithm says travels, survives the journey, and is declared."""

from dataclasses import fields, replace
from typing import Any

import pytest

from feddag.algorithms import ALGORITHMS
from feddag.core import codec
from feddag.core.message import _holds_tensors, _leaves, field_types, is_message
from feddag.core.task import load_task
from feddag.engines.inline import InlineEngine
from feddag.experiment.listing import first_line
from tests.contracts.toys import Around, every_algorithm, play, reference, toy


class Recoding(Around):
    """Checks that every request and reply is the same after encoding and decoding."""

    def ask(self, task, requests, exchange):
        answers = super().ask(task, requests, exchange)
        for client, request in requests.items():
            for message, cls in ((request, task.request), (answers[client].reply, task.reply)):
                assert codec.digest(codec.decode(cls, codec.encode(message))) == codec.digest(message)
        return answers


@every_algorithm
def test_messages_and_states_are_the_same_after_a_journey(name: str) -> None:
    prepared = toy(name)
    trace = play(prepared, Recoding(InlineEngine(prepared.site)), quorum=1.0)
    assert trace.digests == reference(name).digests
    for state in trace.states:
        decoded = codec.decode(prepared.prepared.state_class, codec.encode(state))
        assert codec.digest(decoded) == codec.digest(state)


@every_algorithm
def test_it_can_go_on_from_a_decoded_state(name: str) -> None:
    prepared = toy(name)

    class Forgetful:
        """The algorithm, which gets every state only as bytes."""

        def __getattr__(self, method: str) -> Any:
            def call(*arguments: Any) -> Any:
                copies = [
                    codec.decode(prepared.prepared.state_class, codec.encode(a))
                    if isinstance(a, prepared.prepared.state_class)
                    else a
                    for a in arguments
                ]
                return getattr(prepared.algorithm, method)(*copies)

            return call

    forgetful = replace(prepared.prepared, algorithm=Forgetful())  # type: ignore[arg-type]
    assert play(replace(prepared, prepared=forgetful)).digests == reference(name).digests


@every_algorithm
def test_every_task_it_asks_is_listed_and_importable(name: str) -> None:
    listed = {task.name for task in ALGORITHMS[name].tasks}
    assert {asked.task for asked in reference(name).asked if asked.purpose != "evaluation"} <= listed
    assert all(load_task(task.address) is task for task in ALGORITHMS[name].tasks)


@every_algorithm
def test_no_tensor_leaves_a_client_undeclared(name: str) -> None:
    for task in ALGORITHMS[name].tasks:
        assert not task.sees_test
        for cls, path, declared in tensor_fields(task.reply):
            assert declared, f"{cls.__name__}.{path} leaves the client: declare it sensitive(kind)"


def tensor_fields(cls: type) -> list[tuple[type, str, str | None]]:
    """(class, field, declared kind) of all tensors in a message class, nested ones included."""
    found: list[tuple[type, str, str | None]] = []
    for f in fields(cls):  # type: ignore[arg-type]
        hint = field_types(cls)[f.name]
        if _holds_tensors(hint):
            found.append((cls, f.name, f.metadata.get("privacy")))
        for leaf in _leaves(hint):
            if is_message(leaf):
                found += tensor_fields(leaf)
    return found


@every_algorithm
def test_it_tells_in_one_line_what_it_is(name: str) -> None:
    assert 10 < len(first_line(ALGORITHMS[name])) < 110


@every_algorithm
def test_unknown_hyper_parameters_are_refused(name: str) -> None:
    with pytest.raises(Exception, match="'nonsense' is unknown"):
        toy(name, {"nonsense": 1})
