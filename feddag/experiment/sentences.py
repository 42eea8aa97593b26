# SPDX-License-Identifier: Apache-2.0
"""What is wrong with settings: one plain sentence per problem, with key, value and what is allowed."""

import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from feddag.algorithms import ALGORITHMS

MAX_SHOWN = 80  # characters of a value or key that a message repeats
MAX_PROBLEMS = 8  # that one message lists; the others are counted
MAX_DEPTH = 12  # of tables and lists inside each other
MAX_TEXT = 4096  # characters of one text
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1  # what TOML, numpy and torch can hold

MOVED = {"training.backend": "engine.backend"}  # settings that have another name than before

Key = tuple[str, ...]

# pydantic's error types in our words; {…} are values that pydantic gives with the error.
EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dataclass_type": "a table of settings",
    "dict_type": "a table of settings",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "greater than or equal to {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "less than or equal to {le}",
    "literal_error": "{expected}",
    "model_type": "a table of settings",
    "path_type": "a path",
    "string_type": "text",
    "too_long": "a list of {max_length} or less",
    "too_short": "a list of {min_length} or more",
    "tuple_type": "a list",
}


def shown(value: Any) -> str:
    """A value as JSON writes it, on one line, without control characters, shortened to 80 characters."""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return f"an integer of about {int(value.bit_length() * 0.30103) + 1} digits"
    try:
        return shown_text(json.dumps(value, default=str, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):  # it contains huge integers, odd keys or deep nesting
        return f"a {type(value).__name__}"


def shown_text(text: str) -> str:
    """Text that fits on one line of any terminal, shortened to 80 characters."""
    short = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    if short.isprintable():
        return short
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short)
    return escaped if len(escaped) <= MAX_SHOWN else escaped[: MAX_SHOWN - 1] + "…"


def joined(problems: Iterable[str]) -> str:
    """All problems as one line; a long list is cut and counted."""
    different = list(dict.fromkeys(problems))
    more = len(different) - MAX_PROBLEMS
    return "; ".join(different[:MAX_PROBLEMS]) + (f"; and {more} more problems" if more > 0 else "")


def plain_problems(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """What no setting may hold, wherever it stands: deep nesting, huge integers, odd or empty text.

    The defaults say where empty text is allowed and where numbers stand; `true` is no number.
    """
    problems = []
    for key, value in _walk(settings):
        name = _name(key)
        if len(key) > MAX_DEPTH:
            return [f"{name}: tables and lists may be nested at most {MAX_DEPTH} deep"]
        if isinstance(value, bool):
            default = _default_at(key, defaults)
            if isinstance(default, int | float) and not isinstance(default, bool):
                problems.append(f"{name} = {shown(value)}: expected a number")
        elif isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
            problems.append(f"{name} = {shown(value)}: expected an integer from -2^63 to 2^63 - 1")
        elif isinstance(value, str):
            if len(value) > MAX_TEXT:
                problems.append(f"{name} = {shown(value)}: expected at most {MAX_TEXT:,} characters")
            elif "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
                problems.append(f"{name} = {shown(value)}: expected Unicode text without NUL characters")
            elif not value.strip() and _default_at(key, defaults) not in ("", ...):
                problems.append(f"{name} = {shown(value)}: expected text that is not empty")
    return problems


def _walk(settings: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
    """Every entry of nested tables and lists, without recursion; stops below the allowed depth."""
    waiting: list[tuple[Key, Any]] = [((), settings)]
    while waiting:
        key, value = waiting.pop()
        if key:
            yield key, value
        if len(key) > MAX_DEPTH:
            continue
        if isinstance(value, Mapping):
            waiting += [((*key, str(part)), item) for part, item in reversed(list(value.items()))]
        elif isinstance(value, list | tuple):
            waiting += [((*key, str(i)), value[i]) for i in reversed(range(len(value)))]


def _default_at(key: Key, defaults: Any) -> Any:
    """The default of a key; `...` for an unknown key, which is reported elsewhere."""
    for part in key:
        if not isinstance(defaults, Mapping) or part not in defaults:
            return ...
        defaults = defaults[part]
    return defaults


def problems_of(error: ValidationError, settings: Mapping[str, Any], root: type) -> list[str]:
    """All problems that pydantic found, one sentence each; alternatives of one key become one sentence."""
    expectations: dict[tuple[str, str], list[str]] = {}
    for e in error.errors(include_url=False):
        loc = _without_tags(e["loc"], settings)
        expectation = _expectation(e, loc, settings, root)
        expectations.setdefault((_name(loc), _value_of(e)), []).append(expectation)
    return [
        f"{key}{value}: {_alternatives(found)}" if key else _alternatives(found)
        for (key, value), found in expectations.items()
    ]


def _name(key: Iterable[Any]) -> str:
    return shown_text(".".join(str(part) for part in key))


def _value_of(error: Any) -> str:
    """` = value`, or nothing where the value would not help."""
    value = error["input"]
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument", "invalid_key"):
        return ""
    if error["type"] == "value_error" and isinstance(value, Mapping):  # a whole table: its name says enough
        name = value.get("name", value.get("kind", ""))
        return f" = {shown_text(repr(name))}" if name and isinstance(name, str) else ""
    return f" = {shown(value)}"


def _expectation(error: Any, loc: tuple[Any, ...], settings: Any, root: type) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        if _name(loc) in MOVED:
            return f"this setting is now {MOVED[_name(loc)]}"
        return f"unknown key; allowed here: {', '.join(sorted(_keys_at(loc[:-1], settings, root)))}"
    if kind == "invalid_key":
        return "expected a key that is text"
    if kind == "string_pattern_mismatch":
        return (
            "expected at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        )
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind].format(**{name: _number(v) for name, v in context.items()})}"
    message = error["msg"].removeprefix("Value error, ")
    return (message[0].lower() + message[1:]).replace("input should be", "expected").replace("valid ", "")


def _number(value: Any) -> Any:
    """A bound as people write it: 1,000,000 and 0.5; anything else as it is."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return f"{int(value):,}" if isinstance(value, int | float) else value


def _alternatives(expectations: list[str]) -> str:
    """`expected a whole number or 'auto'` from the two expectations of one key."""
    first, *others = dict.fromkeys(expectations)
    return " or ".join([first, *(other.removeprefix("expected ") for other in others)])


def _without_tags(loc: tuple[Any, ...], settings: Any) -> tuple[Any, ...]:
    """The key as the user wrote it: pydantic adds the tried type behind a key that allows several."""
    key: list[Any] = []
    value = settings
    for part in loc:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        elif part not in ("name", "kind"):  # these may be left out: algorithm = "fedavg"
            continue
        key.append(part)
    return tuple(key)


def _keys_at(path: tuple[Any, ...], settings: Any, root: type) -> set[str]:
    """Names of the settings in the table that a path leads to."""
    kind: Any = root
    for i, part in enumerate(path):
        hints = typing.get_type_hints(kind)
        if part in hints:
            kind = table_type(hints[part]) or hints[part]
        if i == 0 and part == "algorithm" and len(path) > 1:  # the rest belongs to the method
            chosen = settings.get("algorithm")
            name = chosen.get("name") if isinstance(chosen, Mapping) else chosen
            kind = ALGORITHMS.get(name, kind) if isinstance(name, str) else kind
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return set(getattr(kind, "model_fields", ()))


def table_type(hint: Any) -> type | None:
    """The class of a table of settings behind `X`, `X | None` or `Annotated[X, …]`; None for plain values."""
    if isinstance(hint, type) and (issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)):
        return hint
    return next((found for a in typing.get_args(hint) if (found := table_type(a))), None)
