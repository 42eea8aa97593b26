# SPDX-License-Identifier: Apache-2.0
"""MLflow: one MLflow run per run folder, also after a resume."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddag.reporting.trackers.numbers import final_scores, flat

RUN_ID = ".mlflow"  # file in the run folder: which MLflow run belongs to it
EXPERIMENT = "feddag"
LONGEST = 500  # characters of a parameter


class MLflow:
    """Parameters, metrics per round, the headline at the end."""

    def __init__(self, uri: str, folder: Path, name: str) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        self._marker, self._folder, self._name = folder / RUN_ID, folder, name
        self._run = ""
        self._step = 0

    def begin(self, settings: Mapping[str, Any]) -> None:
        """A new MLflow run, or the one that was begun before a resume."""
        if self._marker.is_file():
            self._run = self._marker.read_text().strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        known = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(EXPERIMENT)
        tags = {"feddag.folder": str(self._folder.absolute())}
        self._run = self._client.create_run(experiment, run_name=self._name, tags=tags).info.run_id
        self._marker.write_text(self._run)
        for key, value in flat(settings).items():
            self._client.log_param(self._run, key, str(value)[:LONGEST])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One metric per number."""
        self._step = step
        for name, value in numbers.items():
            self._client.log_metric(self._run, name, value, step=step)

    def end(self, result: Mapping[str, Any] | None) -> None:
        """The headline, and how the run ended."""
        if result is not None:
            self.log(final_scores(result), self._step)
        if self._run:
            self._client.set_terminated(self._run, "FINISHED" if result is not None else "KILLED")
