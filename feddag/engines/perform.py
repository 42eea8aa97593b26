# SPDX-License-Identifier: Apache-2.0
"""The one place where a task runs on a client: seed, task, validation, whatever engine carries it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feddag.core import codec
from feddag.core.algorithm import Answer, Exchange
from feddag.core.params import Params
from feddag.core.task import Client, ClientId, ClientTask
from feddag.data.federation import Federation
from feddag.models import Networks

Memories = dict[ClientId, dict[str, Params | np.ndarray]]


@dataclass(frozen=True)
class Site:
    """What tasks run on: everyone's samples and the networks."""

    federation: Federation
    network: Networks


def open_site(federation: Federation, model: str) -> Site:
    """A federation with the networks that fit its samples and classes."""
    integer_codes = federation.train.x.dtype.kind in "iu" and federation.scaling.unit == 1.0
    return Site(federation, Networks(model, federation.input_shape, federation.num_classes, integer_codes))


def one_thread() -> int:
    """Compute with one thread and without denormal numbers; returns the former number of threads.

    Results of a convolution differ between one and two threads, so every engine computes with one, and
    products of denormals are up to eighty times slower.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return threads


def as_before(threads: int) -> None:
    """Compute with so many threads again, and with denormal numbers, as torch does by default."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def perform(
    site: Site,
    task: ClientTask,
    request: Any,
    client_id: ClientId,
    exchange: Exchange,
    memory: Mapping[str, Params | np.ndarray],
) -> tuple[Answer, dict[str, Params | np.ndarray]]:
    """Run one task for one client; its answer, and what the client remembers from now on.

    A fault of the client becomes an answer with the reason, and leaves the memory as it was.
    """
    started = time.perf_counter()
    federation = site.federation
    nothing = federation.examples(client_id).take(np.empty(0, dtype=np.int64))
    seed = exchange.client_seed(client_id)
    client = Client(
        id=client_id,
        train=federation.examples(client_id),
        validation=federation.examples(client_id, "validation") if task.sees_test else nothing,
        test=federation.examples(client_id, "test") if task.sees_test else nothing,
        network=site.network,
        seed=seed,
        shared_seed=exchange.shared_seed,
        memory=dict(memory),
    )
    try:
        with (seed / "ambient").ambient():
            reply = task(request, client)
        codec.validate(reply)
    except Exception as error:
        reason = str(error) or type(error).__name__
        failure = (
            reason if type(error).__module__.startswith("feddag.") else f"{type(error).__name__}: {reason}"
        )
        return Answer(failure=failure, seconds=time.perf_counter() - started, error=error), dict(memory)
    answer = Answer(reply=reply, seconds=time.perf_counter() - started, bytes_up=codec.nbytes(reply))
    return answer, dict(client.memory)
