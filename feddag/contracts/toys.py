# SPDX-License-Identifier: Apache-2.0
"""The toy federation all contracts are tested on, and a way to play a method on it.

A new algorithm is covered as soon as it stands in the table; only if its defaults make no sense on eight
clients with some dozens of samples each does it need a line in SETTINGS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from feddag.core import codec
from feddag.core.algorithm import Algorithm, Server
from feddag.core.engine import Answer, Engine, Exchange
from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask, Memory
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import Evaluate, evaluate
from feddag.runs.simulate import Simulation, build

SETTINGS: dict[str, dict[str, Any]] = {
    "feddag": {"clustering": {"num_clusters": 2}, "signature": {"vectors": 1}},
    "perfedavg": {"beta": 0.05},
    "fedmix": {"group_size": 5, "pool_size": 20},
    "fedbr": {"pseudo_size": 8},
    "ifca": {"initial_draws": 3},
    "fedrc": {"num_clusters": 2},
    "pacfl": {"num_clusters": 2, "vectors": 1},
    "cfl": {"eps1": 1e9, "eps2": 0.0, "min_rounds": 0, "min_seen": 0.5},  # splits as soon as it may
    "cfl_gp": {"num_clusters": 2, "period": 1, "clustering_rounds": 2},
    "feddrift": {"period": 1, "delta": 0.0},  # every growth of a loss opens a cluster
    "fedgwc": {"epsilon": 1.0, "gamma": 4.0},  # settled as soon as it has been patient
}
TRAINING = {"local_epochs": 2, "batch_size": 16, "lr": 0.1}
COHORT = 3


def experiment(name: str, settings: Mapping[str, Any] | None = None, **changes: Any) -> Experiment:
    """Two planted mixtures, four classes, eight clients of whom two join later."""
    options = SETTINGS.get(name, {}) if settings is None else settings
    return Experiment.from_settings(
        {
            "data": {
                "name": "synthetic",
                "synthetic": {"groups": 2, "dimensions": 6, "train": 640, "test": 80},
            },
            "partition": {"newcomers": 0.25, "quantity": {"alpha": 4.0, "min_samples": 12}},
            "num_clients": 8,
            "model": "mlp",
            "algorithm": {"name": name, **options},
            "training": TRAINING,
            "num_rounds": 4,
            "fraction_train": 0.5,
            "engine": "inline",
            "evaluation": {"every": 2},
        }
        | changes
    )


@cache
def toy_site() -> Site:
    """The samples and networks all methods share."""
    return build(experiment("fedavg")).site


def toy_server(site: Site, engine: Engine | None = None, **changes: Any) -> Server:
    """What an algorithm sees: everybody is there and takes part, unless `changes` say otherwise."""
    clients = changes.pop("clients", site.federation.ids)
    fields = {"clients": clients, "cohort": clients, "round": 0, "seed": Seed(0), "network": site.network}
    fields |= {"engine": engine or InlineEngine(site), "problem": site.federation.problem}
    return Server(**(fields | changes))


def toy(name: str, settings: Mapping[str, Any] | None = None, **changes: Any) -> Simulation:
    """A method, ready to run on the toy federation."""
    return build(experiment(name, settings, **changes))


@dataclass
class Asked:
    """One question that was carried."""

    round: int
    purpose: str
    task: str
    answers: dict[ClientId, Answer]


@dataclass
class Trace:
    """All that could be seen of a method while it ran."""

    states: list[Any] = field(default_factory=list)  # start, after each round, after onboarding
    digests: list[str] = field(default_factory=list)  # of each state and all memories then
    asked: list[Asked] = field(default_factory=list)
    scores: dict[str, Any] = field(default_factory=dict)  # client → Scores on its test samples
    notes: list[dict[str, Any]] = field(default_factory=list)

    def accuracy(self, clients: tuple[str, ...]) -> float:
        """Share of right predictions over the clients' test samples."""
        right = sum(int(self.scores[c].correct.sum()) for c in clients)
        return right / sum(int(self.scores[c].total.sum()) for c in clients)


def play(
    prepared: Simulation,
    engine: Any = None,  # an Engine that shows what its clients remember
    *,
    rounds: int = 2,
    cohort: Callable[[int], tuple[str, ...]] | None = None,
    quorum: float = 0.5,
) -> Trace:
    """Start, some rounds, newcomers, evaluation; with a new inline engine if none is given."""
    engine = engine or InlineEngine(prepared.site)
    engine.memories.of.clear()
    torch.set_num_threads(1)  # averages too are computed as in a run
    torch.set_flush_denormal(True)
    algorithm: Algorithm = prepared.algorithm
    trace = Trace()

    def server(round_: int, purpose: str = "round") -> Server:
        members = prepared.trainable
        if round_ and cohort is None:
            drawn = (Seed(5) / "cohort" / round_).numpy().permutation(members)[:COHORT]
            members = tuple(sorted(map(str, drawn)))
        elif round_ and cohort is not None:
            members = cohort(round_)

        def record(task: ClientTask, number: int, answers: Mapping[ClientId, Answer]) -> None:
            trace.asked.append(Asked(number, purpose, task.name, dict(answers)))

        made = toy_server(
            prepared.site,
            engine,
            clients=prepared.trainable,
            cohort=members,
            round=round_,
            seed=Seed(prepared.experiment.seed),
            quorum=quorum,
            purpose=purpose,
            on_answers=record,
        )
        trace.notes.append(made.notes)
        return made

    def keep(state: Any) -> Any:
        memories = [codec.digest(Memory.of(m)) for _, m in sorted(engine.memories.of.items()) if m]
        trace.states.append(state)
        trace.digests.append(" ".join([codec.digest(state), *memories]))
        return state

    state = keep(algorithm.start(server(0)))
    for round_ in range(1, rounds + 1):
        state = keep(algorithm.round(state, server(round_)))
    newcomers = prepared.federation.newcomers
    if newcomers:
        state = keep(algorithm.onboard(state, newcomers, server(rounds, "newcomers")))
    requests = {
        client: Evaluate(deployment=algorithm.deploy(state, client), local=prepared.experiment.training)
        for client in (*prepared.clients, *newcomers)
    }
    replies = server(rounds, "evaluation").ask(evaluate, requests, quorum=1.0)
    trace.scores = {client: reply.test for client, reply in replies.items()}
    return trace


@cache
def reference(name: str) -> Trace:
    """The method's trace on the inline engine."""
    return play(toy(name))


@dataclass
class Around:
    """An engine around another one; subclasses look at, or spoil, what passes."""

    inner: Engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Pass the question on."""
        return self.inner.ask(task, requests, exchange)


@dataclass
class PowerCut(Around):
    """One client answers nothing in the given rounds."""

    victim: str
    rounds: tuple[int, ...]

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """Pass the question on to everybody but the victim."""
        served = dict(requests)
        cut = exchange.round in self.rounds and not task.sees_test and served.pop(self.victim, None)
        answers = dict(super().ask(task, served, exchange))
        return answers | ({self.victim: Answer(failure="power cut")} if cut else {})


def arrays_of(memory: Mapping[str, Any]) -> str:
    """Digest of a client's memory."""
    return codec.digest(Memory.of(memory))
