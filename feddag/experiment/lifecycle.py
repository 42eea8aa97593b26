# SPDX-License-Identifier: Apache-2.0
"""`[lifecycle]`: who notices that a client's data have changed, and what is done then."""

from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from feddag.learning.drift import DriftOptions

Detector = Literal["auto", "client", "oracle", "none"]


class LifecycleConfig(BaseModel):
    """How a run answers changes of the clients and of their data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    detector: Detector = Field(
        default="auto",
        description="who notices drift: client, oracle (the planted truth), none; "
        "auto: client if the scenario has drifts",
    )
    every: int = Field(default=5, ge=1, description="rounds between two checks (the paper's δ')")
    response: Literal["method", "reonboard", "none"] = Field(
        default="method",
        description="what alarms lead to: method (its own response), "
        "reonboard (the client joins again as a newcomer), none",
    )
    assignment: Literal["found", "oracle"] = Field(
        default="found",
        description="clusters of alarmed clients: found by the method, or oracle (the planted truth)",
    )
    cooldown: int = Field(default=2, ge=0, description="checks that a client rests after an alarm")
    wake: float = Field(
        default=2.0,
        ge=0,
        description="changes so many times as large as those of an alarm end a client's rest; "
        "0: nothing does, as under privacy, where every signature costs",
    )
    preset: Literal["", "paper"] = Field(
        default="", description="paper: nothing but the Wasserstein distance of class shares is watched"
    )
    drift: DriftOptions = Field(default=DriftOptions(), description="when a client raises an alarm")

    @property
    def options(self) -> DriftOptions:
        """What clients watch, with the preset applied."""
        if self.preset == "paper":
            return replace(self.drift, labels="wasserstein", subspaces=False, means=False)
        return self.drift

    def most_alarms(self, num_rounds: int) -> int:
        """How many alarms one client can raise in so many rounds: after each it rests."""
        if num_rounds < self.every:
            return 0
        return 1 + (num_rounds - self.every) // (self.every * (self.cooldown + 1))
