# SPDX-License-Identifier: Apache-2.0
"""The signatures of many clients: asked for when a clustering needs them, kept as far as newcomers do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from feddag.clustering.items import CLASS_VIEWS, Items
from feddag.clustering.pipeline import ClusteringResult
from feddag.core.algorithm import Server, broadcast
from feddag.core.clustering import Sampled
from feddag.core.clusters import Clusters
from feddag.core.message import message, public
from feddag.learning.signature import Sign, Signature, fields_of, items_of, sign


@message
class Unsigned:
    """What a state knows of all its clients where it keeps the signatures of some of them only."""

    landmarks: int  # clients that were compared with each other
    clients: tuple[str, ...]  # everybody at the time
    sure: np.ndarray = public()  # of each of them: how sure its cluster is
    second: np.ndarray = public()  # its second nearest cluster, -1: none
    counts_ZC: np.ndarray = public()  # samples of every class in each cluster
    withheld: int = 0

    def sampled(self) -> Sampled:
        """The same in the form of all methods."""
        told = zip(self.sure.tolist(), self.second.tolist(), strict=True)
        sure = dict(zip(self.clients, told, strict=True)) if len(self.counts_ZC) > 1 else {}
        return Sampled(landmarks=self.landmarks, confidence=sure, counts_ZC=self.counts_ZC)


class SignatureReader:
    """Clients as the items of a clustering: whoever is read is asked for its signature.

    With landmarks everybody else sends only what placing needs, does not train, and is forgotten when it has
    its place. All questions are parts of one, so that a client signs alike whenever it is asked.
    """

    def __init__(self, server: Server, request: Sign) -> None:
        self.server, self.request = server, request
        self.clients, self.seed = tuple(sorted(server.clients)), server.question_seed
        self.signed: dict[str, Signature] = {}  # those who were asked for everything
        self.withheld = 0
        self._asked = False

    def __len__(self) -> int:
        return len(self.clients)

    def read(self, rows: np.ndarray, views: tuple[str, ...] | None) -> tuple[np.ndarray, Items]:
        """Ask some clients; those who answered, and what they told."""
        request = self.request if views is None else reduced(self.request, views)
        asked = [self.clients[i] for i in rows.tolist()]
        replies = self.server.ask(sign, broadcast(request, asked), seed=self.seed if self._asked else None)
        self._asked = True
        self.withheld += sum(reply.withheld for reply in replies.values())
        if views is None:
            self.signed |= replies
        answered = np.array([i for i in rows.tolist() if self.clients[i] in replies], dtype=np.int64)
        classes = self.server.problem.num_classes
        return answered, items_of(replies) if replies else Items((), np.zeros((0, classes)))

    def names(self, found: ClusteringResult) -> list[str]:
        """The clients that have a cluster, in the order of its labels."""
        if found.everyone is None:
            return list(self.signed)
        return [self.clients[i] for i in found.everyone.rows_N.tolist()]

    def clusters(self, found: ClusteringResult) -> Clusters:
        """The clusters of these clients."""
        return Clusters.from_labels(self.names(found), found.labels_N)

    def notes(self, found: ClusteringResult) -> dict[str, Any]:
        """For a log: what was found, and what clients did not tell."""
        sizes = [len(members) for members in self.clusters(found).members]
        told = {"num_clusters": len(sizes), "sizes": sizes, **found.notes(self.names(found))}
        return {**told, "withheld": self.withheld}

    def kept(self, found: ClusteringResult) -> dict[str, Signature]:
        """The signatures that later newcomers are compared with: all, or those of the anchors."""
        if found.everyone is None:
            return self.signed
        anchors = found.everyone.anchors
        return signatures_from([self.clients[i] for i in anchors.rows_A.tolist()], anchors.items)

    def unsigned(self, found: ClusteringResult) -> Unsigned | None:
        """What is kept of everybody; None where all signatures are."""
        everyone = found.everyone
        if everyone is None:
            return None
        counts_ZC = np.zeros((found.count, everyone.counts_NC.shape[1]))
        np.add.at(counts_ZC, everyone.labels_N, everyone.counts_NC)
        return Unsigned(
            landmarks=len(everyone.landmarks),
            clients=tuple(self.names(found)),
            sure=everyone.sure_N.astype(np.float32),
            second=everyone.second_N.astype(np.int32),
            counts_ZC=counts_ZC,
            withheld=self.withheld,
        )


def comparable(request: Sign, state: Any) -> Sign:
    """The question to newcomers: without what the kept signatures do not tell."""
    if state.unsigned is None:
        return request
    return reduced(request, [fit.name for fit in state.frame.fits] or request.signature.views)


def reduced(request: Sign, views: Sequence[str]) -> Sign:
    """The question without what placing does not need: other views, and the warm-up that they need."""
    asked = request.signature
    wanted = tuple(view for view in asked.views if view in views) or asked.views
    rounds = asked.warmup_rounds if "gradient" in wanted else 0
    return replace(request, keep=False, signature=replace(asked, views=wanted, warmup_rounds=rounds))


def signatures_from(clients: Sequence[str], items: Items) -> dict[str, Signature]:
    """Items as signatures again: the inverse of `items_of`."""
    found = {}
    for i, client in enumerate(clients):
        told = fields_of({view: items.class_vectors(view)[i] for view in CLASS_VIEWS})
        sketch = np.zeros(0, dtype=np.float32) if items.sketches_NK is None else items.sketches_NK[i]
        counts = items.counts_NC[i].astype(np.int64)
        found[client] = Signature(**told, gradient=sketch, counts=counts, withheld=0)
    return found
