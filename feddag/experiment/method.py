# SPDX-License-Identifier: Apache-2.0
"""`[algorithm]`: a method's name, preset and hyper-parameters, checked against the class that has them."""

import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from feddag.algorithms import ALGORITHMS
from feddag.core.algorithm import Algorithm
from feddag.core.deployment import LocalTraining
from feddag.experiment.sentences import shown, shown_text

MAX_COUNT = 1_000_000  # of anything that a method's hyper-parameter counts


class AlgorithmConfig(BaseModel):
    """`[algorithm]`: which method, and its hyper-parameters under their own names."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    name: str = Field(default="fedavg", description="method; `feddag list algorithms` prints all names")
    preset: str = Field(default="", description="named set of hyper-parameters of the method")

    @model_validator(mode="after")
    def _hyper_parameters_fit(self) -> Self:
        _refuse_huge_counts(self.model_extra or {})
        self.build(LocalTraining())
        return self

    def build(self, local: LocalTraining) -> Algorithm:
        """The algorithm with these hyper-parameters and this local training."""
        if self.name not in ALGORITHMS:
            raise ValueError(f"unknown: choose one of {', '.join(ALGORITHMS)}, or your own as module:Class")
        cls = ALGORITHMS[self.name]
        presets = getattr(cls, "presets", {})
        if self.preset and self.preset not in presets:
            known = ", ".join(presets) or "none"
            raise ValueError(
                f"preset '{shown_text(self.preset)}' is unknown for '{self.name}': it has {known}"
            )
        given = self.model_extra or {}
        for key, new in getattr(cls, "MOVED", {}).items():
            if _holds(given, key):
                raise ValueError(f"'{key}' is now 'algorithm.{new}'")
        options = _merged(presets.get(self.preset, {}), given)
        _check_names(cls, options, self.name)
        return TypeAdapter(cls).validate_python({**options, "local": local})


def _holds(options: Any, key: str) -> bool:
    """Whether a key such as `clustering.views` is given, as a value and not as a table."""
    for part in key.split("."):
        if not isinstance(options, Mapping) or part not in options:
            return False
        options = options[part]
    return not isinstance(options, Mapping)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`; tables in both are merged key by key."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        result[key] = _merged(base[key], value) if both else value
    return result


def _check_names(cls: Any, options: Mapping[str, Any], owner: str, prefix: str = "") -> None:
    """Refuse names that the class (or one of its groups of options) does not have."""
    hints = typing.get_type_hints(cls, include_extras=True)
    named = {}
    for f in fields(cls):
        extras = getattr(hints[f.name], "__metadata__", ())
        alias = next((a for extra in extras if (a := getattr(extra, "alias", None))), f.name)
        named[alias] = typing.get_args(hints[f.name])[0] if extras else hints[f.name]
    allowed = named.keys() - {"local"}
    for key, value in options.items():
        if key not in allowed:
            has = ", ".join(sorted(allowed)) or "no hyper-parameters"
            raise ValueError(f"'{shown_text(prefix + key)}' is unknown: '{owner}' has {has}")
        if isinstance(value, Mapping) and is_dataclass(named[key]):
            _check_names(named[key], value, f"{prefix}{key}", f"{prefix}{key}.")


def _refuse_huge_counts(options: Mapping[str, Any], prefix: str = "") -> None:
    for key, value in options.items():
        if isinstance(value, Mapping):
            _refuse_huge_counts(value, f"{prefix}{key}.")
        elif isinstance(value, int) and value > MAX_COUNT:
            name = shown_text(prefix + key)
            raise ValueError(f"{name} = {shown(value)}: expected at most {MAX_COUNT:,}")
