# SPDX-License-Identifier: Apache-2.0
"""@message: typed, frozen values that may travel between server and clients, or to our later self on disk.

A closed set of field types — Params, numpy arrays, bool/int/float/str, `Literal` strings, other messages, and
tuples, dicts with string keys and `| None` of these — makes encoding, validating and privacy automatic.
Every field that holds tensors says `sensitive(kind)` (derived from a client's data) or `public()`.
A field of a reply also says what the server accepts, as a `Rule`: see `feddag.core.contract`.
"""

import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, TypeVar, dataclass_transform

import numpy as np

from feddag.core.params import Params

T = TypeVar("T")
SCALARS = (bool, int, float, str)
# How settings that users write become such values: no unknown keys, no NaN, no text for numbers.
STRICT = {"extra": "forbid", "allow_inf_nan": False, "strict": False}


class Kind(StrEnum):
    """What a sensitive field tells about a client's data. The set is closed: privacy has a rule for each."""

    UPDATE = "update"  # trained parameters, gradients and everything computed from them
    SUBSPACES = "subspaces"  # principal vectors of samples
    COUNTS = "counts"  # numbers of samples, and shares of them
    MEANS = "means"  # means of samples
    EMBEDDING = "embedding"  # features of a locally trained encoder
    LOSSES = "losses"  # losses on training samples
    SCORES = "scores"  # results on held-out samples
    CLUSTER = "cluster"  # which model a client prefers


# A size that a reply must have: a number, a name ("classes", "#models", …), or a function of what is known.
Size = int | str | Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a server accepts in one field of a reply; `feddag.core.contract` explains and applies it."""

    like: str | Callable[[Any], Any] | None = None  # parameters: the layout of this value of the request
    shape: tuple[Size, ...] | None = None  # arrays: the size of each dimension
    dtype: str = ""  # arrays: the exact number format
    least: float | None = None  # the smallest number that is allowed
    most: float | None = None  # the largest number that is allowed
    below: Size | None = None  # numbers must be smaller than this size: indices of classes or models
    at_most_field: str = ""  # no entry may exceed the same entry of this other field
    most_rows: Size = 2**20  # the largest value of a size that the server does not know
    difference: bool = True  # parameters of kind "update": whether `engine.max_update_norm` applies


RULE_NAMES = tuple(f.name for f in dataclasses.fields(Rule))
NO_RULE = Rule()


def sensitive(kind: str, **options: Any) -> Any:
    """Declare a field that is derived from a client's data; privacy transforms are chosen by its kind.

    Options that `Rule` has say what a server accepts, the others are those of `dataclasses.field`.
    """
    return _declared(Kind(kind), options)


def public(**options: Any) -> Any:
    """Declare a field that tells nothing about a client's data, or comes from the server."""
    return _declared("", options)


def _declared(privacy: str, options: dict[str, Any]) -> Any:
    rule = Rule(**{name: options.pop(name) for name in RULE_NAMES if name in options})
    return dataclasses.field(metadata={"privacy": privacy, "rule": rule}, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(sensitive, public))
def message(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass whose fields can be encoded without pickle."""
    made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    made.__message__ = True  # type: ignore[attr-defined]
    made.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
    # Types that are not importable yet (forward references) are checked on first use instead.
    with contextlib.suppress(NameError):
        check_declarations(made)
    return made


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(sensitive, public))
def options(cls: type[T]) -> type[T]:
    """Make a class a message of settings: every `Literal` field is also checked when a value is made."""
    own_check = cls.__dict__.get("__post_init__")

    def check(self: Any) -> None:
        for name, hint in field_types(type(self)).items():
            if typing.get_origin(hint) is Literal and getattr(self, name) not in typing.get_args(hint):
                allowed = ", ".join(typing.get_args(hint))
                raise ValueError(f"{name} = {getattr(self, name)!r}: expected one of {allowed}")
        if own_check is not None:
            own_check(self)

    cls.__post_init__ = check  # type: ignore[attr-defined]
    return message(cls)


def is_message(kind: Any) -> bool:
    """Whether a type (or the type of a value) was made by @message."""
    return getattr(kind if isinstance(kind, type) else type(kind), "__message__", False)


def field_types(cls: type) -> dict[str, Any]:
    """Field name → resolved type, in declaration order."""
    cached = cls.__dict__.get("__field_types__")
    if cached is None:
        hints = typing.get_type_hints(cls)
        cached = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
        cls.__field_types__ = cached  # type: ignore[attr-defined]
    return cached


def check_declarations(cls: type) -> None:
    """Refuse field types outside the closed set, and tensors that are neither sensitive nor public."""
    hints = field_types(cls)
    for f in dataclasses.fields(cls):
        _check_type(hints[f.name], f"{cls.__name__}.{f.name}")
        if "privacy" not in f.metadata and _holds_tensors(hints[f.name]):
            raise TypeError(f"{cls.__name__}.{f.name} holds tensors: declare it sensitive(kind) or public()")


def sensitive_kinds(cls: type) -> set[str]:
    """All kinds of sensitive data a message class carries, nested messages included."""
    kinds = {f.metadata["privacy"] for f in dataclasses.fields(cls) if f.metadata.get("privacy")}
    for hint in field_types(cls).values():
        for leaf in _leaves(hint):
            if is_message(leaf):
                kinds |= sensitive_kinds(leaf)
    return kinds


def unwrap_optional(hint: Any) -> tuple[Any, bool]:
    """`X | None` → (X, True); anything else → (itself, False)."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(rest) == 1 and len(typing.get_args(hint)) == 2:
            return rest[0], True
    return hint, False


def _leaves(hint: Any) -> list[Any]:
    hint, _ = unwrap_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return [leaf for a in args if a is not Ellipsis for leaf in _leaves(a)]
    if origin is dict:
        return _leaves(args[1])
    return [hint]


def _holds_tensors(hint: Any) -> bool:
    return any(leaf in (Params, np.ndarray) for leaf in _leaves(hint))


def _check_type(hint: Any, where: str) -> None:
    hint, _ = unwrap_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict and args and args[0] is str:
        return _check_type(args[1], where)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _check_type(args[0], where)
    if origin is Literal and all(isinstance(choice, str) for choice in args):
        return None
    if hint not in (*SCALARS, Params, np.ndarray) and not is_message(hint):
        raise TypeError(
            f"{where}: {hint} cannot travel; use Params, numpy.ndarray, bool, int, float, str, a Literal of "
            "strings, a message, or tuple[X, ...], dict[str, X], X | None of these"
        )
    return None
