# SPDX-License-Identifier: Apache-2.0
"""Experiment: the frozen, typed description of a run, from a TOML file, a recipe and `--set key=value`."""

import json
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from feddag.algorithms import ALGORITHMS
from feddag.core.algorithm import Algorithm
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig, PartitionConfig
from feddag.experiment.overrides import Settings, override, read_settings


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AlgorithmConfig(BaseModel):
    """`[algorithm]`: which method, and its hyper-parameters under their own names."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    name: str = Field(default="fedavg", description="method; `feddag list algorithms` prints all names")
    preset: str = Field(default="", description="named set of hyper-parameters of the method")

    @model_validator(mode="after")
    def _hyper_parameters_fit(self) -> Self:
        self.build(LocalTraining())
        return self

    def build(self, local: LocalTraining) -> Algorithm:
        """The algorithm with these hyper-parameters and this local training."""
        if self.name not in ALGORITHMS:
            raise ValueError(f"unknown: choose one of {', '.join(ALGORITHMS)}")
        cls = ALGORITHMS[self.name]
        presets = getattr(cls, "presets", {})
        if self.preset and self.preset not in presets:
            known = ", ".join(presets) or "none"
            raise ValueError(f"preset '{self.preset}' is unknown for '{self.name}': it has {known}")
        given = self.model_extra or {}
        for key, new in getattr(cls, "MOVED", {}).items():
            if key in given and not isinstance(given[key], Mapping):
                raise ValueError(f"'{key}' is now 'algorithm.{new}'")
        options = _merged(presets.get(self.preset, {}), given)
        _check_names(cls, options, self.name)
        return TypeAdapter(cls).validate_python({**options, "local": local})


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
            raise ValueError(f"'{prefix}{key}' is unknown: '{owner}' has {has}")
        if isinstance(value, Mapping) and is_dataclass(named[key]):
            _check_names(named[key], value, f"{prefix}{key}", f"{prefix}{key}.")


class EngineConfig(_Section):
    """`[engine]`: who carries the questions to the clients."""

    name: Literal["process", "inline"] = Field(
        default="process", description="process: workers; inline: reference"
    )
    workers: int = Field(default=0, ge=0, description="worker processes; 0: one per core")
    deadline: float | None = Field(default=None, gt=0, description="seconds a client may take for one task")
    quorum: float = Field(
        default=0.5, ge=0, le=1, description="least share of asked clients that must answer"
    )


class EvaluationConfig(_Section):
    """`[evaluation]`: when clients score their model on held-out samples."""

    every: int = Field(
        default=5, ge=1, description="evaluate after every so many rounds (always after the last)"
    )
    after_training: bool = Field(default=True, description="at the end also score after local training")


def _named(key: str) -> BeforeValidator:
    """Let `algorithm = "fedavg"` stand for `algorithm.name = "fedavg"`."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class Experiment(_Section):
    """Everything that determines a run."""

    name: str = Field(
        default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="part of the folder's name"
    )
    data: Annotated[DataConfig, _named("name")] = Field(default=DataConfig(), description="which samples")
    partition: Annotated[PartitionConfig, _named("kind")] = Field(
        default=PartitionConfig(), description="which client holds which"
    )
    num_clients: int | None = Field(
        default=None,
        ge=1,
        description="number of clients; not set: all natural clients of the data, else 100",
    )
    model: str = Field(default="auto", description="network family, or your own as module:factory")
    algorithm: Annotated[AlgorithmConfig, _named("name")] = Field(
        default=AlgorithmConfig(), description="which method"
    )
    training: LocalTraining = Field(default=LocalTraining(), description="how a client trains")
    num_rounds: int = Field(default=30, ge=0, description="communication rounds")
    fraction_train: float = Field(
        default=0.2, gt=0, le=1, description="share of the clients that train in a round"
    )
    seed: int = Field(default=1, ge=0, description="the number all randomness starts from")
    engine: Annotated[EngineConfig, _named("name")] = Field(
        default=EngineConfig(), description="who computes"
    )
    evaluation: EvaluationConfig = Field(
        default=EvaluationConfig(), description="when and how models are scored"
    )
    checkpoint_every: int = Field(
        default=1, ge=1, description="write a checkpoint after every so many rounds"
    )

    def build_algorithm(self) -> Algorithm:
        """The algorithm this experiment runs."""
        return self.algorithm.build(self.training)

    def cohort_size(self, num_clients: int) -> int:
        """How many clients train in a round: ⌊fraction · clients⌋."""
        size = math.floor(self.fraction_train * num_clients + 1e-9)
        if size == 0:
            raise InvalidInput(
                f"fraction_train = {self.fraction_train:g} of {num_clients} clients is less than one client: "
                f"use at least {math.ceil(1000 / num_clients) / 1000:g}"
            )
        return size

    def settings(self) -> Settings:
        """The experiment as plain values, as JSON and TOML have them."""
        return self.model_dump(mode="json")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str = "") -> "Experiment":
        """Check plain settings; one sentence names every key that is wrong, its value and what is allowed."""
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            problems = "; ".join(dict.fromkeys(_sentence(e) for e in error.errors()))
            raise InvalidInput(f"{where}: {problems}" if where else problems) from None

    @classmethod
    def from_file(cls, path: Path, overrides: Iterable[str] = ()) -> "Experiment":
        """Read a TOML (or JSON) file and apply `key=value` overrides."""
        return cls.from_settings(override(read_settings(path), overrides), str(path))

    def with_overrides(self, overrides: Iterable[str]) -> "Experiment":
        """This experiment with `key=value` overrides applied."""
        return Experiment.from_settings(override(self.settings(), overrides))


def _sentence(error: Any) -> str:
    """One pydantic error in our words: key = value: what is allowed."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        allowed = ", ".join(sorted(_keys_at(error["loc"][:-1])))
        return f"{key}: unknown key; allowed here: {allowed}"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    message = message.replace("input should be", "expected").replace("valid ", "")
    value = error["input"]
    if isinstance(value, Mapping) and error["type"] == "value_error":
        value = value.get("name", value.get("kind", ""))
        return f"{key} = {value!r}: {message}" if value else f"{key}: {message}"
    return f"{key} = {json.dumps(value, default=str)}: {message}"


def _keys_at(path: tuple[Any, ...]) -> set[str]:
    """Names of the settings in the table that a path leads to."""
    kind: Any = Experiment
    for part in path:
        hint = typing.get_type_hints(kind).get(part, Any)
        options = [a for a in typing.get_args(hint) if a is not type(None)]
        kind = options[0] if options else hint
    return set(getattr(kind, "model_fields", None) or typing.get_type_hints(kind))
