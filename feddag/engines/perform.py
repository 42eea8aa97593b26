# SPDX-License-Identifier: Apache-2.0
"""The one place where a task runs on a client, the same in every engine: seed, task, privacy, validation."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.host import num_cores
from feddag.core.params import Params
from feddag.core.task import Client, ClientId, ClientTask
from feddag.data.federation import Federation
from feddag.learning.backends import Backend, select_backend
from feddag.learning.devices import Computing
from feddag.learning.together import Cohort
from feddag.models import Networks
from feddag.privacy.guard import Guard, Protection

MOST_SCORES = 64


class KnownScores(dict[tuple, Any]):
    """The latest scores that were computed in this process; the oldest one makes room."""

    def __setitem__(self, key: tuple, value: Any) -> None:
        if len(self) >= MOST_SCORES:
            del self[next(iter(self))]
        super().__setitem__(key, value)


@dataclass(frozen=True)
class Site:
    """What the tasks of a simulation run on: everyone's samples, the networks, and who computes."""

    federation: Federation
    network: Networks
    backend: str = "auto"
    privacy: Protection | None = None  # None: everything leaves as it is
    computing: Computing = field(default_factory=Computing)  # where and how PyTorch computes
    known_scores: KnownScores = field(default_factory=KnownScores, compare=False)
    optimiser: str = "sgd"  # of the local training, for `backends`
    cohort: Cohort = field(default_factory=Cohort, compare=False)  # trains several clients at once

    def placed_network(self, kind: str) -> nn.Module:
        """The one module of this kind, told where it computes."""
        # The C++ kernels compute on the processor: who asks for them asks for it.
        return self.computing.place(self.network(kind), only_host=self.backend == "native")

    @property
    def num_workers(self) -> int:
        """How many processes share the work, where the settings do not say."""
        return num_cores() if self.backend == "native" else self.computing.num_workers

    @property
    def num_at_once(self) -> int:
        """How many clients train at once; the kernels train one."""
        return 1 if self.backend == "native" else self.computing.num_at_once

    def backends(self) -> dict[str, str]:
        """Who trains each kind of network with cross-entropy; other losses are computed by torch."""
        return {kind: str(self._backend(kind)) for kind in ("single", "dual")}

    def _backend(self, kind: str) -> Backend:
        shape = self.federation.input_shape
        return select_backend(self.backend, self.placed_network(kind), shape, optimiser=self.optimiser)


def open_site(
    federation: Federation,
    model: str,
    backend: str = "auto",
    privacy: Protection | None = None,
    computing: Computing | None = None,
) -> Site:
    """A federation with the networks that fit its samples and classes."""
    return Site(federation, Networks(model, federation.problem), backend, privacy, computing or Computing())


@contextmanager
def single_threaded() -> Iterator[None]:
    """Compute with one torch thread and without denormal numbers, then as before.

    Results of a convolution differ between one and two threads, so every engine computes with one, and
    products of denormal numbers are up to eighty times slower.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        # Restore torch's thread count and denormal handling.
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)


def client_at(
    site: Site,
    client_id: ClientId,
    exchange: Exchange,
    memory: Mapping[str, Params | np.ndarray],
    sees_test: bool,
    sees_validation: bool,
    guard: Guard | None = None,
    together: Callable[[Any], Params] | None = None,
) -> Client:
    """A client as a task sees it."""
    federation = site.federation.at(exchange.round)
    nothing = federation.examples(client_id).take(np.empty(0, dtype=np.int64))
    return Client(
        id=client_id,
        train=federation.examples(client_id),
        validation=federation.examples(client_id, "validation") if sees_validation else nothing,
        test=federation.examples(client_id, "test") if sees_test else nothing,
        network=site.placed_network,
        seed=exchange.client_seed(client_id),
        shared_seed=exchange.shared_seed,
        memory=dict(memory),
        backend=site.backend,
        known_scores=site.known_scores if sees_test else None,
        privacy=guard,
        together=together,
    )


def perform(
    site: Site,
    task: ClientTask,
    request: Any,
    client_id: ClientId,
    exchange: Exchange,
    memory: Mapping[str, Params | np.ndarray],
    together: Callable[[Any], Params] | None = None,
) -> tuple[Answer, dict[str, Params | np.ndarray]]:
    """Run one task for one client; its answer, and what the client remembers from now on.

    A fault of the client becomes an answer with the reason, and leaves the memory as it was.
    """
    started = time.perf_counter()
    guard = site.privacy.guard(client_id, task, exchange) if site.privacy is not None else None
    client = client_at(
        site, client_id, exchange, memory, task.sees_test, task.sees_validation, guard, together
    )
    try:
        with (client.seed / "ambient").ambient():
            reply = task(request, client)
        if guard is not None:  # nothing leaves before it stands in the ledger
            reply = guard.release(reply, client)
        codec.validate(reply)
    except Exception as error:
        reason = str(error) or type(error).__name__
        failure = (
            reason if type(error).__module__.startswith("feddag.") else f"{type(error).__name__}: {reason}"
        )
        return Answer(failure=failure, seconds=time.perf_counter() - started, error=error), dict(memory)
    answer = Answer(
        reply=reply,
        seconds=time.perf_counter() - started,
        samples=client.work.samples,
        epochs=client.work.samples / max(1, len(client.train)),
        bytes_up=codec.nbytes(reply),
        phases=dict(client.work.seconds),
    )
    return answer, dict(client.memory)
