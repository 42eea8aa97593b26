# SPDX-License-Identifier: Apache-2.0
"""The contract of a reply: what the server accepts, declared beside each field, checked before the quorum.

    update: Params = sensitive("update", like="params")                  layout of the request's `params`
    counts: np.ndarray = sensitive("counts", shape=("classes",), least=0)
    cluster: int = sensitive("cluster", least=0, below="#models")        an index into the request's `models`

`like` is a path in the request such as "offer.models", or a function of `Known`; a tuple of models stands for
a tuple of parameters, None says that the field must be empty. A dimension of `shape` is a number, a function
of `Known`, or one of these names:

    "classes"   number of classes             "input"   all dimensions of one sample
    "features"  numbers in one sample         "#path"   length of a tuple in the request
    any other   a size that only the client knows; equal wherever the name is used in one reply

Without a rule a number must still be finite and not huge: no training produces more than `HUGE`.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from feddag.core.errors import InvalidMessage
from feddag.core.message import NO_RULE, Kind, Rule, Size, is_message
from feddag.core.params import Layout, Params
from feddag.core.problem import Problem

HUGE = 1e12  # squares of such numbers can still be summed in float32


class _Networks(Protocol):
    def __call__(self, kind: str) -> nn.Module: ...


@dataclass(frozen=True)
class NormLimit:
    """The largest Euclidean norm of an update, and what happens to a larger one."""

    most: float = math.inf
    clip: bool = False  # scale it down instead of refusing the reply


@dataclass(frozen=True)
class Known:
    """What the server knows about a reply before it looks at it."""

    request: Any
    problem: Problem
    network: _Networks
    _expected: dict[tuple[type, str], Any] = field(default_factory=dict, compare=False)

    def network_layout(self, kind: str, prefixes: tuple[str, ...] = ("",)) -> Layout:
        """Names and shapes of those tensors of a network whose names start with a prefix."""
        whole = Layout.of_module(self.network(kind))
        kept = [i for i, name in enumerate(whole.names) if name.startswith(prefixes)]
        names = tuple(whole.names[i] for i in kept)
        return Layout(names, tuple(whole.shapes[i] for i in kept), whole.buffers & set(names))

    def value(self, path: str) -> Any:
        """The value at a path of the request, such as "offer.models"."""
        found = self.request
        for name in path.split("."):
            found = found[int(name)] if name.isdigit() else getattr(found, name)
        return found

    def expected(self, cls: type, name: str, rule: Rule) -> Any:
        """What `like` of a field stands for; found once, for all clients that got the same request."""
        key = (cls, name)
        if key not in self._expected:
            like = rule.like
            self._expected[key] = like(self) if callable(like) else self.value(str(like))
        return self._expected[key]

    def size(self, size: Size) -> int | tuple[int, ...] | None:
        """A size as a number; several for "input"; None for a size that only the client knows."""
        if callable(size):
            return int(size(self))
        if isinstance(size, int):
            return size
        if size.startswith("#"):
            return len(self.value(size[1:]))
        if size == "input":
            return self.problem.input_shape
        named = {"classes": self.problem.num_classes, "features": math.prod(self.problem.input_shape)}
        return named.get(size)


def accept(reply: Any, reply_class: type, known: Known, limit: NormLimit) -> tuple[Any, list[str]]:
    """The reply as the server may use it, and what was changed in it; InvalidMessage names what is wrong."""
    if type(reply) is not reply_class:
        raise InvalidMessage("(reply)", f"a {reply_class.__name__}", f"a {type(reply).__name__}")
    _Check(known).message(reply, "")
    return _within(reply, limit) if limit.most < math.inf else (reply, [])


class _Check:
    """One reply under examination; remembers sizes that only the client knew."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.sizes: dict[str, int] = {}

    def message(self, value: Any, prefix: str) -> None:
        for f in dataclasses.fields(value):
            rule = f.metadata.get("rule", NO_RULE)
            path = prefix + f.name
            item = getattr(value, f.name)
            if rule.like is not None:
                self.parameters(item, self.known.expected(type(value), f.name, rule), path)
            self.anything(item, rule, path)
            if rule.at_most_field:
                other = getattr(value, rule.at_most_field)
                if np.shape(item) != np.shape(other) or np.any(np.asarray(item) > np.asarray(other)):
                    raise InvalidMessage(
                        path, f"entries up to those of '{rule.at_most_field}'", "larger ones"
                    )

    def parameters(self, item: Any, expected: Any, path: str) -> None:
        """Compare layouts with those of the request."""
        if isinstance(expected, tuple):
            if not isinstance(item, tuple) or len(item) != len(expected):
                raise InvalidMessage(path, f"{len(expected)} sets of parameters", _shown(item))
            for i, (one, like) in enumerate(zip(item, expected, strict=True)):
                self.parameters(one, like, f"{path}.{i}")
            return
        if (item is None) != (expected is None):
            raise InvalidMessage(path, "nothing" if expected is None else "parameters", _shown(item))
        if item is None:
            return
        layout = expected.layout if isinstance(expected, Params) else expected
        if item.layout is not layout and item.layout != layout:
            raise InvalidMessage(path, f"the layout of {_summary(layout)}", _difference(layout, item.layout))

    def anything(self, item: Any, rule: Rule, path: str) -> None:
        """Check one value and everything in it."""
        if isinstance(item, Params):
            self.numbers(item.vector, rule, path)
        elif isinstance(item, np.ndarray):
            self.array(item, rule, path)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            self.range(item, item, rule, path)
        elif is_message(item):
            self.message(item, path + ".")
        elif isinstance(item, tuple | dict):
            for key, part in item.items() if isinstance(item, dict) else enumerate(item):
                self.anything(part, rule, f"{path}.{key}")

    def array(self, item: np.ndarray, rule: Rule, path: str) -> None:
        """Number format, number of dimensions, and the size of each."""
        if rule.dtype and item.dtype != np.dtype(rule.dtype):
            raise InvalidMessage(path, f"{rule.dtype} numbers", f"{item.dtype} numbers")
        if rule.shape is not None:
            wanted: list[tuple[str, int | None]] = []
            for size in rule.shape:
                found = self.known.size(size)
                sides = found if isinstance(found, tuple) else (found,)
                wanted += [(size if isinstance(size, str) else "", side) for side in sides]
            fits = item.ndim == len(wanted) and all(
                self._fits(name, side, got, rule)
                for (name, side), got in zip(wanted, item.shape, strict=True)
            )
            if not fits:
                sides_text = ", ".join(self._side(name, side, rule) for name, side in wanted)
                raise InvalidMessage(path, f"an array of shape ({sides_text})", f"one of shape {item.shape}")
        elif item.size > self.known_size(rule.most_rows):
            raise InvalidMessage(path, f"at most {self.known_size(rule.most_rows)} numbers", f"{item.size}")
        self.numbers(item, rule, path)

    def known_size(self, size: Size) -> int:
        """A limit as a number."""
        found = self.known.size(size)
        assert isinstance(found, int)
        return found

    def _fits(self, name: str, side: int | None, got: int, rule: Rule) -> bool:
        if side is not None:
            return got == side
        return got == self.sizes.setdefault(name, got) and got <= self.known_size(rule.most_rows)

    def _side(self, name: str, side: int | None, rule: Rule) -> str:
        if side is not None:
            return str(side)
        return str(self.sizes.get(name, f"up to {self.known_size(rule.most_rows)}"))

    def numbers(self, item: np.ndarray | torch.Tensor, rule: Rule, path: str) -> None:
        """The smallest and the largest number of an array; a NaN in it makes both NaN."""
        if isinstance(item, torch.Tensor):
            if item.numel():
                low, high = torch.aminmax(item)
                self.range(low.item(), high.item(), rule, path)
        elif item.size:
            self.range(item.min().item(), item.max().item(), rule, path)

    def range(self, low: float, high: float, rule: Rule, path: str) -> None:
        """Compare the smallest and the largest number with what the rule allows; NaN is never allowed."""
        least = -HUGE if rule.least is None else rule.least
        most = HUGE if rule.most is None else rule.most
        if rule.below is not None:
            most = self.known_size(rule.below) - 1
        if not (low >= least and high <= most):
            raise InvalidMessage(
                path, f"numbers from {least:g} to {most:g}", _number(high if low >= least else low)
            )


def _within(reply: Any, limit: NormLimit) -> tuple[Any, list[str]]:
    """The reply with every update inside the limit, and what was clipped."""
    changes: dict[str, Any] = {}
    clipped: list[str] = []
    for f in dataclasses.fields(reply):
        rule = f.metadata.get("rule", NO_RULE)
        if f.metadata.get("privacy") != Kind.UPDATE or not rule.difference:
            continue
        value = getattr(reply, f.name)
        parts = value if isinstance(value, tuple) else (value,)
        norms = [part.norm() if isinstance(part, Params) else 0.0 for part in parts]
        if max(norms, default=0.0) <= limit.most:
            continue
        if not limit.clip:
            raise InvalidMessage(f.name, f"an update of norm up to {limit.most:g}", f"norm {max(norms):g}")
        factors = [min(1.0, limit.most / norm) if norm else 1.0 for norm in norms]
        short = tuple(p * factor if factor < 1 else p for p, factor in zip(parts, factors, strict=True))
        changes[f.name] = short if isinstance(value, tuple) else short[0]
        clipped.append(f"field '{f.name}': norm {max(norms):g} clipped to {limit.most:g}")
    return (dataclasses.replace(reply, **changes) if changes else reply), clipped


def _number(value: Any) -> str:
    return f"{value:g}" if not isinstance(value, int) or abs(value) < 2**63 else "a larger one"


def _summary(layout: Layout) -> str:
    return f"{len(layout.names)} tensors, {layout.size} numbers"


def _difference(expected: Layout, got: Layout) -> str:
    """The first thing in which two layouts differ, in words; names come from a client, so they are cut."""
    if len(expected.names) != len(got.names):
        return _summary(got)
    for name, other, shape, other_shape in zip(
        expected.names, got.names, expected.shapes, got.shapes, strict=True
    ):
        if name != other:
            return f"{ascii(other)[:60]} in place of '{name}'"
        if shape != other_shape:
            return f"shape {other_shape} of '{name}', which has {shape}"
    return _summary(got)


def _shown(item: Any) -> str:
    if isinstance(item, np.ndarray):
        return f"an array of shape {item.shape}"
    return {tuple: "another number of them", type(None): "nothing"}.get(type(item), "others")
