# SPDX-License-Identifier: Apache-2.0
"""The server's side of protected means: secure sums per cluster, or noise that the server adds itself.

Both stand behind `Server.ask_mean`, so that methods need not know about them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from feddag.core import codec
from feddag.core.algorithm import MeanQuestion, Server, means_of
from feddag.core.averaging import Mean
from feddag.core.contract import Known
from feddag.core.message import NO_RULE
from feddag.core.params import Layout, Params
from feddag.core.seeds import Seed
from feddag.core.task import ClientId, ClientTask
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.masks import decoded, unmasked
from feddag.privacy.secagg import Advertise, AskMasked, AskReveal, Revealed, advertise, hide, reveal


class SecureSums:
    """Means whose parts the server never sees."""

    def __init__(self, options: PrivacyOptions) -> None:
        self.least = options.update.min_group

    def __call__(self, server: Server, asked: MeanQuestion) -> dict[int, Mean[Any]]:
        """The mean of every group that is large enough and stays so to the end; the others are noted."""
        # The question itself has the seed that it would have without masks: clients compute the same.
        seed = server.question_seed
        server.questions += 1
        session = "/".join((str(seed.root), *seed.path))
        members, task, requests = self._members(server, asked, seed), asked.task, asked.requests
        everybody = [client for group in members.values() for client in group]
        keys = {
            client: reply.key
            for client, reply in server.ask(
                advertise,
                dict.fromkeys(everybody, Advertise(session=session)),
                quorum=0.0,
                seed=seed / "keys",
            ).items()
        }
        hidden_requests: dict[ClientId, AskMasked] = {}
        plain: dict[int, Any] = {}  # the question of each group
        peers_of: dict[int, dict[ClientId, np.ndarray]] = {}
        for group, clients in members.items():
            peers = {client: keys[client] for client in clients if client in keys}
            if len(peers) < self.least:
                self._refuse(server, group, len(peers))
                continue
            plain[group], peers_of[group] = next(requests[c] for c in clients if c in requests), peers
            for clients_alike, question in _alike(peers, requests, plain[group]):
                sizes = [layout.size for layout in _layouts(server, task, question).values() if layout]
                request = AskMasked(
                    session=session,
                    task=task.address,
                    request=np.frombuffer(codec.encode(question), dtype=np.uint8),
                    peers=peers,
                    size=sum(sizes) + 2,
                    uniform=asked.uniform,
                )
                hidden_requests |= dict.fromkeys(clients_alike, request)
        hidden = server.ask(hide, hidden_requests, asked.quorum, seed=seed) if hidden_requests else {}
        parts: dict[int, dict[ClientId, np.ndarray]] = {}
        for group, peers in peers_of.items():
            answered = {client: hidden[client].values for client in peers if client in hidden}
            if len(answered) < self.least:
                self._refuse(server, group, len(answered))
            else:
                parts[group] = answered
        means = {}
        for group, total in self._sums(server, session, seed / "reveal", peers_of, parts).items():
            found = _mean(server, task, plain[group], total, tuple(sorted(parts[group])))
            if found is not None:
                means[group] = found
        return means

    def _members(self, server: Server, asked: MeanQuestion, seed: Seed) -> dict[int, list[ClientId]]:
        """Who is summed with whom; a group that is too small gets more of its members, if there are any."""
        requests, groups = asked.requests, asked.groups
        members: dict[int, list[ClientId]] = {}
        for client in sorted(requests):
            members.setdefault(asked.group(client), []).append(client)
        for group, clients in members.items():
            same_question = len({id(requests[client]) for client in clients}) == 1
            waiting = [client for client in server.clients if client not in requests]
            others = [client for client in waiting if not groups or groups.get(client) == group]
            if len(clients) < self.least and same_question and others:
                drawn = (seed / "top up" / group).numpy().permutation(others)[: self.least - len(clients)]
                clients += [str(client) for client in drawn]
        return dict(sorted(members.items()))

    def _sums(
        self,
        server: Server,
        session: str,
        seed: Seed,
        peers_of: Mapping[int, Mapping[ClientId, np.ndarray]],
        parts: Mapping[int, Mapping[ClientId, np.ndarray]],
    ) -> dict[int, np.ndarray]:
        """The sum of each group; none where a survivor does not reveal its seeds, even when asked again."""
        requests: dict[ClientId, AskReveal] = {}
        for group, answered in parts.items():
            dropped = {c: key for c, key in peers_of[group].items() if c not in answered}
            request = AskReveal(session=session, survivors=tuple(sorted(answered)), dropped=dropped)
            requests |= dict.fromkeys(answered, request)
        told: dict[ClientId, Revealed] = {}
        for attempt in ("first", "again"):
            missing = {client: request for client, request in requests.items() if client not in told}
            if missing:
                told |= server.ask(reveal, missing, quorum=0.0, seed=seed / attempt)
        sums = {}
        for group, answered in parts.items():
            whole = [c for c in answered if c in told and set(told[c].pairs) == set(requests[c].dropped)]
            if len(whole) < len(answered):
                self._refuse(server, group, len(whole), "a client left before the masks were removed")
                continue
            own = {client: told[client].own.tobytes() for client in answered}
            pairs = {c: {peer: s.tobytes() for peer, s in told[c].pairs.items()} for c in answered}
            sums[group] = unmasked(answered, own, pairs)
        return sums

    def _refuse(self, server: Server, group: int, found: int, why: str = "") -> None:
        why = why or f"{found} of at least {self.least} clients took part"
        server.note(refused_sums=[*server.notes.get("refused_sums", ()), {"group": group, "why": why}])


class CentralNoise:
    """Means with Gaussian noise from the server: hides single clients from others, not from the server."""

    def __init__(self, options: PrivacyOptions) -> None:
        self.clip, self.noise = options.update.clip, options.update.noise

    def __call__(self, server: Server, asked: MeanQuestion) -> dict[int, Mean[Any]]:
        """All clients count the same: then one client moves the sum by at most the clipping norm."""
        seed = server.question_seed
        means = means_of(asked, server.ask(asked.task, asked.requests, asked.quorum), uniform=True)
        return {
            group: Mean(self._noisy(found, (seed / "central" / group).numpy()), found.clients)
            for group, found in means.items()
        }

    def _noisy(self, found: Mean[Any], generator: np.random.Generator) -> Any:
        fields = [f.name for f in dataclasses.fields(found.reply)]
        parts = {n: v for n in fields if isinstance(v := getattr(found.reply, n), Params)}
        # Each part is clipped alone: together they move by √k times as much.
        deviation = self.noise * self.clip * len(parts) ** 0.5 / len(found.clients)
        noise = {n: generator.normal(scale=deviation, size=part.layout.size) for n, part in parts.items()}
        noisy = {n: part.like(part.vector + torch.from_numpy(noise[n]).float()) for n, part in parts.items()}
        return dataclasses.replace(found.reply, **noisy)


def averaging_for(options: PrivacyOptions) -> SecureSums | CentralNoise | None:
    """How means are protected; None: they are not."""
    if options.masks:
        return SecureSums(options)
    return CentralNoise(options) if options.central else None


def _alike(
    peers: Mapping[ClientId, Any], requests: Mapping[ClientId, Any], otherwise: Any
) -> list[tuple[list[ClientId], Any]]:
    """Clients that got the same question object, with it; who was added gets the question of the others."""
    by_question: dict[int, tuple[list[ClientId], Any]] = {}
    for client in peers:
        question = requests.get(client, otherwise)
        by_question.setdefault(id(question), ([], question))[0].append(client)
    return list(by_question.values())


def _layouts(server: Server, task: ClientTask, request: Any) -> dict[str, Layout | None]:
    """The layout of every set of parameters in a reply; None for one that stays empty."""
    known = Known(request, server.problem, server.network)
    layouts: dict[str, Layout | None] = {}
    for f in dataclasses.fields(task.reply):
        rule = f.metadata.get("rule", NO_RULE)
        if rule.like is not None:
            like = known.expected(task.reply, f.name, rule)
            layouts[f.name] = like.layout if isinstance(like, Params) else like
    return layouts


def _mean(
    server: Server, task: ClientTask, request: Any, total: np.ndarray, clients: Sequence[ClientId]
) -> Mean[Any] | None:
    """The mean reply that a sum stands for; None when no example is behind it."""
    values = decoded(total)
    weight, examples = values[-2:]
    if weight <= 0:
        return None
    fields: dict[str, Any] = {"examples": round(examples)}
    start = 0
    for name, layout in _layouts(server, task, request).items():
        if layout is None:
            fields[name] = None
            continue
        vector = torch.from_numpy(values[start : start + layout.size] / weight).float()
        fields[name] = Params(vector, layout)
        start += layout.size
    return Mean(task.reply(**fields), tuple(clients))
