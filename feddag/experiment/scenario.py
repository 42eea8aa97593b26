# SPDX-License-Identifier: Apache-2.0
"""`[scenario]`: who joins, leaves and comes back in which round, and whose data change.

Without it everybody is always there, and nobody's data change.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from feddag.data.config import MAX_ROUND, WHO, DriftConfig, Some


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

    name: str = Field(default="", description="a named scenario; `feddag list scenarios` prints all names")
    join: tuple[JoinConfig, ...] = Field(default=(), description="clients that join during the run")
    leave: tuple[LeaveConfig, ...] = Field(default=(), description="clients that leave, and may come back")
    drift: tuple[DriftConfig, ...] = Field(default=(), description="clients whose data change")
    change_points: Path | None = Field(
        default=None,
        description="instead of drift tables: a file with a row of concept numbers per step, one per client",
    )
    step: int = Field(default=10, ge=1, le=MAX_ROUND, description="rounds per row of change_points")

    @property
    def drifts(self) -> bool:
        """Whether anybody's data change."""
        return bool(self.drift) or self.change_points is not None

    def resolved(self, num_rounds: int) -> "ScenarioConfig":
        """This scenario with the events that its name stands for, in rounds of a run of this length."""
        if not self.name:
            return self
        if self.name not in SCENARIOS:
            raise ValueError(f"unknown: choose one of {', '.join(SCENARIOS)}")

        def event(at: float, **fields: Any) -> dict[str, Any]:
            for key in ("until", "back", "over"):
                if key in fields:
                    fields[key] = max(1, round(fields[key] * num_rounds))
            return {"at": max(1, round(at * num_rounds)), **fields}

        tables = {kind: [event(**e) for e in events] for kind, events in SCENARIOS[self.name].tables.items()}
        for kind in ("join", "leave", "drift"):
            tables[kind] = [*tables.get(kind, ()), *(e.model_dump() for e in getattr(self, kind))]
        return ScenarioConfig.model_validate({**self.model_dump(), **tables, "name": ""})


@dataclass(frozen=True)
class NamedScenario:
    """Events with a name; their rounds are parts of the run."""

    help: str
    tables: dict[str, list[dict[str, Any]]]


def _swaps(*at: float, **more: Any) -> list[dict[str, Any]]:
    """FedCCFA's drift: three parts of the clients swap two labels each."""
    parts = zip((0.3, 0.3, 0.4), at, ("swap-1-2", "swap-3-4", "swap-5-6"), strict=True)
    return [{"at": a, "clients": share, "kind": "concept", "to": to, **more} for share, a, to in parts]


SCENARIOS: dict[str, NamedScenario] = {
    "joins": NamedScenario(
        "a tenth of the clients joins at a quarter, at half and at three quarters of the run",
        {"join": [{"at": at, "clients": 0.1} for at in (0.25, 0.5, 0.75)]},
    ),
    "churn": NamedScenario(
        "a fifth joins at a third of the run; a fifth is away from half to three quarters of it",
        {"join": [{"at": 0.33, "clients": 0.2}], "leave": [{"at": 0.5, "clients": 0.2, "back": 0.75}]},
    ),
    "label-drift": NamedScenario(
        "at half of the run a fifth of the clients gets the labels of another planted group",
        {"drift": [{"at": 0.5, "clients": 0.2, "kind": "label"}]},
    ),
    "concept-drift": NamedScenario(
        "at half of the run labels get another meaning for a fifth of the clients (partition.concept)",
        {"drift": [{"at": 0.5, "clients": 0.2, "kind": "concept"}]},
    ),
    "feature-drift": NamedScenario(
        "at half of the run the images of three tenths lose contrast, are blurred, or become noisy",
        {
            "drift": [
                {"at": 0.5, "clients": 0.1, "kind": "feature", "to": to, "keep": 1.0}
                for to in ("contrast", "defocus_blur", "gaussian_noise")
            ]
        },
    ),
    "growth": NamedScenario(
        "everybody has a quarter of the samples at first, then a half, three quarters, all",
        {
            "drift": [
                {"at": at, "clients": 1.0, "kind": "quantity", "factor": factor}
                for at, factor in ((0.25, 2.0), (0.5, 1.5), (0.75, 4 / 3))
            ]
        },
    ),
    "swaps-sudden": NamedScenario(
        "at half of the run 30, 30 and 40% of the clients swap labels 1-2, 3-4 and 5-6 (FedCCFA)",
        {"drift": _swaps(0.5, 0.5, 0.5, keep=1.0)},
    ),
    "swaps-staggered": NamedScenario(
        "the same swaps, but at 50, 55 and 60% of the run", {"drift": _swaps(0.5, 0.55, 0.6, keep=1.0)}
    ),
    "swaps-recurrent": NamedScenario(
        "the same swaps at half of the run, back to the old meaning at three quarters",
        {"drift": _swaps(0.5, 0.5, 0.5, keep=1.0, until=0.75)},
    ),
}
