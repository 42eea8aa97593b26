# SPDX-License-Identifier: Apache-2.0
"""The distributed engine, the server's side: every client is a node that is connected over the network.

It knows nodes by what they answer, and imports nothing that reads data. Who carries the bytes is a `Post`.
"""

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from feddag.core import codec
from feddag.core.engine import Answer, Exchange
from feddag.core.errors import InvalidMessage
from feddag.core.problem import Problem
from feddag.core.task import ClientId, ClientTask
from feddag.engines.receipts import Receipts
from feddag.engines.wire import (
    HELLO,
    NOTHING,
    AnswerHead,
    Hello,
    Newcomer,
    Question,
    fits,
    read_problem,
    write_problem,
)

Letter = tuple[str, bytes, bytes]  # kind of message, head, body
GRACE = 30.0  # seconds beyond a client's deadline, for the way and for starting its process
HELLO_LIMIT = 120.0  # seconds that a node may take to say who it is


class Post(Protocol):
    """Carries packed bytes to nodes."""

    def nodes(self) -> list[int]:
        """Ids of the nodes that are connected now."""
        ...

    def carry(
        self,
        letters: Mapping[int, Letter],
        group: str,
        limit: float = math.inf,
        on_answer: Callable[[int], None] = lambda node: None,
    ) -> dict[int, tuple[bytes, bytes] | str]:
        """Head and body of every node's reply to its letter, or why there is none."""
        ...


class DistributedEngine:
    """Carries questions to the nodes that are connected. Late replies are never used."""

    def __init__(
        self,
        post: Post,
        run: str,
        model: str,
        *,
        receipts: Path | None = None,
        registered: Mapping[int, ClientId] | None = None,
        grace: float = GRACE,
        hello_limit: float = HELLO_LIMIT,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.post, self.run, self.model, self.warn = post, run, model, warn
        self.grace, self.hello_limit = grace, hello_limit
        self.registered = registered  # node id → client; None: nodes are not authenticated
        self.receipts = Receipts(receipts, run)
        self.problem: Problem | None = None  # agreed at the start
        self.met: dict[int, Newcomer] = {}  # everybody who has said hello
        self._warned: set[str] = set()

    # -- who is there --------------------------------------------------------------------------------------

    def clients(self) -> tuple[ClientId, ...]:
        """Clients whose nodes are connected now and fit the run, sorted."""
        return tuple(newcomer.client for newcomer in self.connected())

    def connected(self) -> list[Newcomer]:
        """Connected nodes that have said who they are and fit the run, one per client, sorted by client."""
        nodes = self.post.nodes()
        self._meet([node for node in nodes if node not in self.met])
        found: dict[ClientId, Newcomer] = {}
        for known in (self.met[node] for node in nodes if node in self.met):
            if reason := "" if self.problem is None else fits(known.problem, self.problem):
                self._warn_once(f"client '{known.client}' cannot take part: {reason}")
            elif known.client in found:
                self._warn_once(f"two nodes say that they are client '{known.client}': one is ignored")
            else:
                found[known.client] = known
        return [found[client] for client in sorted(found)]

    def trains(self, client: ClientId) -> bool:
        """Whether a client's node has said that it has samples to train on."""
        return any(known.client == client and known.examples > 0 for known in self.met.values())

    def _meet(self, nodes: list[int]) -> None:
        """Ask nodes who they are; the key that a node is registered with decides which client it may be."""
        if self.registered is not None:
            for node in nodes:
                if node not in self.registered:
                    self._warn_once(f"node {node} is not registered and is ignored")
            nodes = [node for node in nodes if node in self.registered]
        questions = {
            node: Question(
                number=secrets.token_hex(8), run=self.run, task=HELLO, client="", round=0, model=self.model
            )
            for node in nodes
        }
        letters = {node: ("query.hello", codec.encode(q), b"") for node, q in questions.items()}
        for node, came in self.post.carry(letters, HELLO, self.hello_limit).items():
            try:
                if isinstance(came, str):
                    raise InvalidMessage("(hello)", "a reply", came)
                if codec.decode(AnswerHead, came[0]).number != questions[node].number:
                    raise InvalidMessage("(hello)", "a reply to this question", "another one")
                self._admit(node, codec.decode(Hello, came[1]))
            except InvalidMessage as error:
                who = (self.registered or {}).get(node, "")
                name = f"the node of client '{who}'" if who else f"node {node}"
                self._warn_once(f"{name} cannot take part: {error}")

    def _admit(self, node: int, hello: Hello) -> None:
        wanted = (self.registered or {}).get(node, hello.client)
        if hello.client != wanted:
            raise InvalidMessage("client", f"'{wanted}', as its key says", f"'{hello.client[:60]}'")
        if hello.model != self.model:
            raise InvalidMessage("model", f"'{self.model}'", f"'{hello.model[:60]}'")
        self.met[node] = Newcomer(node, hello.client, read_problem(hello.problem), hello.examples)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    # -- one question --------------------------------------------------------------------------------------

    def ask(
        self, task: ClientTask, requests: Mapping[ClientId, Any], exchange: Exchange
    ) -> Mapping[ClientId, Answer]:
        """One letter per client; an answer for each when all have replied or the deadline has passed."""
        # The newest node of a client counts: one that was registered anew has another id.
        node_of = {known.client: node for node, known in self.met.items()}
        node_of |= {self.met[node].client: node for node in self.post.nodes() if node in self.met}
        packed: dict[int, tuple[bytes, int]] = {}  # by identity: many clients share a request
        questions: dict[int, Question] = {}
        letters: dict[int, Letter] = {}
        answers: dict[ClientId, Answer] = {}
        for client, request in requests.items():
            if client not in node_of:
                answers[client] = Answer(failure="its node has never been connected")
                continue
            if id(request) not in packed:
                packed[id(request)] = codec.encode(request), codec.nbytes(request)
            question = self._question(task, client, exchange)
            kind = f"{'evaluate' if task.sees_test else 'train'}.{task.name}"
            questions[node_of[client]] = question
            letters[node_of[client]] = (kind, codec.encode(question), packed[id(request)][0])
        came = self.post.carry(
            letters,
            str(exchange.round),
            exchange.deadline + self.grace,
            lambda node: exchange.on_answer(questions[node].client),
        )
        for node, question in questions.items():
            bytes_down = packed[id(requests[question.client])][1]
            answers[question.client] = self._answer(task, question, came[node], bytes_down)
        return answers

    def _question(self, task: ClientTask, client: ClientId, exchange: Exchange) -> Question:
        return Question(
            number=secrets.token_hex(8),
            run=self.run,
            task=task.name,
            client=client,
            round=exchange.round,
            root=exchange.seed.root,
            path=exchange.seed.path,
            deadline=0.0 if math.isinf(exchange.deadline) else exchange.deadline,
            memory=self.receipts.now.get(client, NOTHING),
            keep=self.receipts.kept(client),
            model=self.model,
            problem="" if self.problem is None else write_problem(self.problem),
        )

    def _answer(
        self, task: ClientTask, question: Question, came: tuple[bytes, bytes] | str, bytes_down: int
    ) -> Answer:
        if isinstance(came, str):
            return Answer(failure=came, bytes_down=bytes_down)
        try:
            head = codec.decode(AnswerHead, came[0])
            if (head.number, head.client) != (question.number, question.client) or head.seconds < 0:
                raise InvalidMessage("(answer)", "an answer to this question", "another one")
            if head.lost:  # next time it is asked as somebody who remembers nothing
                self.receipts.now.pop(question.client, None)
            if head.failure:
                return Answer(failure=head.failure, seconds=head.seconds, bytes_down=bytes_down)
            reply = codec.decode(task.reply, came[1])
        except InvalidMessage as error:
            return Answer(failure=str(error), bytes_down=bytes_down)
        self.receipts.now[question.client] = head.memory
        return Answer(
            reply=reply,
            seconds=head.seconds,
            samples=max(0, head.samples),
            epochs=max(0.0, head.epochs),
            bytes_down=bytes_down,
            bytes_up=codec.nbytes(reply),
        )

    # -- memories stay on the nodes; the server keeps the names of their versions ---------------------------

    def save_memories(self, label: str) -> None:
        """Keep the name of every client's present version; the nodes wrote them before they answered."""
        self.receipts.save(label)

    def restore_memories(self, label: str) -> None:
        """From now on, questions start from the versions that were kept under a label."""
        self.receipts.restore(label)

    def prune_memories(self, keep: Collection[str]) -> None:
        """Forget other labels; nodes are told with their next question which versions are still needed."""
        self.receipts.prune(keep)

    def describe(self) -> dict[str, Any]:
        """Who carries the questions."""
        return {"engine": "flower", "authenticated": self.registered is not None}

    def close(self) -> None:
        """Nothing is held: the connection belongs to whoever made the Post."""
