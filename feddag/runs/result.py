# SPDX-License-Identifier: Apache-2.0
"""What a finished run leaves: scores of the final and the chosen round, models, tables, the clustering."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.capabilities import FindsClusters
from feddag.core.clustering import Clustering
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError, InvalidInput, InvalidMessage, QuorumMissed
from feddag.core.files import write_durably
from feddag.core.task import ClientId
from feddag.learning.evaluation import evaluate
from feddag.privacy.account import by_cluster
from feddag.reporting.pages.clustering import PlantedTruth, confidences, write_clustering_page
from feddag.reporting.tables.clients import clients_csv, remarks_in
from feddag.reporting.tables.lifecycle import Story, lifecycle_summary
from feddag.reporting.tables.log import metrics_csv, read_events
from feddag.reporting.tables.metrics import PROTOCOL
from feddag.runs.assignment import labels_of
from feddag.runs.checkpoint import label_of, load_checkpoint
from feddag.runs.driver import Driver
from feddag.runs.prepare import Facts, Prepared
from feddag.runs.saved_models import save_models

LAST = 5  # evaluations whose mean a result holds: accuracy may swing by ten points between two rounds
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
    algorithm = driver.prepared.algorithm
    clusters, clusters_now = (labels_of(algorithm, state) for state in (driver.state, joined.state))
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
        **_protocol_facts(driver, events),
        "client_epochs": round(sum(e["epochs"] for e in exchanges), 3),
        "samples": sum(e["samples"] for e in exchanges),
        "bytes_down": sum(e["bytes_down"] for e in exchanges),
        "bytes_up": sum(e["bytes_up"] for e in exchanges),
        "failures": failures,
        "evaluation_failures": all_failures - failures,
        "unscored": final["unscored"],
        "lifecycle": lifecycle_summary(Story.of(events)),
        "seconds": sum(e["seconds"] for e in events if e["event"] in ("start", "round")),
        **facts.about(),
    }
    if driver.experiment.privacy.on:
        result["privacy"] = _privacy(result.get("privacy", {}), events, clusters_now)
    write_durably(folder / "metrics.csv", metrics_csv(log).encode())
    remarks = remarks_in(events)
    remarks |= {client: ["newcomer", *remarks.get(client, ())] for client in joined.clients}
    rows = clients_csv(scores, clusters_now, files, remarks, _confidence(driver, joined.state))
    write_durably(folder / "clients.csv", rows.encode())
    write_durably(folder / "result.json", json.dumps(result, indent=1).encode())
    if clusters and (len(clusters) <= MOST_ON_A_PAGE or getattr(driver.state, "unsigned", None) is not None):
        try:
            write_clusters(driver.prepared, driver.state, facts, folder / "clustering")
        except Exception as error:  # a picture that cannot be drawn must not cost anyone a result
            driver.watch({"event": "warning", "text": f"the clustering page could not be written: {error}"})
    driver.watch({"event": "finished", "folder": str(folder), **result})


def _protocol_facts(driver: Driver, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a table must know to compare this run: the last evaluations, adaptation, when a method can act."""
    algorithm, experiment = driver.prepared.algorithm, driver.experiment
    last = [e for e in events if e["event"] == "evaluation" and e["test"]["accuracy"] is not None][-LAST:]
    keys = ("accuracy", "balanced_accuracy", "proportional_accuracy")
    known = {k: [e["test"][k] for e in last if e["test"].get(k) is not None] for k in keys}
    acts_from = getattr(algorithm, "acts_from", None)
    clients = driver.presence.present(driver.progress.round)
    means = {k: sum(values) / len(values) for k, values in known.items() if values}
    return {
        "last_five": {"rounds": [e["round"] for e in last], **means},
        "adapts": any(algorithm.deploy(driver.state, c).adapts for c in clients[:1]),
        "acts_from": acts_from(experiment.num_rounds, experiment.fraction_train) if acts_from else None,
    }


def _privacy(
    found: Mapping[str, Any], events: list[dict[str, Any]], clusters: Mapping[ClientId, int]
) -> dict[str, Any]:
    """What was planned, what the clients' ledgers say, and what was not summed."""
    planned: dict[str, Any] = next(
        (e["privacy"] for e in events if e["event"] == "started" and "privacy" in e), {}
    )
    notes = [e["notes"] for e in events if e["event"] in ("start", "round", "newcomers")]
    refused = [sum_ for note in notes for sum_ in note.get("refused_sums", ())]
    account = {key: value for key, value in planned.items() if key != "lines"} | dict(found)
    account["refused_sums"] = len(refused)
    account["withheld_classes"] = sum(note.get("withheld", 0) for note in notes)
    account["clusters"] = by_cluster(account.get("clients", {}), clusters)
    return account


def found_clusters(
    prepared: Prepared, state: Any, facts: Facts
) -> tuple[Clustering, PlantedTruth | None, tuple[str, ...]]:
    """The clusters in use, the planted groups where they are known, and the names of the classes."""
    algorithm = prepared.algorithm
    if not isinstance(algorithm, FindsClusters):
        name = prepared.experiment.algorithm.name
        raise InvalidInput(
            f"algorithm '{name}' has no clusters to show: use 'feddag' or another that clusters"
        )
    planted = facts.planted()
    truth = PlantedTruth(planted, facts.group_names()) if planted else None
    return algorithm.clustering(state), truth, prepared.problem.class_names


def write_clusters(prepared: Prepared, state: Any, facts: Facts, folder: Path) -> dict[str, Any]:
    """Write the page that says who is with whom and why; the clustering as plain values."""
    found = found_clusters(prepared, state, facts)
    try:
        return write_clustering_page(folder, *found)
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


def _confidence(driver: Driver, state: Any) -> dict[ClientId, tuple[float, int]]:
    """How sure each client's cluster is, and its second nearest one."""
    algorithm = driver.prepared.algorithm
    return confidences(algorithm.clustering(state)) if isinstance(algorithm, FindsClusters) else {}


def _headline(report: Mapping[str, Any]) -> dict[str, Any]:
    names = {"test": "before", "test_after": "after", "validation": "validation"}
    scores = {new: report[old] for old, new in names.items() if old in report}
    return {"round": report["round"], "asked": report["asked"], **scores}
