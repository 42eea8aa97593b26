# SPDX-License-Identifier: Apache-2.0
"""A federation small enough to follow by hand, and a loop of rounds without files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from feddag.core import codec
from feddag.core.algorithm import Server
from feddag.core.deployment import LocalTraining
from feddag.core.engine import Answer
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.data.federation import Federation, Pool, Share, Source
from feddag.engines.inline import InlineEngine
from feddag.engines.perform import Site, open_site
from feddag.learning.evaluation import score, serve
from tests.support.toys import toy_server

LOCAL = LocalTraining(local_epochs=2, batch_size=8, lr=0.1, momentum=0.5, weight_decay=0.0)
SETTINGS = codec.nbytes(LOCAL)  # bytes of the training settings in a question


def two_groups(clients: int = 6, samples: int = 24, flip: bool = True, seed: int = 0) -> Federation:
    """Two Gaussian classes; every second client means the opposite by its labels (if `flip`)."""
    generator = np.random.default_rng(seed)
    n = clients * samples
    y = np.tile([0, 1], n // 2).astype(np.int64)
    centres = np.array([[2.0, 0.0, 1.0, 0.0], [-2.0, 0.0, 1.0, 0.0]])
    x = (centres[y] + generator.normal(scale=0.5, size=(n, 4))).astype(np.float32)
    shares = {}
    for i in range(clients):
        rows = np.arange(i * samples, (i + 1) * samples)
        relabel = np.array([1, 0]) if flip and i % 2 else None
        shares[f"c{i}"] = Share(train=rows[: samples - 8], test=rows[samples - 8 :], relabel=relabel)
    groups = {f"c{i}": i % 2 for i in range(clients)}
    return Federation(
        clients=shares,
        train=Pool(x, y),
        test=Pool(x, y),
        num_classes=2,
        source=Source("toy", "generated"),
        groups=groups,
    )


def four_groups(clients: int = 12, samples: int = 24) -> Federation:
    """`two_groups` twice: clients 2, 3, 6, 7, … see the first two features exchanged."""
    federation = two_groups(clients, samples)
    x = federation.train.x.copy()
    for i in range(clients):
        rows = slice(i * samples, (i + 1) * samples)
        x[rows] = x[rows][:, [1, 0, 2, 3]] if i % 4 >= 2 else x[rows]
    pool = Pool(x, federation.train.y)
    clients_ = {f"c{i:02d}": federation.clients[f"c{i}"] for i in range(clients)}
    groups = {f"c{i:02d}": i % 4 for i in range(clients)}
    return Federation(
        clients=clients_, train=pool, test=pool, num_classes=2, source=federation.source, groups=groups
    )


def with_newcomers(federation: Federation, *newcomers: str) -> Federation:
    """The same clients, some of whom come later."""
    return Federation(**{**vars(federation), "newcomers": newcomers})


class Toy:
    """A run in memory: `play` rounds of an algorithm, `accuracy` of what it deploys."""

    def __init__(self, federation: Federation, fraction: float = 1.0, seed: int = 1) -> None:
        self.federation, self.fraction, self.seed = federation, fraction, Seed(seed)
        self.site: Site = open_site(federation, "mlp")
        self.engine = InlineEngine(self.site)
        self.clients = tuple(c for c in federation.ids if c not in federation.newcomers)
        self.traffic: list[tuple[str, int, int]] = []  # task, bytes down, bytes up
        self.notes: list[dict[str, Any]] = []

    def server(self, round_: int, purpose: str = "round") -> Server:
        """What an algorithm sees in one round."""
        size = max(1, int(self.fraction * len(self.clients)))
        chosen = (self.seed / "cohort" / round_).numpy().choice(self.clients, size=size, replace=False)
        return toy_server(
            self.site,
            self.engine,
            clients=self.clients,
            cohort=tuple(sorted(map(str, chosen))) if round_ else self.clients,
            round=round_,
            seed=self.seed,
            purpose=purpose,
            on_answers=lambda task, round_, answers: self.traffic.append(
                (
                    task.name,
                    sum(a.bytes_down for a in answers.values()),
                    sum(a.bytes_up for a in answers.values()),
                )
            ),
        )

    def play(self, algorithm: Any, rounds: int) -> Any:
        """The state after the start and so many rounds."""
        state = None
        for round_ in range(rounds + 1):
            server = self.server(round_)
            state = algorithm.start(server) if state is None else algorithm.round(state, server)
            self.notes.append(server.notes)
        return state

    def client(self, name: str) -> Client:
        """A client that may see its held-out samples."""
        nothing = self.federation.examples(name, "validation")
        return Client(
            id=name,
            train=self.federation.examples(name),
            validation=nothing,
            test=self.federation.examples(name, "test"),
            network=self.site.network,
            seed=self.seed / name,
            shared_seed=self.seed / "shared",
            memory=self.engine.memories.of.get(name, {}),
        )

    def accuracy(self, algorithm: Any, state: Any, name: str) -> float:
        """Share of right predictions of what a client would use."""
        client = self.client(name)
        scores = score(client, serve(client, algorithm.deploy(state, name)), client.test)
        return float(scores.correct.sum() / scores.total.sum())


class FailingEngine:
    """An engine in which the named clients never answer."""

    def __init__(self, engine: InlineEngine, failing: set[str]) -> None:
        self.engine, self.failing, self.memories = engine, failing, engine.memories

    def ask(self, task: Any, requests: Mapping[str, Any], exchange: Any) -> Mapping[str, Any]:
        asked = {c: r for c, r in requests.items() if c not in self.failing}
        answers = dict(self.engine.ask(task, asked, exchange))
        return answers | {c: Answer(failure="no answer") for c in requests if c in self.failing}

    def close(self) -> None:
        self.engine.close()
