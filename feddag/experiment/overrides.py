# SPDX-License-Identifier: Apache-2.0
"""Plain settings: read from a file, changed by `--set key=value`."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feddag.core.errors import InvalidInput
from feddag.data.config import KINDS_OF

Settings = dict[str, Any]


def read_settings(path: Path) -> Settings:
    """The plain settings in a TOML or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: not a valid {path.suffix.lstrip('.') or 'TOML'} file: {error}") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None


def override(settings: Mapping[str, Any], overrides: Iterable[str]) -> Settings:
    """Settings with dotted `key=value` assignments applied; values are TOML, anything else is text."""
    result: Settings = json.loads(json.dumps(settings))
    for assignment in overrides:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(f"--set {assignment}: expected key=value, for example --set training.lr=0.1")
        path = key.strip().split(".")
        table = result
        for part in path[:-1]:
            if isinstance(table.get(part), str):
                table[part] = {"kind" if part == "partition" else "name": table[part]}
            if table.get(part) is None:
                table[part] = {}
            table = table[part]
            if not isinstance(table, dict):
                raise InvalidInput(f"--set {assignment}: '{part}' is a value, not a table")
        # Hyper-parameters belong to one method or kind: another one starts from its own defaults.
        if path in (["algorithm"], ["algorithm", "name"]):
            result["algorithm"] = table = {}
            path = ["name"]
        if path in (["partition"], ["partition", "kind"]) and isinstance(result.get("partition"), dict):
            table = result["partition"]
            for name in KINDS_OF:
                table.pop(name, None)
            path = ["kind"]
        table[path[-1]] = _value(text)
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
