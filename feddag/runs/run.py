# SPDX-License-Identifier: Apache-2.0
"""A run's folder as an object: settings, scores, tables, clusters, plots, models.

done = load_run(folder)                  # or what `feddag.run` returned
done.clients                             # a pandas data frame, one row per client
done.model("c03").predict(x)
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feddag.core.errors import InvalidInput
from feddag.core.task import ClientId
from feddag.experiment.settings import Experiment
from feddag.reporting.frames import frame_of
from feddag.reporting.tables.clients import read_clients
from feddag.reporting.tables.log import exchange_rows, metrics_csv, read_events
from feddag.runs.client_model import ClientModel, SavedModels

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Row = dict[str, Any]


@dataclass(frozen=True)
class Run(os.PathLike[str]):
    """A run's folder as an object; everything is read when it is asked for. It can be used as a path."""

    folder: Path

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return str(self.folder)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @cached_property
    def experiment(self) -> Experiment:
        """The settings of the run."""
        return Experiment.from_file(self.folder / "experiment.json")

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / "result.json").is_file()

    @cached_property
    def result(self) -> dict[str, Any]:
        """Scores and cost, as in result.json."""
        self._require_finished()
        return json.loads((self.folder / "result.json").read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        """Everything that was logged so far."""
        return list(read_events(self.folder / "events.jsonl"))

    # -- tables: plain rows, and the same as data frames -----------------------------------------------------

    @property
    def metric_rows(self) -> list[dict[str, str]]:
        """One row per evaluated round, as in metrics.csv."""
        return list(csv.DictReader(io.StringIO(metrics_csv(self.folder / "events.jsonl"))))

    @property
    def client_rows(self) -> list[dict[str, str]]:
        """One row per client: cluster, model file, scores, note; the columns of `clients_csv`."""
        self._require_finished()
        return read_clients(self.folder)

    @property
    def exchange_rows(self) -> list[Row]:
        """One row per question: round, task, clients, failures, bytes, seconds."""
        return exchange_rows(self.folder / "events.jsonl")

    @property
    def metrics(self) -> "DataFrame":
        """One row per evaluated round; needs pandas."""
        return frame_of(self.metric_rows, "metrics")

    @property
    def clients(self) -> "DataFrame":
        """One row per client; needs pandas."""
        return frame_of(self.client_rows, "clients", texts=("client", "model", "note"))

    @property
    def exchanges(self) -> "DataFrame":
        """One row per question; needs pandas."""
        return frame_of(self.exchange_rows, "exchanges")

    @property
    def clusters(self) -> dict[int, list[ClientId]]:
        """Who is in which cluster; empty for a method without clusters."""
        found: dict[int, list[ClientId]] = {}
        for row in self.client_rows:
            if row["cluster"]:
                found.setdefault(int(row["cluster"]), []).append(row["client"])
        return dict(sorted(found.items()))

    # -- models ----------------------------------------------------------------------------------------------

    @cached_property
    def models(self) -> SavedModels:
        """The trained models and who uses which."""
        self._require_finished()
        return SavedModels(self.folder / "models")

    def model(self, client: ClientId) -> ClientModel:
        """What a client predicts with: `run.model("c03").predict(x)`."""
        return self.models.of(client)

    def model_for(self, x: Any, labels: Sequence[Any]) -> ClientModel:
        """For a client that was not there: the model that fits its labelled samples best."""
        return self.models.best_for(x, labels)[0]

    # -- to look at ------------------------------------------------------------------------------------------

    def plot_accuracy(self) -> "Figure":
        """Mean accuracy over rounds, with the deviation over clients."""
        from feddag.reporting.figures.run import accuracy_figure

        return accuracy_figure(self.metric_rows)

    def plot_clients(self) -> "Figure":
        """Accuracy of every client, by cluster."""
        from feddag.reporting.figures.run import clients_figure

        return clients_figure(self.client_rows)

    def plot_cost(self) -> "Figure":
        """Bytes by task, in both directions."""
        from feddag.reporting.figures.run import cost_figure

        return cost_figure(self.exchange_rows)

    def _repr_html_(self) -> str:
        from feddag.reporting.pages.summary import run_summary  # jinja2 takes long to import

        result = self.result if self.finished else None
        rows = self.client_rows if self.finished else []
        return run_summary(str(self.folder), self.experiment.settings(), result, rows, self.metric_rows)

    def _require_finished(self) -> None:
        if not self.finished:
            raise InvalidInput(
                f"the run in {self.folder} is not finished: go on with feddag resume {self.folder}"
            )


def load_run(folder: os.PathLike[str] | str) -> Run:
    """A run that was made before, finished or not."""
    if not (Path(folder) / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    return Run(Path(folder))
