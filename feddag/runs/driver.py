# SPDX-License-Identifier: Apache-2.0
"""The loop over rounds: start, newcomers, rounds, evaluation, checkpoints.

The driver is a server: it knows the problem, and clients only through what they answer. It imports nothing
of `feddag.data`, and has no knowledge of any algorithm.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from feddag.core import codec
from feddag.core.algorithm import Server
from feddag.core.deployment import Deployment
from feddag.core.distinct import Distinct
from feddag.core.engine import Answer, Engine, Presence
from feddag.core.host import uninterrupted
from feddag.core.params import Params
from feddag.core.phases import spent
from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask
from feddag.learning.evaluation import Evaluate, Evaluated, Scores, evaluate
from feddag.learning.hints import diverged, left_out, stalled
from feddag.privacy.sums import averaging_for
from feddag.reporting.tables.metrics import client_scores, summary
from feddag.runs.assignment import labels_of
from feddag.runs.checkpoint import Progress, label_of, prune_checkpoints, save_checkpoint
from feddag.runs.cohort import drawn, fixed_labels, too_small
from feddag.runs.events import EventLog, LogPrefix
from feddag.runs.lifecycle import Lifecycle, Standing
from feddag.runs.prepare import Facts, Prepared
from feddag.runs.summed import summed
from feddag.runs.thinned import thinned_report, thinned_sum

Watch = Callable[[dict[str, Any]], None]  # sees every event, for example to draw a progress bar
SPLITS = ("test", "validation", "test_after", "validation_after")


class Driver:
    """Runs the rounds of one experiment on one engine."""

    def __init__(
        self,
        prepared: Prepared,
        engine: Engine,
        presence: Presence,
        checkpoints: Path,
        log: EventLog,
        watch: Watch,
        facts: Facts,
    ) -> None:
        self.prepared, self.engine, self.presence = prepared, engine, presence
        self.checkpoints, self.log, self.watch = checkpoints, log, watch
        self.experiment, self.seed = prepared.experiment, Seed(prepared.experiment.seed)
        self.progress = Progress(round=-1, experiment=self.experiment.digest, data=facts.digest())
        self.state: Any = None
        self.facts = facts
        self.lifecycle = Lifecycle(self)
        self._losses: list[float] = []  # of the evaluations in this process
        self._diverged = False  # whether that was said
        self._training: tuple[tuple[ClientId, ...], list[ClientId]] = ((), [])
        self.saved_round = -1  # the newest round that is on the disk
        self._between_rounds = True  # whether the clients remember what they did when the last round ended

    def continue_from(self, progress: Progress, state: Any) -> None:
        """Go on from a checkpoint; the engine has restored the memories that belong to it."""
        self.progress, self.state, self.saved_round = progress, state, progress.round

    def run_rounds(self) -> None:
        """From where the run stands to the last round."""
        while self.progress.round < self.experiment.num_rounds:
            self.run_round(self.progress.round + 1)

    def run_round(self, round_: int) -> None:
        """One round (0: the start), its evaluation and checkpoint; an unfinished round leaves no trace."""
        started = time.perf_counter()
        self._between_rounds = False
        now = Standing(self.state, self.progress)
        if round_:
            now = self.lifecycle.before_round(round_, now)
        clients = self.training(round_)
        if round_:
            clients = [c for c in clients if c in now.met]
        server = self.server(round_, clients, state=now.state)
        if not round_:
            now = now.with_state(self.prepared.algorithm.start(server)).noting(known=server.clients)
            self.lifecycle.after_start(now)
        elif server.cohort:  # without anyone there, nothing changes
            now = now.with_state(self.prepared.algorithm.round(now.state, server))
        state = now.state
        self.record(
            "round" if round_ else "start",
            round=round_,
            cohort=list(server.cohort),
            digest=codec.digest(state),
            notes=server.notes,
            waited=server.waited,
            seconds=time.perf_counter() - started,
        )
        if hint := left_out(round_, server.notes):
            self.record("warning", text=hint)
        self.lifecycle.record_round(round_, now)
        progress = replace(now.progress, round=round_)
        last, every = self.experiment.num_rounds, self.experiment.evaluation.every
        scored = round_ == last or (round_ > 0 and round_ % every == 0)
        if scored:
            report = self.evaluate(state, round_)
            self.warn_if_stalled(report["test"]["loss"])
            accuracy = report["validation"]["balanced_accuracy"]
            if accuracy is not None and accuracy > progress.chosen_accuracy:
                progress = replace(progress, chosen_round=round_, chosen_accuracy=accuracy)
        self.progress, self.state, self._between_rounds = progress, state, True
        if scored or round_ % self.experiment.checkpoint_every == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the last finished round to the disk, unless it is there already.

        In the middle of a round nothing is written: log and memories have gone on, and the checkpoint before
        is valid.
        """
        if self.state is None or self.saved_round == self.progress.round or not self._between_rounds:
            return
        with uninterrupted():
            prefix: LogPrefix = self.log.sync()
            self.progress = replace(self.progress, log_bytes=prefix.bytes, log_sha256=prefix.sha256)
            # Memories first: a checkpoint without its memories would be worthless.
            self.engine.save_memories(label_of(self.progress.round))
            save_checkpoint(self.checkpoints, self.progress, self.state)
            self.saved_round = self.progress.round
            self.engine.prune_memories(prune_checkpoints(self.checkpoints, [self.progress.chosen_round]))

    def training(self, round_: int) -> list[ClientId]:
        """Clients that are there in a round and have something to train on."""
        present = self.presence.present(round_)
        if self._training[0] is not present:  # the same clients are there in most rounds
            self._training = present, [client for client in present if self.presence.trains(client)]
        return self._training[1]

    def server(
        self, round_: int, clients: list[ClientId], purpose: str = "round", state: Any = None
    ) -> Server:
        """What the algorithm sees in one round; `state` says who is in which cluster, where that is known."""
        experiment, seed = self.experiment, self.seed
        cohort, refused = tuple(clients), []
        if round_ and clients:
            labels = fixed_labels(state) if experiment.privacy.masks else {}
            cohort = drawn(experiment, seed, round_, clients, labels)
            refused = too_small(experiment, clients, labels)
        return Server(
            engine=self.engine,
            clients=tuple(clients),
            cohort=cohort,
            round=round_,
            seed=seed,
            network=self.prepared.network,
            problem=self.prepared.problem,
            num_rounds=experiment.num_rounds,
            quorum=experiment.engine.quorum,
            deadline=experiment.engine.deadline or math.inf,
            limit=experiment.engine.norm_limit,
            purpose=purpose,
            averaging=averaging_for(experiment.privacy),
            notes={"refused_sums": refused} if refused else {},
            on_answers=self.record_exchange,
            # Seen, but not logged: how far a question is says nothing about the run.
            on_answer=lambda task, done, asked: self.watch(
                {"event": "answer", "task": task.name, "done": done, "asked": asked}
            ),
        )

    def evaluate(
        self,
        state: Any,
        round_: int,
        after_training: bool = False,
        label: str = "",
        clients: tuple[ClientId, ...] = (),
    ) -> dict[str, Any]:
        """Let every client score what it would use now."""
        started = time.perf_counter()
        shared: dict[tuple, Evaluate] = {}
        models = Distinct[Params]()
        requests = {}
        for client in clients or self.presence.present(round_):
            deployment = self.prepared.algorithm.deploy(state, client)
            request = Evaluate(
                deployment=deployment, local=self.experiment.training, after_training=after_training
            )
            requests[client] = shared.setdefault(_identity(deployment, models), request)
        replies = self.server(round_, [], "evaluation").ask(evaluate, requests, quorum=0.0)
        uses = {client: reply.model for client, reply in replies.items() if reply.model >= 0}
        scores = _report(replies)
        if self.experiment.evaluation.scores == "clusters":
            scores, uses = self._report_sums(state, replies), {}
        report = {"round": round_, "asked": len(requests), **scores, "uses": uses}
        report["unscored"] = sorted(set(requests) - set(replies))
        report["seconds"] = time.perf_counter() - started
        self.record(f"{label}evaluation", **thinned_report(report, self.seed))
        return report

    def _report_sums(self, state: Any, replies: Mapping[ClientId, Evaluated]) -> dict[str, Any]:
        """Only sums over clusters are kept; the clients' own numbers are forgotten here."""
        report = _report(summed(replies, labels_of(self.prepared.algorithm, state)))
        for split in (split for split in SPLITS if split in report):
            report[split]["clients"] = len(replies) if report[split]["clients"] else 0
        return report

    def warn_if_stalled(self, loss: float | None) -> None:
        """Give a hint once if the first evaluations show no learning."""
        self._losses += [] if loss is None else [loss]
        hint = stalled(self._losses, self.prepared.problem.num_classes)
        if hint:
            self.record("warning", text=hint)

    def record_exchange(self, task: ClientTask, round_: int, answers: Mapping[ClientId, Answer]) -> None:
        """Record one question: who failed and why, bytes in both directions, seconds."""
        clipped = {c: a.remark for c, a in answers.items() if a.remark}
        failures = {c: a.failure for c, a in answers.items() if a.failure}
        self.record(
            "exchange",
            round=round_,
            task=task.name,
            clients=len(answers),
            failures=failures,
            **({"clipped": clipped} if clipped else {}),
            samples=sum(a.samples for a in answers.values()),
            epochs=sum(a.epochs for a in answers.values()),
            bytes_down=sum(a.bytes_down for a in answers.values()),
            bytes_up=sum(a.bytes_up for a in answers.values()),
            client_seconds=thinned_sum({c: round(a.seconds, 4) for c, a in answers.items()}, self.seed),
            phases=spent(task, answers),
        )
        hint = "" if self._diverged else diverged(list(failures.values()), len(answers))
        if hint:
            self._diverged = True  # once is enough
            self.record("warning", text=hint)

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Write an event to the log and show it to whoever watches."""
        event = self.log.write(kind, **fields)
        self.watch(event)
        return event


def _identity(deployment: Deployment, models: Distinct[Params]) -> tuple:
    """Equal for deployments that hold the same objects, so that they are sent once."""
    numbers = tuple(models.number(model) for model in deployment.models)
    return (numbers, *(value for name, value in vars(deployment).items() if name != "models"))


def _report(replies: Mapping[ClientId, Evaluated]) -> dict[str, Any]:
    """Scores of all clients and their summary, for every split that was scored."""
    report: dict[str, Any] = {}
    for split in SPLITS:
        scored: dict[ClientId, Scores] = {
            c: getattr(r, split) for c, r in replies.items() if getattr(r, split) is not None
        }
        if scored or split in ("test", "validation"):
            clients = {c: client_scores(s.total, s.correct, s.loss) for c, s in scored.items()}
            for client, share in _proportional(replies, split).items():
                if (found := clients[client]) is not None:
                    found["proportional_accuracy"] = share
            report[split] = summary(clients)
            report[f"{split}_clients"] = clients
    return report


def _proportional(replies: Mapping[ClientId, Evaluated], split: str) -> dict[ClientId, float]:
    """The accuracy in each client's own label proportions, where it was measured."""
    shares = {c: getattr(r, f"{split}_proportional", -1.0) for c, r in replies.items()}
    return {client: share for client, share in shares.items() if share >= 0}
