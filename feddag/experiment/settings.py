# SPDX-License-Identifier: Apache-2.0
"""Experiment: the frozen, typed description of a run, from a TOML file, a recipe and `--set key=value`."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from feddag.core.algorithm import Algorithm
from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig, PartitionConfig
from feddag.experiment.engine import EngineConfig
from feddag.experiment.lifecycle import LifecycleConfig
from feddag.experiment.method import AlgorithmConfig
from feddag.experiment.overrides import Settings, override, read_settings
from feddag.experiment.scenario import ScenarioConfig
from feddag.experiment.sentences import joined, plain_problems, problems_of, shown, shown_text
from feddag.experiment.track import TrackConfig
from feddag.privacy.config import PrivacyOptions

MAX_CLIENTS = 1_000_000
MAX_ROUNDS = 1_000_000
MAX_SYNTHETIC = 1_000_000_000  # numbers in the synthetic data


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EvaluationConfig(_Section):
    """`[evaluation]`: when clients score their model on held-out samples."""

    every: int = Field(
        default=5, ge=1, description="rounds between evaluations; the last round is always evaluated"
    )
    after_training: bool = Field(
        default=True, description="at the end also score the models after local training"
    )
    scores: Literal["clients", "clusters"] = Field(
        default="clients",
        description="what is recorded: every client's scores, or sums over clusters of 3 or more clients",
    )


def _named(key: str) -> BeforeValidator:
    """Let `algorithm = "fedavg"` stand for `algorithm.name = "fedavg"`."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class Experiment(_Section):
    """Everything that determines a run."""

    name: str = Field(
        default="run",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="part of the run folder's name",
    )
    data: Annotated[DataConfig, _named("name")] = Field(default=DataConfig(), description="which samples")
    partition: Annotated[PartitionConfig, _named("kind")] = Field(
        default=PartitionConfig(), description="which client holds which samples"
    )
    num_clients: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CLIENTS,
        description="number of clients; not set: all natural clients of the data, else 100",
    )
    model: str = Field(default="auto", description="network family, or your own as module:factory")
    algorithm: Annotated[AlgorithmConfig, _named("name")] = Field(
        default=AlgorithmConfig(), description="which method"
    )
    scenario: Annotated[ScenarioConfig, _named("name")] = Field(
        default=ScenarioConfig(), description="who joins, leaves and comes back, and whose data change"
    )
    lifecycle: LifecycleConfig = Field(
        default=LifecycleConfig(), description="who notices changes of data, and what is done then"
    )
    training: LocalTraining = Field(default=LocalTraining(), description="how a client trains")
    num_rounds: int = Field(default=30, ge=1, le=MAX_ROUNDS, description="communication rounds")
    fraction_train: float = Field(
        default=0.2, gt=0, le=1, description="share of the clients that train in each round"
    )
    seed: int = Field(default=1, ge=0, description="number from which all randomness is derived")
    engine: Annotated[EngineConfig, _named("name")] = Field(
        default=EngineConfig(), description="where the work is computed"
    )
    evaluation: EvaluationConfig = Field(
        default=EvaluationConfig(), description="when and how models are scored"
    )
    checkpoint_every: int = Field(default=1, ge=1, description="rounds between checkpoints")
    track: TrackConfig = Field(default=TrackConfig(), description="trackers that see the numbers of the run")
    privacy: Annotated[PrivacyOptions, _named("level")] = Field(
        default=PrivacyOptions(), description="what leaves a client, and how it is protected"
    )

    @model_validator(mode="after")
    def _data_fit_a_computer(self) -> Self:
        synthetic = self.data.synthetic
        rows = synthetic.train + synthetic.test + synthetic.groups * synthetic.classes
        if rows * synthetic.dimensions > MAX_SYNTHETIC:
            raise ValueError(
                f"data.synthetic: samples, class centres and dimensions make {rows * synthetic.dimensions:,} "
                f"numbers; expected at most {MAX_SYNTHETIC:,}"
            )
        for name in ("folder", "cache", "path"):
            path = getattr(self.data, name)
            try:
                if path is not None:
                    path.expanduser().exists()
            except (OSError, RuntimeError, ValueError):
                value = shown(str(path))
                raise ValueError(f"data.{name} = {value}: expected a path that this system allows") from None
        return self

    @model_validator(mode="after")
    def _scenario_is_known(self) -> Self:
        try:
            self.scenario.resolved(self.num_rounds)
        except ValueError as error:
            raise ValueError(f"scenario.name = {shown(self.scenario.name)}: {error}") from None
        return self

    @model_validator(mode="after")
    def _noise_is_exact(self) -> Self:
        if self.privacy.dpsgd and self.engine.precision != "float32":
            raise ValueError(
                f"engine.precision = {shown(self.engine.precision)}: noisy gradients need float32; "
                "expected 'float32', or another privacy.update.mode"
            )
        return self

    @property
    def events(self) -> ScenarioConfig:
        """The scenario with the events that its name stands for."""
        return self.scenario.resolved(self.num_rounds)

    @property
    def detector(self) -> str:
        """Who notices drift: client, oracle or none."""
        found = self.lifecycle.detector
        return ("client" if self.events.drifts else "none") if found == "auto" else found

    def build_algorithm(self) -> Algorithm:
        """The algorithm this experiment runs."""
        return self.algorithm.build(self.training)

    def cohort_size(self, num_clients: int, at_least: int = 0) -> int:
        """How many clients train in a round: ⌊fraction · clients⌋."""
        size = max(math.floor(self.fraction_train * num_clients + 1e-9), at_least)
        if size == 0:
            raise InvalidInput(
                f"fraction_train = {self.fraction_train:g} of {num_clients} clients is less than one client: "
                f"use at least {math.ceil(1000 / num_clients) / 1000:g}"
            )
        return size

    @property
    def digest(self) -> str:
        """SHA-256 of all settings that decide results: a name, or how many workers compute, is not one."""
        settings = self.settings()
        for key in ("name", "checkpoint_every", "track"):
            settings.pop(key)
        for key in ("name", "workers", *self.engine.unused):
            settings["engine"].pop(key)
        if not self.privacy.on:
            settings.pop("privacy")
        settings["evaluation"].pop("scores")  # what is recorded changes no model
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def settings(self) -> Settings:
        """The experiment as plain values, as JSON and TOML have them."""
        return self.model_dump(mode="json")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str = "") -> "Experiment":
        """Check plain settings; names every key that is wrong, its value and what is allowed."""
        if not isinstance(settings, Mapping):
            problems = [f"{shown(settings)}: expected a table of settings"]
        else:
            problems = plain_problems(settings, DEFAULTS)
        if not problems:
            try:
                return cls.model_validate(settings)
            except ValidationError as error:
                problems = problems_of(error, settings, cls)
        prefix = f"{shown_text(where)}: " if where else ""
        raise InvalidInput(prefix + joined(problems))

    @classmethod
    def from_file(cls, path: Path, overrides: Iterable[str] = ()) -> "Experiment":
        """Read a TOML (or JSON) file and apply `key=value` overrides."""
        return cls.from_settings(override(read_settings(path), overrides), str(path))

    def with_overrides(self, overrides: Iterable[str]) -> "Experiment":
        """This experiment with `key=value` overrides applied."""
        return Experiment.from_settings(override(self.settings(), overrides))


DEFAULTS: Settings = Experiment().settings()
