# SPDX-License-Identifier: Apache-2.0
"""What a finished run leaves: scores of the final and the chosen round, models, tables, the clustering."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.algorithm import FindsClusters
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError, InvalidInput, InvalidMessage, QuorumMissed
from feddag.core.files import write_durably
from feddag.core.task import ClientId
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import evaluate
from feddag.reporting.pages.clustering import PlantedTruth, write_clustering_page
from feddag.reporting.tables.clients import clients_csv, read_clients, remarks_in
from feddag.reporting.tables.lifecycle import Story, lifecycle_summary
from feddag.reporting.tables.log import metrics_csv, read_events
from feddag.reporting.tables.metrics import PROTOCOL
from feddag.runs.checkpoint import label_of, load_checkpoint
from feddag.runs.client_model import ClientModel, SavedModels
from feddag.runs.driver import Driver
from feddag.runs.prepare import Facts, Prepared
from feddag.runs.saved_models import save_models

MOST_ON_A_PAGE = 1000  # clients; beyond, `feddag cluster RUN` draws the page when it is wanted


def write_result(driver: Driver, folder: Path, facts: Facts) -> None:
    """Score the final and the validation-chosen round, and write result, metrics, models and clusters.

    The result file comes last but for the page: it says that a run is complete.
    """
    final = driver.evaluate(driver.state, driver.progress.round, _after(driver), label="final_")
    chosen = _score_chosen(driver, final)
    joined = _score_newcomers(driver)
    scores = _merged(final, joined.report)
    files = _save_models(driver, joined, folder, facts, scores["uses"])
    clusters = _clusters(driver, driver.state)
    clusters_now = clusters if joined.state is driver.state else _clusters(driver, joined.state)
    log = folder / "events.jsonl"
    driver.log.sync()
    events = list(read_events(log))
    asked = [e for e in events if e["event"] == "exchange"]
    exchanges = [e for e in asked if e["task"] != evaluate.name]
    failures, all_failures = (sum(len(e["failures"]) for e in some) for some in (exchanges, asked))
    result = {
        "algorithm": driver.experiment.algorithm.name,
        "rounds": driver.progress.round,
        "final": _headline(final),
        "chosen": _headline(chosen) if chosen else None,
        "newcomers": _headline(joined.report) if joined.report else None,
        "clusters": len(set(clusters.values())) if clusters else None,
        "protocol": PROTOCOL,
        "state_digest": codec.digest(driver.state),
        "bytes_down": sum(e["bytes_down"] for e in exchanges),
        "bytes_up": sum(e["bytes_up"] for e in exchanges),
        "failures": failures,
        "evaluation_failures": all_failures - failures,
        "unscored": final["unscored"],
        "lifecycle": lifecycle_summary(Story.of(events)),
        "seconds": sum(e["seconds"] for e in events if e["event"] in ("start", "round")),
        **facts.about(),
    }
    write_durably(folder / "metrics.csv", metrics_csv(log).encode())
    remarks = remarks_in(events)
    remarks |= {client: ["newcomer", *remarks.get(client, ())] for client in joined.clients}
    rows = clients_csv(scores, clusters_now, files, remarks)
    write_durably(folder / "clients.csv", rows.encode())
    write_durably(folder / "result.json", json.dumps(result, indent=1).encode())
    if clusters and len(clusters) <= MOST_ON_A_PAGE:
        try:
            write_clusters(driver.prepared, driver.state, folder / "clustering", facts)
        except Exception as error:  # a picture that cannot be drawn must not cost anyone a result
            driver.watch({"event": "warning", "text": f"the clustering page could not be written: {error}"})
    driver.watch({"event": "finished", "folder": str(folder), **result})


def write_clusters(prepared: Prepared, state: Any, folder: Path, facts: Facts) -> dict[str, Any]:
    """Write the page that says who is with whom and why; the clustering as plain values."""
    algorithm = prepared.algorithm
    if not isinstance(algorithm, FindsClusters):
        name = prepared.experiment.algorithm.name
        raise InvalidInput(
            f"algorithm '{name}' has no clusters to show: use 'feddag' or another that clusters"
        )
    planted = facts.planted()
    truth = PlantedTruth(planted, facts.group_names()) if planted else None
    try:
        return write_clustering_page(folder, algorithm.clustering(state), truth, prepared.problem.class_names)
    except OSError as error:
        raise FederationError(f"the folder {folder} cannot be written: {error.strerror or error}") from error


def _after(driver: Driver) -> bool:
    return driver.experiment.evaluation.after_training


def _score_chosen(driver: Driver, final: dict[str, Any]) -> dict[str, Any] | None:
    """The chosen round's scores: state and memories of then, for as long as it takes."""
    progress = driver.progress
    if progress.chosen_round in (-1, progress.round):
        return final if progress.chosen_round == progress.round else None
    state_class = driver.prepared.state_class
    try:
        state = load_checkpoint(driver.checkpoints, progress.chosen_round, state_class)[1]
        driver.engine.restore_memories(label_of(progress.chosen_round))
    except InvalidMessage as error:
        round_ = progress.chosen_round
        driver.record("warning", text=f"the chosen round {round_} cannot be scored, it is damaged: {error}")
        return None
    try:
        return driver.evaluate(state, progress.chosen_round, _after(driver), label="chosen_")
    finally:
        driver.engine.restore_memories(label_of(progress.round))


@dataclass(frozen=True)
class Joined:
    """The clients that joined after the last round, the state that has taken them in, and their scores."""

    state: Any
    clients: tuple[ClientId, ...] = ()
    report: dict[str, Any] | None = None


def _score_newcomers(driver: Driver) -> Joined:
    """Clients that come after the last round join and score what they are given."""
    round_ = driver.progress.round
    present = driver.presence.present(round_)
    newcomers = tuple(c for c in driver.presence.present(round_ + 1) if c not in present)
    if not newcomers:
        return Joined(driver.state)
    server = driver.server(round_, driver.training(round_), "newcomers")
    try:
        state = driver.prepared.algorithm.onboard(driver.state, newcomers, server)
    except QuorumMissed as error:  # the others' result must not be lost
        driver.record("warning", text=f"newcomers could not join and are not scored: {error}")
        return Joined(driver.state)
    driver.record("newcomers", round=round_, clients=list(newcomers), notes=server.notes)
    report = driver.evaluate(state, round_, True, "newcomers_", newcomers)
    return Joined(state, newcomers, report)


def _merged(final: Mapping[str, Any], newcomers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Scores, failures and chosen models of all clients, newcomers included."""
    reports = [report for report in (final, newcomers) if report is not None]
    by_client = ("test_clients", "test_after_clients", "uses")
    merged: dict[str, Any] = {
        key: {client: value for report in reports for client, value in report.get(key, {}).items()}
        for key in by_client
    }
    return merged | {"unscored": [client for report in reports for client in report["unscored"]]}


def _save_models(
    driver: Driver, joined: Joined, folder: Path, facts: Facts, uses: Mapping[ClientId, int]
) -> dict[ClientId, str]:
    prepared = driver.prepared
    # Whoever took part has a model, also those who are away now.
    known = (*driver.presence.present(driver.progress.round), *driver.progress.known)
    states = dict.fromkeys(known, driver.state)
    states |= dict.fromkeys(joined.clients, joined.state)
    # The question of the final evaluation: what was scored there is what is saved here.
    round_ = driver.progress.round
    exchange = Exchange(round_, driver.server(round_, [], "evaluation").question_seed)
    deployments = {
        client: facts.personal(client, prepared.algorithm.deploy(states[client], client), exchange)
        for client in sorted(states)
    }
    return save_models(folder / "models", prepared.network.name, prepared.problem, deployments, uses)


def _clusters(driver: Driver, state: Any) -> dict[ClientId, int]:
    algorithm = driver.prepared.algorithm
    if not isinstance(algorithm, FindsClusters):
        return {}
    return algorithm.clustering(state).clusters.labels()


def _headline(report: Mapping[str, Any]) -> dict[str, Any]:
    names = {"test": "before", "test_after": "after", "validation": "validation"}
    scores = {new: report[old] for old, new in names.items() if old in report}
    return {"round": report["round"], "asked": report["asked"], **scores}


# -- reading it back ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run's folder as an object; everything is read when it is asked for."""

    folder: Path

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
        if not self.finished:
            raise InvalidInput(self._unfinished())
        return json.loads((self.folder / "result.json").read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        """Everything that was logged so far."""
        return list(read_events(self.folder / "events.jsonl"))

    @property
    def metrics(self) -> list[dict[str, str]]:
        """One row per evaluated round."""
        return list(csv.DictReader(io.StringIO(metrics_csv(self.folder / "events.jsonl"))))

    @property
    def clients(self) -> list[dict[str, str]]:
        """One row per client: cluster, model file, scores, note; the columns of `clients_csv`."""
        if not self.finished:
            raise InvalidInput(self._unfinished())
        return read_clients(self.folder)

    @cached_property
    def models(self) -> SavedModels:
        """The trained models and who uses which."""
        if not self.finished:
            raise InvalidInput(self._unfinished())
        return SavedModels(self.folder / "models")

    def model(self, client: ClientId) -> ClientModel:
        """What a client predicts with: `run.model("c03").predict(x)`."""
        return self.models.of(client)

    def model_for(self, x: Any, labels: Sequence[Any]) -> ClientModel:
        """For a client that was not there: the model that fits its labelled samples best."""
        return self.models.best_for(x, labels)[0]

    def _unfinished(self) -> str:
        return f"the run in {self.folder} is not finished: go on with feddag resume {self.folder}"


def load_run(folder: Path | str) -> Run:
    """A run that was made before, finished or not."""
    if not (Path(folder) / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    return Run(Path(folder))
