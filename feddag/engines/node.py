# SPDX-License-Identifier: Apache-2.0
"""A node's side of the distributed engine: its own samples, its own memory on its own disk, one client.

It knows the tasks of one method by their names, and answers nothing else.
"""

import contextlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from feddag.core import codec
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError, InvalidInput, InvalidMessage, cannot_write
from feddag.core.files import forget_sealed, read_sealed, sealed_labels, write_sealed
from feddag.core.params import Params
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask, Memory
from feddag.data.federation import Federation, Pool
from feddag.engines.perform import Site, perform, single_threaded
from feddag.engines.wire import HELLO, NOTHING, AnswerHead, Hello, Question, fits, read_problem, write_problem
from feddag.learning.devices import Computing
from feddag.models import Networks
from feddag.privacy.guard import Protection

SCORES = "scores.jsonl"  # beside the memory: the client's own results
RUNS_REMEMBERED = 3  # the memory of older runs is removed


class Node:
    """One client with its samples; answers one question after another."""

    def __init__(
        self,
        client: ClientId,
        federation: Federation,
        tasks: Mapping[str, ClientTask],
        model: str,
        memory: Path,
        backend: str = "auto",
        privacy: Protection | None = None,
        computing: Computing | None = None,
    ) -> None:
        if client not in federation.clients:
            known = ", ".join(federation.ids[:5])
            raise InvalidInput(f"client-id '{client}' is not a client of these data: they have {known} …")
        # Nobody else's samples are kept, also where the data are a simulation's.
        self.federation = replace(
            federation, clients={client: federation.clients[client]}, groups={}, newcomers=()
        )
        self.client, self.tasks, self.model, self.backend = client, tasks, model, backend
        self.privacy, self.computing = privacy, computing or Computing()
        self.memory = VersionedMemory(memory)
        self.scores = memory.with_name(SCORES)
        self._sites: dict[str, Site] = {}
        self._blas = ThreadpoolController()

    def answer(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The packed answer to a packed question; every fault is told in the answer."""
        question = codec.decode(Question, head)
        try:
            if question.task == HELLO:
                return self._introduce(question)
            return self._perform(question, body)
        except (FederationError, OSError) as error:
            lost = isinstance(error, _Lost)
            failed = AnswerHead(number=question.number, client=self.client, failure=str(error), lost=lost)
            return codec.encode(failed), b""

    def _introduce(self, question: Question) -> tuple[bytes, bytes]:
        examples = len(self.federation.clients[self.client].train)
        if self._hides_numbers:
            examples = min(examples, 1)  # whether there are any; how many is told with noise
        hello = Hello(
            client=self.client,
            problem=write_problem(self.federation.problem),
            examples=examples,
            model=self.model,
        )
        head = AnswerHead(number=question.number, client=self.client)
        return codec.encode(head), codec.encode(hello)

    def _perform(self, question: Question, body: bytes) -> tuple[bytes, bytes]:
        if question.client != self.client:
            raise InvalidInput(f"this node is client '{self.client}', the question is for another one")
        if question.model != self.model:
            raise InvalidInput(f"this node has model '{self.model}', the server has another one")
        if question.task not in self.tasks:
            raise InvalidInput(f"this node's method has no task '{question.task[:60]}'")
        task = self.tasks[question.task]
        request = codec.decode(task.request, body)
        before = self.memory.read(question.run, question.memory)
        exchange = Exchange(question.round, Seed(question.root, question.path))
        with single_threaded(), self._blas.limit(limits=1, user_api="blas"):
            answer, after = perform(self._site(question), task, request, self.client, exchange, before)
        head = AnswerHead(
            number=question.number,
            client=self.client,
            failure=answer.failure,
            seconds=answer.seconds,
            # What was computed tells how many samples there are: two epochs over n samples are 2n.
            samples=0 if self._hides_numbers else answer.samples,
            epochs=0.0 if self._hides_numbers else answer.epochs,
            memory=question.memory,
        )
        if answer.failure:
            return codec.encode(head), b""
        if task.sees_test:
            self._keep_scores(question, answer.reply)
        if _differs(before, after):
            self.memory.write(question.run, question.number, after)
            head = replace(head, memory=question.number if after else NOTHING)
        self.memory.prune(question.run, {question.memory, head.memory, *question.keep})
        return codec.encode(head), codec.encode(answer.reply)

    @property
    def _hides_numbers(self) -> bool:
        """Whether numbers of samples leave with noise only."""
        return self.privacy is not None and self.privacy.options.noisy

    def _keep_scores(self, question: Question, scores: Any) -> None:
        """Write down this client's own results, which the server may know only as part of a sum."""
        arrays = {name: v for name, v in codec.flatten(scores).items() if not name.endswith("#")}
        plain = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in arrays.items()}
        self.scores.parent.mkdir(parents=True, exist_ok=True)
        with self.scores.open("a") as file:
            file.write(json.dumps({"run": question.run, "round": question.round, **plain}) + "\n")

    def _site(self, question: Question) -> Site:
        """The samples in the terms of the run's problem, with the networks that fit it."""
        agreed = read_problem(question.problem) if question.problem else self.federation.problem
        key = repr(agreed)
        if key not in self._sites:
            federation = in_terms_of(self.federation, agreed)
            networks = Networks(self.model, agreed)
            self._sites = {key: Site(federation, networks, self.backend, self.privacy, self.computing)}
        return self._sites[key]


class _Lost(InvalidMessage):
    """A version of the memory that should be there is not."""


class VersionedMemory:
    """What a client remembers, in versions, one folder per run; written before the answer is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, run: str, version: str) -> dict[str, Params | np.ndarray]:
        """What the client remembered at a version."""
        if version == NOTHING:
            return {}
        try:
            return codec.decode(Memory, read_sealed(self._path(run, version), label=version)).unwrap()
        except InvalidMessage as error:
            raise _Lost("(memory)", "what this client remembered", f"nothing readable: {error}") from error

    def write(self, run: str, version: str, memory: Mapping[str, Params | np.ndarray]) -> None:
        """Keep a version; when this returns, a kill loses nothing."""
        if not memory:
            return
        path = self._path(run, version)
        try:
            if not path.parent.exists():
                self._forget_old_runs()
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        write_sealed(path, codec.encode(Memory.of(memory)), label=version)

    def prune(self, run: str, keep: Collection[str]) -> None:
        """Remove versions that nobody will come back to."""
        folder = self._path(run, "x").parent
        for version in sealed_labels(folder):
            if version not in keep:
                forget_sealed(folder / f"{version}.safetensors")

    def _path(self, run: str, version: str) -> Path:
        for name in (run, version):  # they come from the server: no way out of this folder
            if not name.isalnum() or not name.isascii() or len(name) > 64:
                raise InvalidMessage("(memory)", "a plain name", repr(name[:60]))
        return self.folder / run / f"{version}.safetensors"

    def _forget_old_runs(self) -> None:
        with contextlib.suppress(OSError):
            runs = sorted((f for f in self.folder.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime)
            for old in runs[: max(0, len(runs) - RUNS_REMEMBERED + 1)]:
                shutil.rmtree(old, ignore_errors=True)


def in_terms_of(federation: Federation, agreed: Problem) -> Federation:
    """The same samples with the classes and the scaling of the agreed problem."""
    if federation.problem == agreed:
        return federation
    if reason := fits(federation.problem, agreed):
        raise InvalidInput(f"this node cannot take part: {reason}")
    places = np.array([agreed.class_names.index(name) for name in federation.class_names], dtype=np.int64)
    return replace(
        federation,
        train=Pool(federation.train.x, places[federation.train.y]),
        test=Pool(federation.test.x, places[federation.test.y]),
        num_classes=agreed.num_classes,
        class_names=agreed.class_names,
        scaling=agreed.scaling,
    )


def _differs(before: Mapping[str, Params | np.ndarray], after: Mapping[str, Params | np.ndarray]) -> bool:
    return codec.digest(Memory.of(before)) != codec.digest(Memory.of(after))
