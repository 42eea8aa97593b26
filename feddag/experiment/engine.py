# SPDX-License-Identifier: Apache-2.0
"""`[engine]`: who computes, where, and what is expected of the answers."""

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from feddag.core.contract import NormLimit
from feddag.learning.devices import Computing

MAX_WORKERS = 1024
MAX_AT_ONCE = 1024
MAX_SECONDS = 10_000_000.0  # of a deadline: about four months


class EngineConfig(BaseModel):
    """`[engine]`: where the clients' work is computed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["process", "inline", "flower"] = Field(
        default="process",
        description="process: parallel worker processes; inline: one client after another, for debugging; "
        "flower: many machines, with feddag deploy",
    )
    workers: int = Field(
        default=0, ge=0, le=MAX_WORKERS, description="number of worker processes; 0: one per core"
    )
    deadline: float | None = Field(
        default=None, gt=0, le=MAX_SECONDS, description="seconds that a client may take for one task"
    )
    backend: Literal["auto", "torch", "native"] = Field(
        default="auto",
        description="who trains: torch, native (C++ kernels), or auto: native where it can",
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|mps|cuda(:\d{1,3})?)$",
        description="where torch computes: cpu, cuda, cuda:1, mps, or auto: a GPU with CUDA if there is one; "
        "the C++ kernels use the cpu",
    )
    batched_clients: int = Field(
        default=0,
        ge=0,
        le=MAX_AT_ONCE,
        description="clients that torch trains at once; 0: 16 on a GPU with CUDA, else 1",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of torch's forward and backward passes in training: bfloat16 is mixed precision",
    )
    compile: bool = Field(
        default=False, description="let torch.compile compile the network; it takes up to a minute"
    )
    quorum: float = Field(
        default=0.5, ge=0, le=1, description="share of the asked clients that must answer, at least"
    )
    max_update_norm: float | None = Field(
        default=None, gt=0, description="largest Euclidean norm of a client's update; not set: no limit"
    )
    norm_action: Literal["refuse", "clip"] = Field(
        default="refuse", description="what happens to a larger update: refuse its client, or scale it down"
    )

    @model_validator(mode="after")
    def _can_be_computed(self) -> Self:
        if self.backend == "native" and (
            self.precision != "float32" or self.compile or self.batched_clients > 1
        ):
            raise ValueError(
                "backend = 'native' computes one client in float32 with compiled kernels: precision, compile "
                "and batched_clients are for torch"
            )
        if self.compile and self.batched_clients > 1:
            raise ValueError("compile and batched_clients exclude each other: expected one of them")
        return self

    @property
    def unused(self) -> tuple[str, ...]:
        """Settings that change no result as they are."""
        limits = () if self.max_update_norm else ("max_update_norm", "norm_action")
        torch = ("batched_clients", "precision", "compile")
        return (
            *limits,
            *(key for key in torch if getattr(self, key) == type(self).model_fields[key].default),
        )

    @property
    def computing(self) -> Computing:
        """Where and how torch computes."""
        return Computing(
            device=self.device,
            precision=self.precision,
            compile=self.compile,
            batched_clients=self.batched_clients,
        )

    @property
    def norm_limit(self) -> NormLimit:
        """The limit as the server applies it."""
        return NormLimit(self.max_update_norm or math.inf, self.norm_action == "clip")
