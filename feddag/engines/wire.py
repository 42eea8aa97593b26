# SPDX-License-Identifier: Apache-2.0
"""What server and nodes write to each other beside requests and replies; nothing on the wire names code.

A node keeps its memory in versions on its own disk, one after each task that changed it. The server knows
only their names: a question says from which version the node starts, the answer says which one it has now.
So a reply that the server never used leaves no trace, and a resumed server goes back to the right version.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from pydantic import TypeAdapter, ValidationError

from feddag.core.errors import InvalidInput, InvalidMessage
from feddag.core.examples import Scaling
from feddag.core.message import message
from feddag.core.problem import Problem
from feddag.core.task import ClientId

NOTHING = ""  # the version of a client that remembers nothing
HELLO = "hello"  # the question who a node is
MOST_NUMBERS = 10**10  # inputs times classes: more would be an attack on the memory
UNITED = ("num_classes", "class_names", "scaling")  # parts of a problem in which nodes may differ


_PROBLEM = TypeAdapter(Problem)


def write_problem(problem: Problem) -> str:
    """A problem as JSON: all of its numbers come back to the bit."""
    return _PROBLEM.dump_json(problem).decode()


def read_problem(text: str) -> Problem:
    """The problem that `write_problem` wrote; InvalidMessage if it is none."""
    try:
        problem = _PROBLEM.validate_json(text)
    except ValidationError as error:
        raise InvalidMessage("problem", "a description of data", f"{error.error_count()} errors") from error
    numbers = (problem.scaling.unit, *problem.scaling.mean, *problem.scaling.std)
    sizes = (*problem.input_shape, problem.num_classes)
    if not np.isfinite(numbers).all() or min(sizes) < 1 or math.prod(sizes) > MOST_NUMBERS:
        raise InvalidMessage("problem", "sizes and finite numbers that data can have", "others")
    if problem.class_names and len(problem.class_names) != problem.num_classes:
        raise InvalidMessage("problem", "a name for every class", f"{len(problem.class_names)} names")
    return problem


@message
class Question:
    """One question to one client; the request itself travels beside it, once for all who share it."""

    number: str  # random: an answer must repeat it
    run: str  # the run that the node's memory belongs to
    task: str  # the name of one of the method's tasks
    client: str
    round: int
    root: int = 0  # of the question's seed
    path: tuple[str, ...] = ()
    deadline: float = 0.0  # seconds; 0: none
    memory: str = NOTHING  # the version to start from
    keep: tuple[str, ...] = ()  # other versions that the server may come back to
    model: str = ""
    problem: str = ""  # as `write_problem` writes it; empty: the node's own


@message
class AnswerHead:
    """What comes back beside the reply."""

    number: str
    client: str
    failure: str = ""
    seconds: float = 0.0
    samples: int = 0  # gradients of single samples that were computed; 0 where numbers leave with noise only
    epochs: float = 0.0  # the same in passes over the training samples
    memory: str = NOTHING  # the version that the client has now
    lost: bool = False  # it no longer has the version to start from, and starts anew next time


@message
class Hello:
    """Who a node is: its client, what its data look like, and whether it has samples to train on."""

    client: str
    problem: str
    examples: int
    model: str


@dataclass(frozen=True)
class Newcomer:
    """A node that has said who it is."""

    node: int
    client: ClientId
    problem: Problem
    examples: int


def agree(newcomers: Iterable[Newcomer]) -> Problem:
    """The one problem that the data of all nodes are about; InvalidInput names who does not fit.

    Classes are united. Features are standardised with the mean and variance of all samples together.
    """
    nodes = sorted(newcomers, key=lambda node: node.client)
    first = nodes[0].problem
    if all(node.problem == first for node in nodes):
        return first
    for node in nodes:
        if reason := _difference(node.problem, first):
            raise InvalidInput(
                f"the data of clients '{nodes[0].client}' and '{node.client}' do not fit together: {reason}"
            )
    names = {name for node in nodes for name in node.problem.class_names}
    if not names:
        raise InvalidInput("the nodes' data have different numbers of classes, and the classes have no names")
    numeric = all(name.lstrip("-").isdigit() for name in names)
    ordered = tuple(sorted(names, key=(lambda name: (int(name), name)) if numeric else (lambda n: (0, n))))
    scaling = _pooled_scaling(nodes)
    return replace(first, num_classes=len(ordered), class_names=ordered, scaling=scaling)


def fits(own: Problem, agreed: Problem) -> str:
    """Empty if a node's data can take part in a run about the agreed problem; else why not."""
    if own == agreed:
        return ""
    if reason := _difference(own, agreed):
        return reason
    unknown = sorted(set(own.class_names) - set(agreed.class_names))
    if unknown or not own.class_names:
        return f"its class {unknown[0] if unknown else '(without a name)'!r} is not one of the run"
    return ""


def _difference(one: Problem, other: Problem) -> str:
    """In which part that must be equal two problems differ; empty if in none."""
    for part in fields(Problem):
        ours, theirs = getattr(one, part.name), getattr(other, part.name)
        if part.name not in UNITED and ours != theirs:
            return f"{part.name.replace('_', ' ')} is {str(ours)[:200]} here and {str(theirs)[:200]} there"
    if one.scaling.unit != other.scaling.unit or len(one.scaling.mean) != len(other.scaling.mean):
        return "the samples are stored in different units"
    return ""


def _pooled_scaling(nodes: list[Newcomer]) -> Scaling:
    """Mean and deviation of all samples together, from each node's own; pixels need none."""
    first = nodes[0].problem.scaling
    if not first.mean:
        return first
    weights_N = np.array([max(node.examples, 1) for node in nodes], dtype=np.float64)
    weights_N /= weights_N.sum()
    means_NF = np.array([node.problem.scaling.mean for node in nodes], dtype=np.float64)
    stds_NF = np.array([node.problem.scaling.std for node in nodes], dtype=np.float64)
    mean_F = weights_N @ means_NF
    variance_F = weights_N @ (stds_NF**2 + means_NF**2) - mean_F**2
    std_F = np.sqrt(np.maximum(variance_F, 1e-12))
    return Scaling(first.unit, tuple(map(float, mean_F)), tuple(map(float, std_F)))
