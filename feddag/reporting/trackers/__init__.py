# SPDX-License-Identifier: Apache-2.0
"""Other people's trackers as sinks of the event log. A tracker that fails is a warning, never a lost run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from feddag.reporting.trackers.numbers import numbers_of

Event = Mapping[str, Any]
Watch = Callable[[dict[str, Any]], None]


class Tracker(Protocol):
    """Where numbers of a run go."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        """The run starts, or goes on."""
        ...

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Numbers of one round."""
        ...

    def end(self, result: Mapping[str, Any] | None) -> None:
        """The run is over; without a result it was stopped, and may go on later."""
        ...


class TrackSettings(Protocol):
    """The settings `[track]`."""

    tensorboard: bool
    mlflow: str
    wandb: str


def open_trackers(config: TrackSettings, folder: Path, name: str) -> list[Tracker]:
    """The trackers that the settings name. They are imported here: all of them are heavy."""
    found: list[Tracker] = []
    if config.tensorboard:
        from feddag.reporting.trackers.tensorboard import TensorBoard

        found.append(TensorBoard(folder / "tensorboard"))
    if config.mlflow:
        from feddag.reporting.trackers.mlflow import MLflow

        found.append(MLflow(config.mlflow, folder, name))
    if config.wandb:
        from feddag.reporting.trackers.wandb import WeightsAndBiases

        found.append(WeightsAndBiases(config.wandb, folder, name))
    return found


class Tracking:
    """Shows every event to whoever watches, and its numbers to the trackers."""

    def __init__(self, watch: Watch, open_: Callable[[], list[Tracker]]) -> None:
        self.trackers: list[Tracker] = []
        self.watch = watch
        self._result: Mapping[str, Any] | None = None
        try:
            self.trackers = open_()
        except Exception as error:
            self._warn("a tracker", error)

    def __call__(self, event: dict[str, Any]) -> None:
        """See one event."""
        self.watch(event)
        if event["event"] in ("started", "resumed"):
            self._tell(lambda tracker: tracker.begin(event["experiment"]))
        if event["event"] == "finished":
            self._result = event
        numbers = numbers_of(event)
        if numbers:
            self._tell(lambda tracker: tracker.log(numbers, event["round"]))

    def close(self) -> None:
        """The run is over, for whatever reason."""
        self._tell(lambda tracker: tracker.end(self._result))

    def _tell(self, say: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                say(tracker)
            except Exception as error:  # a tracker is code of others, often over a network
                self.trackers.remove(tracker)
                self._warn(type(tracker).__name__, error)

    def _warn(self, name: str, error: Exception) -> None:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        self.watch({"event": "warning", "text": f"{name} failed and is told nothing more: {reason}"})
