# SPDX-License-Identifier: Apache-2.0
"""Section: the settings of a run as a file to run again, what differs between runs, data and machine."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from feddag.reporting.pages.report.run_data import RunData
from feddag.reporting.pages.section import Block, Column, Table

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def differences(runs: Sequence[RunData]) -> Block | None:
    """The settings that are not the same in all runs."""
    if len(runs) < 2:
        return None
    flat = [dict(flattened(run.settings)) for run in runs]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    missing = object()
    differ = [key for key in keys if len({json.dumps(s.get(key, str(missing))) for s in flat}) > 1]
    if not differ:
        return Block(["All runs have the same settings."])
    rows = [[key, *("–" if key not in s else _toml(s[key]) for s in flat)] for key in differ]
    return Block(
        ["Only these settings differ."],
        tables=[Table([Column("setting"), *(Column(r.label) for r in runs)], rows)],
    )


def settings(run: RunData) -> Block | None:
    """The settings as TOML, and where and when the run was made."""
    about = run.log.about
    machine = about.get("machine") or {}
    source = about.get("source") or {}
    facts = {
        "folder": str(run.folder),
        "started": about.get("time"),
        "data": " ".join(str(source[k]) for k in ("dataset", "kind", "detail") if source.get(k)),
        "SHA-256 of the data": source.get("sha256"),
        "partition": (about.get("notes") or {}).get("partition"),
        "network": about.get("model"),
        **{f"machine: {name}": value for name, value in machine.items()},
    }
    rows = [[name, _words(value)] for name, value in facts.items() if value]
    return Block(
        ["Save this text as mine.toml: the command feddag run mine.toml then makes the same run again."],
        tables=[Table([Column("about"), Column("")], rows)] if about else (),
        code=as_toml(run.settings),
    )


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inside)}" for name, inside in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def as_toml(settings: Mapping[str, Any]) -> str:
    """Settings as TOML with dotted keys; what is None stays away, because TOML has no such value."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in flattened(settings))


def flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values."""
    for key, value in settings.items():
        name = prefix + (key if BARE_KEY.fullmatch(key) else json.dumps(key))
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{name}.")
        elif value is not None:
            yield name, value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value if item is not None) + "]"
    if isinstance(value, Mapping):
        inside = (f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(inside) + "}"
    return repr(value)
