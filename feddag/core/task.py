# SPDX-License-Identifier: Apache-2.0
"""Client tasks: named pure functions (request, client) → reply, the only thing that ever runs on a client."""

import time
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from torch import nn

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples
from feddag.core.message import check_declarations, is_message, message, public
from feddag.core.params import Params
from feddag.core.seeds import Seed

ClientId = str
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)


@dataclass
class Work:
    """How much a client has computed for one question: the one currency of all training."""

    samples: int = 0  # gradients of single samples: one epoch over n samples is n
    seconds: dict[str, float] = field(default_factory=dict)  # phase → time, where it is not the task's phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as that of another phase than the task's."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


class Guard(Protocol):
    """What stands between a client's samples and its reply; `feddag.privacy.guard` explains it."""

    @property
    def trains_noisily(self) -> bool:
        """Whether local training must hide single samples."""
        ...

    @property
    def samples_per_vector(self) -> float:
        """Classes with fewer samples per principal vector send none."""
        ...

    def subspaces(
        self,
        x: np.ndarray,
        client: "Client",
        *,
        view: str = "pixels",
        num_views: int = 1,
        sums: bool = False,
    ) -> Any:
        """Noisy principal vectors, or directions of sums; None where exact ones may leave."""
        ...

    def training(self, client: "Client", local: LocalTraining, part: str) -> Any:
        """Sampling rate, steps, clipping norm, deviation and noise of one protected training."""
        ...

    def release(self, reply: Any, client: "Client") -> Any:
        """The reply as it may leave."""
        ...


@dataclass(frozen=True)
class Client:
    """All a task can see. `validation` and `test` are empty unless the task is declared to see them."""

    id: ClientId
    train: Examples
    validation: Examples
    test: Examples
    network: Callable[[str], nn.Module]  # network("single"): one module per kind, to be loaded
    seed: Seed  # this client, this question
    shared_seed: Seed  # the same for all clients of the question (e.g. one sparsity mask)
    # Stays on the client between tasks: the one mutable thing.
    memory: MutableMapping[str, Params | np.ndarray] = field(default_factory=dict)
    backend: str = "auto"  # who computes here: PyTorch ("torch"), the C++ kernels ("native"), or the better
    # Scores that were computed at this place before; only the evaluation task of a simulation has them.
    known_scores: MutableMapping[tuple, Any] | None = None
    work: Work = field(default_factory=Work, compare=False)
    privacy: Guard | None = None  # None: everything leaves as it is
    # Takes a training (feddag.learning.sgd) and trains it with those of other clients; None: it runs alone.
    together: Callable[[Any], Params] | None = None

    def remembered(self, name: str, otherwise: Params) -> Params:
        """The parameters this client keeps under a name, or what stands for them the first time."""
        kept = self.memory.get(name)
        return kept if isinstance(kept, Params) else otherwise


@dataclass(frozen=True)
class ClientTask(Generic[Request, Reply_co]):
    """A function that clients run, with the message classes that drive decoding on both sides."""

    function: Callable[[Request, Client], Reply_co]
    request: type[Request]
    reply: type[Reply_co]
    sees_test: bool = False
    sees_validation: bool = False  # also true where `sees_test` is
    by_sgd: bool = False  # parameters in its reply come out of `sgd` and nothing else

    @property
    def name(self) -> str:
        """Short name for logs."""
        return self.function.__name__

    @property
    def address(self) -> str:
        """Where a worker process imports it from: `module:name`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def __call__(self, request: Request, client: Client) -> Reply_co:
        """Run the function itself, as tests and debuggers do."""
        return self.function(request, client)


def client_task(function: Callable[[Request, Client], Reply]) -> ClientTask[Request, Reply]:
    """Declare a task; its annotations name the request and reply messages."""
    return _declare(function)


def validation_task(function: Callable[[Request, Client], Reply]) -> ClientTask[Request, Reply]:
    """Declare a task that may see validation samples, to say which model suits them; never test samples."""
    return _declare(function, sees_validation=True)


def sgd_task(function: Callable[[Request, Client], Reply]) -> ClientTask[Request, Reply]:
    """Declare a task whose trained parameters come out of `sgd` alone: noisy gradients protect them."""
    return _declare(function, by_sgd=True)


def evaluation_task(function: Callable[[Request, Client], Reply]) -> ClientTask[Request, Reply]:
    """Declare the task that may see held-out data; there is one in the whole code base."""
    return _declare(function, sees_test=True, sees_validation=True)


def _declare(function: Callable[[Request, Client], Reply], **flags: bool) -> ClientTask[Request, Reply]:
    hints = typing.get_type_hints(function)
    kinds = [hint for name, hint in hints.items() if name != "return"]
    if (
        len(kinds) != 2
        or kinds[1] is not Client
        or not is_message(kinds[0])
        or not is_message(hints.get("return"))
    ):
        raise TypeError(f"task {function.__qualname__} must be (request: message, client: Client) -> message")
    check_declarations(kinds[0])
    check_declarations(hints["return"])
    return ClientTask(function, kinds[0], hints["return"], **flags)


def load_task(address: str) -> ClientTask[Any, Any]:
    """Import a task by its address `module:name`."""
    module, _, name = address.partition(":")
    task = getattr(import_module(module), name, None) if "." not in name and "<" not in name else None
    if not isinstance(task, ClientTask):
        raise InvalidInput(
            f"client task '{address}' cannot be imported: define it at the top level of a module"
        )
    return task


# -- memory as a message, so that checkpoints and worker processes can carry it -----------------------------


@message
class Memory:
    """What one client remembers."""

    params: dict[str, Params] = public()
    arrays: dict[str, np.ndarray] = public()

    @classmethod
    def of(cls, memory: Mapping[str, Params | np.ndarray]) -> "Memory":
        """Wrap a client's memory."""
        return cls(
            params={k: v for k, v in sorted(memory.items()) if isinstance(v, Params)},
            arrays={k: v for k, v in sorted(memory.items()) if isinstance(v, np.ndarray)},
        )

    def unwrap(self) -> dict[str, Params | np.ndarray]:
        """The memory as a client sees it."""
        return {**self.params, **self.arrays}
