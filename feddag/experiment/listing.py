# SPDX-License-Identifier: Apache-2.0
"""Everything a user can name, with a line of help each, for `feddag list` and the documentation."""

import ast
import dataclasses
import inspect
import io
import json
import textwrap
import tokenize
import typing
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from feddag.algorithms import ALGORITHMS
from feddag.core.errors import InvalidInput
from feddag.data.catalog import DATASETS
from feddag.data.dealing.partitions import PARTITIONS
from feddag.experiment.method import AlgorithmConfig
from feddag.experiment.recipes import RECIPES
from feddag.experiment.scenario import SCENARIOS
from feddag.experiment.sentences import shown_text, table_type
from feddag.experiment.settings import Experiment
from feddag.models import FAMILIES

Rows = list[tuple[str, ...]]  # (name, help), or of settings (name, default, help)

ENGINES = {
    "process": "persistent worker processes, one per core; the default",
    "inline": "one client after another in this process; for debugging",
    "flower": "many machines, with feddag deploy",
}


def tables() -> dict[str, Rows]:
    """Table name → rows. Settings have three columns: name, default, meaning."""
    return {
        "algorithms": [(name, first_line(cls)) for name, cls in ALGORITHMS.items()],
        "datasets": [(name, dataset.help) for name, dataset in DATASETS.items()],
        "partitions": [(name, partition.help) for name, partition in PARTITIONS.items()],
        "models": [
            *((name, family.help) for name, family in FAMILIES.items()),
            ("module:factory", "your own: factory(input_shape, num_classes) returns an nn.Module"),
        ],
        "recipes": [(name, first_line(recipe)) for name, recipe in RECIPES.items()],
        "scenarios": [(name, scenario.help) for name, scenario in SCENARIOS.items()],
        "engines": [*ENGINES.items()],
        "settings": settings(Experiment),
    }


def table_of(name: str) -> Rows:
    """One table, or the hyper-parameters of the method with this name: (name, default, meaning)."""
    if name in ALGORITHMS:
        return hyper_parameters(name)
    known = tables()
    if name not in known:
        raise InvalidInput(
            f"there is no table '{shown_text(name)}': choose all, {', '.join(known)}, "
            f"or a method ({', '.join(ALGORITHMS)})"
        )
    return known[name]


def first_line(thing: Any) -> str:
    """First line of a docstring."""
    return (thing.__doc__ or "").strip().splitlines()[0]


def hyper_parameters(method: str) -> Rows:
    """The settings of one method, as `algorithm.NAME` sets them; groups of options as dotted names."""
    return [row for row in settings(ALGORITHMS[method]) if row[0].partition(".")[0] != "local"]


def settings(table: type, prefix: str = "", values: Any = None) -> Rows:
    """Every setting in a table and in the tables inside it: name, default (or its value), meaning."""
    rows: Rows = []
    hints = typing.get_type_hints(table, include_extras=True)
    for field, default, help_ in _fields(table):
        inner, name = table_type(hints[field]), setting_name(field, hints[field])
        default = default if values is None else getattr(values, field)
        if isinstance(default, tuple):  # a list of tables has no fields of its own until one is written
            inner = None
        if inner is None or default is None:
            choices = _choices(hints[field])
            listed = f"one of {', '.join(choices)}" if choices and not _all_in(choices, help_) else ""
            meaning = "; ".join(part for part in (help_, listed) if part)
            rows.append((prefix + name, _written(default), meaning))
        if inner is not None:
            rows += settings(inner, f"{prefix}{name}.", default)
        if inner is AlgorithmConfig:
            rows.append(
                (f"{prefix}{name}.…", "", "hyper-parameters: `feddag list METHOD` shows those of a method")
            )
    return rows


def _fields(table: Any) -> list[tuple[str, Any, str]]:
    """Name, default and help of each field: a pydantic model describes them, a dataclass has comments."""
    if issubclass(table, BaseModel):
        infos = table.model_fields.items()
        return [(n, i.get_default(call_default_factory=True), i.description or "") for n, i in infos]
    comments = field_comments(table)
    rows = []
    for field in dataclasses.fields(table):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        rows.append((field.name, default, comments.get(field.name, "")))
    return rows


def setting_name(field: str, hint: Any) -> str:
    """The name of a field in settings: its alias, where it has one."""
    return next((alias for a in typing.get_args(hint)[1:] if (alias := getattr(a, "alias", None))), field)


def _choices(hint: Any) -> list[str]:
    """The values of a Literal inside a type, as a user writes them."""
    if typing.get_origin(hint) is Literal:
        return [str(value) for value in typing.get_args(hint)]
    return [choice for part in typing.get_args(hint) for choice in _choices(part)]


def _all_in(choices: list[str], text: str) -> bool:
    return all(choice in text for choice in choices)


def _written(default: Any) -> str:
    """A default as a settings file writes it."""
    if default is None:
        return "not set"
    if isinstance(default, str | Path):
        return str(default) or '""'
    if isinstance(default, bool | tuple):
        return json.dumps(default)
    return str(default)


@cache
def field_comments(cls: type) -> dict[str, str]:
    """Field name → comment in the source: on the field's line, else the lines of comment just above it."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _comments_in(base)
    return found


def _comments_in(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # made at run time, or installed without its source
        return {}
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        beside = [
            comments[n] for n in range(node.lineno, (node.end_lineno or node.lineno) + 1) if n in comments
        ]
        above: list[str] = []
        line = node.lineno - 1
        while line in comments and lines[line - 1].lstrip().startswith("#"):
            above.insert(0, comments[line])
            line -= 1
        if words := beside or above:
            found[node.target.id] = " ".join(words)
    return found
