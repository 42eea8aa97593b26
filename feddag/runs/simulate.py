# SPDX-License-Identifier: Apache-2.0
"""The driver: start, rounds, evaluation, checkpoints. `run` and `resume` are the same loop.

folder = run(experiment)                 # runs/<algorithm>/<dataset>/<time>-<name>/
resume(folder)                           # after a kill at any instant: the same bits
"""

import json
import math
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from feddag.runs.checkpoint import Progress, latest_checkpoint, load_checkpoint, prune_checkpoints, save_checkpoint
from feddag.core.files import write_durably
from feddag.core import codec
from feddag.core.algorithm import Algorithm, Answer, Engine, Server
from feddag.core.deployment import Deployment
from feddag.core.errors import FederationError, Interrupted, InvalidInput
from feddag.core.params import state_tensors
from feddag.core.seeds import Seed
from feddag.core.task import ClientTask, Memory
from feddag.data.build import build_federation
from feddag.data.federation import Federation
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site, open_site
from feddag.engines.process import ProcessEngine
from feddag.experiment.settings import Experiment
from feddag.learning.backends import select_backend
from feddag.learning.evaluation import Evaluate, Evaluated, Scores, evaluate
from feddag.learning.prior import check_head
from feddag.core.host import describe_machine, uninterrupted
from feddag.core.files import lock_folder
from feddag.runs.saved_models import save_models
from feddag.reporting.tables.events import EventLog, metrics_csv, read_events
from feddag.reporting.tables.metrics import PROTOCOL, client_scores, summary
from feddag.reporting.pages.why import write_explanation

MOST_ON_A_PAGE = 1000  # clients; beyond, `feddag cluster` draws the page when it is wanted

Watch = Callable[[dict[str, Any]], None]  # sees every event, e.g. to draw a progress bar


@dataclass
class Prepared:
    """Everything a run needs, built and checked before anything is written."""

    experiment: Experiment
    federation: Federation
    site: Site
    algorithm: Algorithm
    clients: tuple[str, ...]
    trainable: tuple[str, ...]  # clients that hold training samples

    @property
    def state_class(self) -> type:
        """The message class of the algorithm's state."""
        return typing.get_type_hints(type(self.algorithm).start)["return"]


def prepare(experiment: Experiment) -> Prepared:
    """Build data, networks and algorithm; everything that can be wrong is found here."""
    federation = build_federation(
        experiment.data, experiment.partition, experiment.num_clients, Seed(experiment.seed)
    )
    clients = tuple(c for c in federation.ids if c not in federation.newcomers)
    trainable = tuple(c for c in clients if len(federation.clients[c].train))
    if not trainable:
        raise InvalidInput(f"none of the {len(clients)} clients holds a training sample: at least one must")
    experiment.cohort_size(len(trainable))
    site = open_site(federation, experiment.model)
    check_head(state_tensors(site.network("single")), experiment.training.prior_correction)
    return Prepared(experiment, federation, site, experiment.build_algorithm(), clients, trainable)


def run(
    experiment: Experiment,
    *,
    root: Path = Path("runs"),
    folder: Path | None = None,
    watch: Watch = lambda event: None,
) -> Path:
    """Run an experiment in a new folder; returns the folder."""
    if folder is not None and folder.exists():
        raise InvalidInput(f"the run folder {folder} exists: choose another, or use 'feddag resume {folder}'")
    prepared = prepare(experiment)
    folder = folder or _new_folder(root, experiment)
    try:
        (folder / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(f"the run folder {folder} cannot be made: {error.strerror}") from None
    write_durably(folder / "experiment.json", json.dumps(experiment.settings(), indent=1).encode())
    with lock_folder(folder):
        _drive(prepared, folder, watch)
    return folder


def resume(folder: Path, *, watch: Watch = lambda event: None) -> Path:
    """Go on with a run from its last valid checkpoint, to the same result as if never stopped."""
    if not (folder / "experiment.json").is_file():
        raise InvalidInput(f"{folder} is not a run folder: it has no experiment.json")
    prepared = prepare(Experiment.from_file(folder / "experiment.json"))
    (folder / "checkpoints").mkdir(exist_ok=True)
    with lock_folder(folder):
        _drive(prepared, folder, watch)
    return folder


def _new_folder(root: Path, experiment: Experiment) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    base = root / experiment.algorithm.name / experiment.data.name / f"{stamp}-{experiment.name}"
    candidates = (base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000)))
    return next(path for path in candidates if not path.exists())


def make_engine(prepared: Prepared) -> Engine:
    """The engine the experiment names."""
    config = prepared.experiment.engine
    if config.name == "inline":
        return InlineEngine(prepared.site)
    return ProcessEngine(prepared.site, prepared.experiment.model, config.workers)


def _drive(prepared: Prepared, folder: Path, watch: Watch) -> None:
    checkpoints = folder / "checkpoints"
    found, problems = latest_checkpoint(checkpoints, prepared.state_class)
    log = EventLog(folder / "events.jsonl", keep_bytes=found[0].log_bytes if found else 0)
    engine = make_engine(prepared)
    driver = Driver(prepared, engine, checkpoints, log, watch)
    try:
        driver.tell("resumed" if found else "started", **describe_run(prepared, folder))
        for problem in problems:
            driver.tell("warning", text=problem)
        if found:
            driver.progress, driver.state = found
            engine.memory.update({c: m.unwrap() for c, m in driver.progress.memory.items()})
        driver.go()
        finish(driver, folder)
    except KeyboardInterrupt:
        driver.checkpoint()
        saved = driver.progress.round if driver.state is not None else None
        where = f"after round {saved}" if saved is not None else "before the first checkpoint"
        raise Interrupted(f"stopped {where}; go on with: feddag resume {folder}") from None
    except FederationError:
        driver.checkpoint()
        raise
    finally:
        engine.close()
        log.close()


class Driver:
    """The loop over rounds. It owns no knowledge of any algorithm."""

    def __init__(
        self, prepared: Prepared, engine: Engine, checkpoints: Path, log: EventLog, watch: Watch
    ) -> None:
        self.prepared, self.engine, self.checkpoints, self.log, self.watch = (
            prepared,
            engine,
            checkpoints,
            log,
            watch,
        )
        self.experiment = prepared.experiment
        self.progress = Progress(round=0, log_bytes=0, memory={})
        self.state: Any = None
        self._saved_round = -1

    def go(self) -> None:
        """From where the run stands to the last round."""
        algorithm, rounds = self.prepared.algorithm, self.experiment.num_rounds
        if self.state is None:
            self.step(0, algorithm.start)
        else:
            self._saved_round = self.progress.round
        while self.progress.round < rounds:
            self.step(self.progress.round + 1, partial(algorithm.round, self.state))

    def step(self, round_: int, act: Callable[[Server], Any]) -> None:
        """One round (0: the start), its evaluation and checkpoint; nothing is kept of an unfinished one."""
        started = time.perf_counter()
        server = self.server(round_)
        state = act(server)
        memory = {c: Memory.of(m) for c, m in sorted(self.engine.memory.items()) if m}
        self.tell(
            "round" if round_ else "start",
            round=round_,
            cohort=list(server.cohort),
            digest=codec.digest(state),
            notes=server.notes,
            seconds=time.perf_counter() - started,
        )
        chosen = (self.progress.chosen_round, self.progress.chosen_accuracy)
        last, every = self.experiment.num_rounds, self.experiment.evaluation.every
        scored = round_ == last or (round_ > 0 and round_ % every == 0)
        if scored:
            report = self.evaluate(state, round_)
            accuracy = report["validation"]["balanced_accuracy"]
            if accuracy is not None and accuracy > chosen[1]:
                chosen = (round_, accuracy)
        self.progress = Progress(
            round=round_, log_bytes=0, memory=memory, chosen_round=chosen[0], chosen_accuracy=chosen[1]
        )
        self.state = state
        if scored or round_ % self.experiment.checkpoint_every == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the last finished round to the disk, unless it is there already."""
        if self.state is None or self._saved_round == self.progress.round:
            return
        with uninterrupted():
            self.progress = _replace(self.progress, log_bytes=self.log.sync())
            save_checkpoint(self.checkpoints, self.progress, self.state)
            self._saved_round = self.progress.round
            prune_checkpoints(self.checkpoints, keep=[self.progress.chosen_round])

    def server(self, round_: int, purpose: str = "round") -> Server:
        """What the algorithm sees in one round."""
        experiment, trainable = self.experiment, self.prepared.trainable
        seed = Seed(experiment.seed)
        generator = (seed / "cohort" / round_).numpy()
        size = experiment.cohort_size(len(trainable))
        cohort = trainable if not round_ else np.sort(generator.choice(trainable, size=size, replace=False))
        return Server(
            engine=self.engine,
            clients=trainable,
            cohort=tuple(str(c) for c in cohort),
            round=round_,
            seed=seed,
            network=self.prepared.site.network,
            num_classes=self.prepared.federation.num_classes,
            quorum=experiment.engine.quorum,
            deadline=experiment.engine.deadline or math.inf,
            purpose=purpose,
            on_answers=self.on_answers,
            # Seen, but not logged: how far a question is says nothing about the run.
            on_answer=lambda task, done, asked: self.watch(
                {"event": "answer", "task": task.name, "done": done, "asked": asked}
            ),
        )

    def on_answers(self, task: ClientTask, round_: int, answers: Mapping[str, Answer]) -> None:
        """Record one question: who failed and why, bytes in both directions, seconds."""
        self.tell(
            "exchange",
            round=round_,
            task=task.name,
            clients=len(answers),
            failures={c: a.failure for c, a in answers.items() if a.failure},
            bytes_down=sum(a.bytes_down for a in answers.values()),
            bytes_up=sum(a.bytes_up for a in answers.values()),
            client_seconds={c: round(a.seconds, 4) for c, a in answers.items()},
        )

    def evaluate(
        self,
        state: Any,
        round_: int,
        after_training: bool = False,
        label: str = "",
        clients: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Let every client score what it would use now."""
        started = time.perf_counter()
        shared: dict[tuple, Evaluate] = {}
        requests = {}
        for client in clients or self.prepared.clients:
            deployment = self.prepared.algorithm.deploy(state, client)
            request = Evaluate(
                deployment=deployment, local=self.experiment.training, after_training=after_training
            )
            requests[client] = shared.setdefault(_identity(deployment), request)
        replies = self.server(round_, "evaluation").ask(evaluate, requests, quorum=0.0)
        report: dict[str, Any] = {"round": round_, **_report(replies)}
        report["seconds"] = time.perf_counter() - started
        return self.tell(f"{label}evaluation", **report)

    def tell(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Write an event to the log and show it to whoever watches."""
        event = self.log.write(kind, **fields)
        self.watch(event)
        return event


def finish(driver: Driver, folder: Path) -> None:
    """Score the final and the validation-chosen round, and write result, metrics and models."""
    after = driver.experiment.evaluation.after_training
    final_round, chosen_round = driver.progress.round, driver.progress.chosen_round
    final = driver.evaluate(driver.state, final_round, after, label="final_")
    chosen = final if chosen_round == final_round else None
    if chosen_round >= 0 and chosen is None:
        progress, state = load_checkpoint(driver.checkpoints, chosen_round, driver.prepared.state_class)
        memory, driver.engine.memory = driver.engine.memory, {}
        driver.engine.memory.update({c: m.unwrap() for c, m in progress.memory.items()})
        chosen = driver.evaluate(state, chosen_round, after, label="chosen_")
        driver.engine.memory = memory
    newcomers = welcome(driver) if driver.prepared.federation.newcomers else None
    log = folder / "events.jsonl"
    driver.log.sync()
    save_models(folder / "models", driver.prepared, driver.state, driver.engine.memory)
    explain = getattr(driver.prepared.algorithm, "explain", None)
    if explain is not None and len(driver.prepared.clients) <= MOST_ON_A_PAGE:
        signatures = driver.state.signatures
        write_explanation(
            folder / "clustering", driver.prepared.federation, signatures, explain(driver.state)
        )
    exchanges = [e for e in read_events(log) if e["event"] == "exchange" and e["task"] != evaluate.name]
    result = {
        "algorithm": driver.experiment.algorithm.name,
        "rounds": final_round,
        "final": _headline(final),
        "chosen": _headline(chosen) if chosen else None,
        "newcomers": _headline(newcomers) if newcomers else None,
        "protocol": PROTOCOL,
        "state_digest": codec.digest(driver.state),
        "bytes_down": sum(e["bytes_down"] for e in exchanges),
        "bytes_up": sum(e["bytes_up"] for e in exchanges),
        "failures": sum(len(e["failures"]) for e in exchanges),
        "seconds": sum(e["seconds"] for e in read_events(log) if e["event"] in ("start", "round")),
        "source": vars(driver.prepared.federation.source),
    }
    write_durably(folder / "metrics.csv", metrics_csv(log).encode())
    write_durably(folder / "result.json", json.dumps(result, indent=1).encode())
    driver.watch({"event": "finished", "folder": str(folder), **result})


def welcome(driver: Driver) -> dict[str, Any]:
    """Held-out clients join after the last round and score what they are given."""
    newcomers = driver.prepared.federation.newcomers
    server = driver.server(driver.progress.round, "newcomers")
    state = driver.prepared.algorithm.onboard(driver.state, newcomers, server)
    driver.tell("newcomers", round=driver.progress.round, clients=list(newcomers), notes=server.notes)
    return driver.evaluate(state, driver.progress.round, True, "newcomers_", newcomers)


def describe_run(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """What a reader of the log must know: settings, data source, machine, versions."""
    federation = prepared.federation
    empty = [c for c in prepared.clients if c not in prepared.trainable]
    backend = prepared.experiment.training.backend
    shape = federation.input_shape
    return {
        "folder": str(folder),
        "experiment": prepared.experiment.settings(),
        "model": prepared.site.network.name,
        # For cross-entropy; other losses are computed by torch.
        "backend": {
            k: str(select_backend(backend, prepared.site.network(k), shape)) for k in ("single", "dual")
        },
        "source": vars(federation.source),
        "notes": dict(federation.notes),
        "clients": len(prepared.clients),
        "clients_without_samples": empty,
        "protocol": PROTOCOL,
        "machine": describe_machine(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _replace(progress: Progress, **changes: Any) -> Progress:
    return Progress(**{**vars(progress), **changes})


def _identity(deployment: Deployment) -> tuple:
    """Equal for deployments that are the same objects, so that they are sent once."""
    return tuple(tuple(map(id, v)) if k == "models" else v for k, v in vars(deployment).items())


def _report(replies: Mapping[str, Evaluated]) -> dict[str, Any]:
    """Scores of all clients and their summary, for every split that was scored."""
    report: dict[str, Any] = {}
    for split in ("test", "validation", "test_after", "validation_after"):
        scored: dict[str, Scores] = {
            c: getattr(r, split) for c, r in replies.items() if getattr(r, split) is not None
        }
        if scored:
            clients = {c: client_scores(s.total, s.correct, s.loss) for c, s in scored.items()}
            report[split] = summary(clients)
            report[f"{split}_clients"] = clients
    return report


def _headline(report: Mapping[str, Any]) -> dict[str, Any]:
    names = {"test": "before", "test_after": "after", "validation": "validation"}
    return {"round": report["round"]} | {new: report[old] for old, new in names.items() if old in report}
