# SPDX-License-Identifier: Apache-2.0
"""`[scenario]`: who joins, leaves and comes back in which round; without it everybody is always there."""

from typing import Annotated

from annotated_types import Gt, Le
from pydantic import BaseModel, ConfigDict, Field

MAX_ROUND = 1_000_000
WHO = "a share of the clients, drawn at random, or a list of their ids"

Some = Annotated[float, Gt(0), Le(1)] | tuple[str, ...]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JoinConfig(_Section):
    """`[[scenario.join]]`: clients that are not there before a round."""

    at: int = Field(ge=1, le=MAX_ROUND, description="the first round in which they are there")
    clients: Some = Field(description=WHO)


class LeaveConfig(_Section):
    """`[[scenario.leave]]`: clients that are away from a round on."""

    at: int = Field(ge=1, le=MAX_ROUND, description="the first round in which they are away")
    clients: Some = Field(description=WHO)
    back: int | None = Field(
        default=None,
        ge=2,
        le=MAX_ROUND,
        description="the round of their return; not set: never",
    )


class ScenarioConfig(_Section):
    """All events of a run."""

    join: tuple[JoinConfig, ...] = Field(default=(), description="clients that join during the run")
    leave: tuple[LeaveConfig, ...] = Field(default=(), description="clients that leave, and may come back")
