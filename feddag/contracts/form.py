# SPDX-License-Identifier: Apache-2.0
"""Promises about the form of an algorithm and of its messages."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from feddag.algorithms import ALGORITHMS
from feddag.contracts.toys import Around, play, reference, toy
from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import FederationError
from feddag.core.message import _holds_tensors, _leaves, field_types, is_message
from feddag.core.task import ClientTask, load_task
from feddag.engines.inline import InlineEngine
from feddag.experiment.listing import first_line


class ContractBroken(FederationError):
    """An algorithm does not do what every algorithm must do."""


def require(holds: bool, sentence: str) -> None:
    """Go on, or say what is wrong."""
    if not holds:
        raise ContractBroken(sentence)


def it_is_a_frozen_value(name: str) -> None:
    """Two with equal settings are equal, and nothing can be changed or kept in them."""
    cls = ALGORITHMS[name]
    frozen = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    require(frozen, "it is no frozen dataclass")
    require(hash(cls()) == hash(cls()), "two equal ones have different hashes")


def it_tells_in_one_line_what_it_is(name: str) -> None:
    """`feddag list algorithms` shows the first line of its docstring."""
    length = len(first_line(ALGORITHMS[name]))
    require(10 < length < 110, f"the first line of its docstring has {length} characters; expected 11 to 109")


def every_task_is_listed_and_importable(name: str) -> None:
    """Workers import tasks by their address; `tasks` names all of them."""
    listed = {task.name for task in ALGORITHMS[name].tasks}
    asked = {asked.task for asked in reference(name).asked if asked.purpose != "evaluation"}
    require(asked <= listed, f"it asks {', '.join(sorted(asked - listed))}, which `tasks` does not name")
    for task in ALGORITHMS[name].tasks:
        require(load_task(task.address) is task, f"task {task.address} cannot be imported by its address")


def no_tensor_leaves_a_client_undeclared(name: str) -> None:
    """Every field of a reply that holds tensors says what it reveals: sensitive(kind) or public()."""
    for task in ALGORITHMS[name].tasks:
        require(not task.sees_test, f"task {task.name} sees held-out samples; only the evaluation may")
        for cls, path, declared in tensor_fields(task.reply):
            require(bool(declared), f"{cls.__name__}.{path} leaves the client: declare it sensitive(kind)")


def tensor_fields(cls: type) -> list[tuple[type, str, str | None]]:
    """(class, field, declared kind) of all tensors in a message class, nested ones included."""
    found: list[tuple[type, str, str | None]] = []
    for f in fields(cls):
        hint = field_types(cls)[f.name]
        if _holds_tensors(hint):
            found.append((cls, f.name, f.metadata.get("privacy")))
        for leaf in _leaves(hint):
            if is_message(leaf):
                found += tensor_fields(leaf)
    return found


class Recoding(Around):
    """Checks that every request and reply is the same after encoding and decoding."""

    def ask(self, task: ClientTask, requests: Mapping[str, Any], exchange: Exchange) -> Mapping[str, Answer]:
        """Pass the question on, then send everything on a journey."""
        answers = super().ask(task, requests, exchange)
        for client, request in requests.items():
            for message, cls in ((request, task.request), (answers[client].reply, task.reply)):
                same = codec.digest(codec.decode(cls, codec.encode(message))) == codec.digest(message)
                require(same, f"a {cls.__name__} is another one after encoding and decoding")
        return answers


def messages_and_states_survive_a_journey(name: str) -> None:
    """Encoded and decoded, they are the same."""
    prepared = toy(name)
    trace = play(prepared, Recoding(InlineEngine(prepared.site)), quorum=1.0)
    require(trace.digests == reference(name).digests, "a second run has other states")
    for state in trace.states:
        decoded: Any = codec.decode(prepared.prepared.state_class, codec.encode(state))
        require(codec.digest(decoded) == codec.digest(state), "a state is another one after a journey")


def it_goes_on_from_a_decoded_state(name: str) -> None:
    """Nothing is kept beside the state: a server that was restarted goes on alike."""
    prepared = toy(name)
    state_class = prepared.prepared.state_class

    class Forgetful:
        """The algorithm, which gets every state only as bytes."""

        def __getattr__(self, method: str) -> Any:
            def call(*arguments: Any) -> Any:
                copies = [
                    codec.decode(state_class, codec.encode(a)) if isinstance(a, state_class) else a
                    for a in arguments
                ]
                return getattr(prepared.algorithm, method)(*copies)

            return call

    forgetful = replace(prepared.prepared, algorithm=Forgetful())  # type: ignore[arg-type]
    same = play(replace(prepared, prepared=forgetful)).digests == reference(name).digests
    require(same, "from a decoded state it goes on to other results")
