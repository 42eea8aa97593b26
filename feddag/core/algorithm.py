# SPDX-License-Identifier: Apache-2.0
"""Algorithm and Server: an algorithm asks typed questions, an engine carries them.

algorithm.round(state, server) ── server.ask(task, {client: request}) ──► engine ──► task(request, client)
                               ◄────────── {client: reply}, sorted ─────────────────────────┘
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from torch import nn

from feddag.core.averaging import Mean, mean_reply
from feddag.core.contract import Known, NormLimit, accept
from feddag.core.deployment import Deployment, requests_at_round
from feddag.core.engine import Answer, Engine, Exchange
from feddag.core.errors import ClientFailed, InvalidMessage, QuorumMissed
from feddag.core.message import STRICT
from feddag.core.params import Params
from feddag.core.phases import part_bytes
from feddag.core.problem import Problem
from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask, Reply, Request

State = TypeVar("State")
T = TypeVar("T")


class NetworkFactory(Protocol):
    """Kind of network ("single", "dual", …) → module."""

    def __call__(self, kind: str) -> nn.Module:
        """The one module of this kind in this process, to be loaded with parameters before use."""
        ...

    def fresh(self, kind: str) -> nn.Module:
        """A newly built module, its weights drawn from torch's (seeded) global generator."""
        ...


class Algorithm(Protocol[State]):
    """A frozen dataclass of hyper-parameters whose methods ask clients typed questions."""

    tasks: ClassVar[tuple[ClientTask, ...]]

    def start(self, server: "Server") -> State:
        """The state before the first round."""
        ...

    def round(self, state: State, server: "Server") -> State:
        """One communication round: a new state from the old one and the cohort's replies."""
        ...

    def deploy(self, state: State, client: ClientId) -> Deployment:
        """What this client would use now."""
        ...

    def onboard(self, state: State, newcomers: tuple[ClientId, ...], server: "Server") -> State:
        """Take in clients that were not there before: afterwards `deploy` serves them too."""
        ...


@dataclass_transform(frozen_default=True)
def algorithm(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass of hyper-parameters with checked settings."""
    names = [task.name for task in getattr(cls, "tasks", ())]
    if len(set(names)) < len(names):
        raise TypeError(
            f"{cls.__name__}.tasks: two tasks have one name ({', '.join(names)}); nodes find them by it"
        )
    made = dataclass(frozen=True)(cls)
    made.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True)
class MeanQuestion:
    """What `ask_mean` was asked."""

    task: ClientTask
    requests: Mapping[ClientId, Any]
    groups: Mapping[ClientId, int] | None
    uniform: bool
    quorum: float | None

    def group(self, client: ClientId) -> int:
        """The group that a client's reply counts for."""
        return self.groups[client] if self.groups else 0


class Averaging(Protocol):
    """Another way to find means, for example one that hides single replies; see `feddag.privacy.sums`."""

    def __call__(self, server: "Server", asked: MeanQuestion) -> dict[int, Mean[Any]]:
        """The mean reply of each group, as `ask_mean` promises it."""
        ...


@dataclass
class Server:
    """What an algorithm has at hand in one round."""

    engine: Engine
    clients: tuple[ClientId, ...]
    cohort: tuple[ClientId, ...]
    round: int  # 0 is the start, rounds count from 1
    seed: Seed  # of the whole run
    network: NetworkFactory
    problem: Problem
    num_rounds: int = 1  # of the whole run, for schedules
    quorum: float = 1.0  # least share of the asked clients that must answer
    deadline: float = math.inf
    limit: NormLimit = field(default_factory=NormLimit)  # on the norm of updates
    purpose: str = "round"
    averaging: Averaging | None = None  # None: the server averages the replies itself
    on_answers: Callable[[ClientTask, int, Mapping[ClientId, Answer]], None] = lambda task, round_, answers: (
        None
    )
    on_answer: Callable[[ClientTask, int, int], None] = lambda task, done, asked: None
    notes: dict[str, Any] = field(default_factory=dict)
    questions: int = 0
    waited: float = 0.0  # seconds until clients had answered; the rest of a round is the server's own work

    def ask(
        self,
        task: ClientTask[Request, Reply],
        requests: Mapping[ClientId, Request],
        quorum: float | None = None,
        *,
        seed: Seed | None = None,
    ) -> dict[ClientId, Reply]:
        """Ask clients one question each; replies sorted by client id, failed clients left out.

        A reply that breaks the contract of its task is refused here: it counts as a failure of its client.
        `seed` belongs to questions that are parts of another one.
        """
        requests = requests_at_round(requests, self.round, self.num_rounds)
        if seed is None:
            seed = self.question_seed
            self.questions += 1
        done = itertools.count(1)
        progress = partial(self.on_answer, task)
        exchange = Exchange(
            self.round, seed, self.deadline, lambda client: progress(next(done), len(requests))
        )
        started = time.perf_counter()
        answers = self.engine.ask(task, requests, exchange) if requests else {}
        self.waited += time.perf_counter() - started
        answers = self._checked(task, requests, answers)
        self.on_answers(task, self.round, answers)
        replies = {client: a.reply for client, a in answers.items() if not a.failure}
        quorum = self.quorum if quorum is None else quorum
        # Somebody must answer, unless the algorithm says it can do without everyone (quorum = 0).
        needed = max(math.ceil(len(requests) * quorum - 1e-9), 1 if requests and quorum else 0)
        if len(replies) < needed:
            failures = [
                ClientFailed(c, task.name, self.round, a.failure) for c, a in answers.items() if a.failure
            ]
            missed = QuorumMissed(task.name, self.round, len(replies), needed, len(requests), failures)
            raise missed from next((a.error for a in answers.values() if a.error), None)
        return replies

    @property
    def question_seed(self) -> Seed:
        """Randomness of the next question."""
        # Keyed by the question's rank, not the task's name: batches then agree across algorithms.
        return self.seed / self.purpose / self.round / "question" / self.questions

    def _checked(
        self, task: ClientTask, requests: Mapping[ClientId, Any], answers: Mapping[ClientId, Answer]
    ) -> dict[ClientId, Answer]:
        """The answers sorted by client; a reply that breaks its contract becomes a failure."""
        checked: dict[ClientId, Answer] = {}
        known: dict[int, Known] = {}  # by identity: many clients share a request
        for client in sorted(requests):
            answer = answers.get(client, Answer(failure="there was no answer"))
            if not answer.failure:
                request = requests[client]
                if parts := part_bytes(request):
                    answer = replace(answer, parts_down=parts)
                if id(request) not in known:
                    known[id(request)] = Known(request, self.problem, self.network)
                try:
                    reply, changed = accept(answer.reply, task.reply, known[id(request)], self.limit)
                    if changed:
                        answer = replace(answer, reply=reply, remark="; ".join(changed))
                except InvalidMessage as error:
                    answer = replace(answer, reply=None, failure=str(error), error=error)
            checked[client] = answer
        return checked

    def ask_mean(
        self,
        task: ClientTask[Request, Reply],
        requests: Mapping[ClientId, Request],
        groups: Mapping[ClientId, int] | None = None,
        *,
        uniform: bool = False,
        quorum: float | None = None,
    ) -> dict[int, Mean[Reply]]:
        """Ask clients, and see only the mean reply of each group (without groups: of all, as group 0).

        The one averaging question: an engine may answer it without showing single replies. Clients count by
        their examples, or equally when `uniform`. A group that nobody answered for is left out.
        """
        asked = MeanQuestion(task, requests, groups, uniform, quorum)
        if self.averaging is not None and requests:
            now = requests_at_round(requests, self.round, self.num_rounds)
            return self.averaging(self, replace(asked, requests=now))
        return means_of(asked, self.ask(task, requests, quorum), uniform)

    def initial_params(self, network: str = "single", name: str | int = "model") -> Params:
        """Freshly initialised parameters; equal for equal names, whatever was drawn before."""
        with (self.seed / "initial" / network / name).ambient():
            return Params.from_module(self.network.fresh(network))

    def initial_models(self, number: int, network: str = "single", draw: int = 0) -> tuple[Params, ...]:
        """Differently initialised models; other ones for each draw. The very first is `initial_params()`."""
        names = range(draw * number, (draw + 1) * number)
        return tuple(self.initial_params(network, name or "model") for name in names)

    def spent(self, rounds: int) -> bool:
        """Whether this round is one of those that the start has spent, when all clients trained.

        Warm-up counts as rounds: a method that trains everybody `rounds` times at the start does nothing in
        its first `rounds` rounds. One round always remains.
        """
        return self.round <= min(rounds, self.num_rounds - 1)

    def note(self, **metrics: Any) -> None:
        """Record figures for the event log of this round."""
        self.notes.update(metrics)


def place_cohort(
    onboard: Callable[[State, tuple[ClientId, ...], Server], State],
    state: State,
    labels: Callable[[State], Mapping[ClientId, int]],
    server: Server,
) -> tuple[State, list[ClientId]]:
    """Onboard those of the cohort who have no cluster yet, because they could not be asked before.

    Returns the state after that, and the members of the cohort that have a cluster now.
    """
    unsigned = tuple(client for client in server.cohort if client not in labels(state))
    if unsigned:
        with contextlib.suppress(QuorumMissed):  # they may stay away: the others train all the same
            state = onboard(state, unsigned, server)
    known = labels(state)
    return state, [client for client in server.cohort if client in known]


def broadcast(request: Request, clients: Iterable[ClientId]) -> dict[ClientId, Request]:
    """The same request for every client: encoded once, shared by all."""
    return dict.fromkeys(clients, request)


def means_of(asked: MeanQuestion, replies: Mapping[ClientId, Any], uniform: bool) -> dict[int, Mean[Any]]:
    """The mean reply of each group, of replies that the server sees; none for a group without examples."""
    grouped: dict[int, dict[ClientId, Any]] = {}
    for client, reply in replies.items():
        grouped.setdefault(asked.group(client), {})[client] = reply
    means = {group: mean_reply(grouped[group], uniform) for group in sorted(grouped)}
    return {group: found for group, found in means.items() if found is not None}
