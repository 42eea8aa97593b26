# SPDX-License-Identifier: Apache-2.0
"""Plain settings: read from a file, changed by `--set key=value`."""

import copy
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feddag.core.errors import InvalidInput
from feddag.data.config import KINDS_OF
from feddag.experiment.sentences import MAX_DEPTH, shown, shown_text

Settings = dict[str, Any]

MAX_FILE = 1_000_000  # bytes of a settings file


SHORT = {"partition": "kind", "privacy": "level"}  # what `key = "value"` stands for; elsewhere it is the name


def read_settings(path: Path) -> Settings:
    """The plain settings in a TOML or JSON file."""
    kind = "json" if path.suffix == ".json" else "toml"
    name = shown_text(str(path))
    try:
        settings = _parse(_read_text(path), kind)
    except RecursionError:
        raise InvalidInput(f"{name}: not a valid {kind} file: it is nested too deeply") from None
    except ValueError as error:  # of tomllib, json, UTF-8, and of integers with more than 4,300 digits
        raise InvalidInput(f"{name}: not a valid {kind} file: {_reason(error)}") from None
    except OSError as error:
        raise InvalidInput(f"{name}: cannot be read: {error.strerror}") from None
    if not isinstance(settings, dict):
        raise InvalidInput(f"{name} = {shown(settings)}: expected a table of settings")
    return settings


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise InvalidInput(f"{shown_text(str(path))}: is a folder; expected a TOML or JSON file")
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{shown_text(str(path))}: is no ordinary file; expected a TOML or JSON file")
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise InvalidInput(f"{shown_text(str(path))}: a settings file may have at most {MAX_FILE:,} bytes")
    return data.decode("utf-8-sig")


def _parse(text: str, kind: str) -> Any:
    if kind == "json":
        return json.loads(text, object_pairs_hook=_without_duplicates)
    return tomllib.loads(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> Settings:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} appears twice in one table")
    return table


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is no UTF-8 text"
    text = str(error)
    return "an integer has too many digits" if "integer string conversion" in text else shown_text(text)


def override(settings: Mapping[str, Any], overrides: Iterable[str]) -> Settings:
    """Settings with dotted `key=value` assignments applied; values are TOML, anything else is text."""
    try:
        result: Settings = copy.deepcopy(dict(settings))
    except RecursionError:
        raise InvalidInput(f"tables and lists may be nested at most {MAX_DEPTH} deep") from None
    for assignment in overrides:
        _assign(result, assignment)
    return result


def _assign(settings: Settings, assignment: str) -> None:
    key, equals, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    told = f"--set {shown_text(assignment)}"
    if not equals or not all(path):
        raise InvalidInput(f"{told}: expected key=value, for example --set training.lr=0.1")
    if len(path) > MAX_DEPTH:
        raise InvalidInput(f"{told}: tables may be nested at most {MAX_DEPTH} deep")
    value = _value(text)
    table = settings
    for part in path[:-1]:
        if isinstance(table.get(part), str):
            table[part] = {SHORT.get(part, "name"): table[part]}
        if table.get(part) is None:
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise InvalidInput(f"{told}: '{shown_text(part)}' is a value, not a table")
    # Hyper-parameters belong to one method or kind: another one starts from its own defaults.
    if path in (["algorithm"], ["algorithm", "name"]) and not isinstance(value, dict):
        settings["algorithm"] = table = {}
        path = ["name"]
    old = settings.get("partition")
    if path in (["partition"], ["partition", "kind"]) and isinstance(old, dict):
        if not isinstance(value, dict):
            table, path = old, ["kind"]
        for name in KINDS_OF:
            old.pop(name, None)
    table[path[-1]] = value


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, an integer of many digits, or nested too deeply
        return text
    return table["value"] if len(table) == 1 else text  # a line break can start a second key
