# SPDX-License-Identifier: Apache-2.0
"""What happens between rounds: who left, who came, whose data changed, and what the method makes of it.

    departed → arrived → watch → round

The driver calls `before_round`; everything here is a server's business. The planted truth is used only where
the settings ask for an oracle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from feddag.core.algorithm import Algorithm
from feddag.core.capabilities import FollowsChange, WarmsUp
from feddag.core.clusters import Clusters
from feddag.core.errors import QuorumMissed
from feddag.core.task import ClientId
from feddag.learning.drift import Watch, watch
from feddag.runs.assignment import assigned, forgotten, labels_of
from feddag.runs.checkpoint import Progress

if TYPE_CHECKING:
    from feddag.runs.driver import Driver


@dataclass(frozen=True)
class Standing:
    """Where a run stands between two rounds: the method's state, and where the run stands."""

    state: Any
    progress: Progress

    @property
    def known(self) -> tuple[ClientId, ...]:
        """Clients that the method has met."""
        return self.progress.known

    @property
    def met(self) -> frozenset[ClientId]:
        """The same, to look clients up."""
        return self.progress.met

    def with_state(self, state: Any) -> "Standing":
        """The same with another state."""
        return replace(self, state=state)

    def noting(self, **changes: Any) -> "Standing":
        """The same with changes of the progress."""
        return replace(self, progress=replace(self.progress, **changes))


class Lifecycle:
    """Follows the clients of one run."""

    def __init__(self, driver: "Driver") -> None:
        self.driver = driver
        self.settings = driver.experiment.lifecycle
        self.detector = driver.experiment.detector
        self.wake = 0.0 if driver.experiment.privacy.on else self.settings.wake
        self.algorithm: Algorithm = driver.prepared.algorithm
        scenario = driver.experiment.events
        self.active = self.detector != "none" or bool(scenario.join or scenario.leave or scenario.drifts)

    def after_start(self, now: Standing) -> None:
        """Clients remember what their data are like when they sign."""
        self._take_references(0, now, now.known)

    def before_round(self, round_: int, now: Standing) -> Standing:
        """Everything that happened since the round before, answered."""
        driver = self.driver
        present = driver.presence.present(round_)
        there = set(present)
        earlier = driver.presence.present(round_ - 1)
        before = there if earlier is present else set(earlier)
        returned = sorted(c for c in there - before if c in now.met)
        if before != there:
            joined = sorted(c for c in there - before if c not in now.met)
            driver.record(
                "presence",
                round=round_,
                present=len(there),
                joined=joined,
                returned=returned,
                left=sorted(before - there),
            )
        self._record_drifts(round_)
        then = labels_of(self.algorithm, now.state) if self.active else {}
        now = self._depart(round_, now, tuple(sorted(c for c in before - there if c in now.met)))
        now = self._onboard(round_, now)
        now = self._watch(round_, now, returned)
        now = self._settle(round_, now)
        if self.active:
            self._record_moves(round_, then, labels_of(self.algorithm, now.state))
        return now

    # -- who is there ------------------------------------------------------------------------------------

    def _depart(self, round_: int, now: Standing, gone: tuple[ClientId, ...]) -> Standing:
        if not gone or not isinstance(self.algorithm, FollowsChange):
            return now
        return now.with_state(self.algorithm.depart(now.state, gone, self._server(round_, now, "departed")))

    def _onboard(self, round_: int, now: Standing) -> Standing:
        """Let the method take in clients that it has not met, after their warm-up.

        They are asked again in the next round when nobody answers.
        """
        driver = self.driver
        new = [c for c in driver.training(round_) if c not in now.met]
        came = {c: now.progress.waiting.get(c, round_) for c in new}
        now = now.noting(waiting=came)
        alone = self.algorithm.warmup() if isinstance(self.algorithm, WarmsUp) else 0
        newcomers = tuple(c for c in new if round_ - came[c] >= alone)
        if not newcomers:
            return now
        server = self._server(round_, now, "newcomers")
        try:
            state = self.algorithm.onboard(now.state, newcomers, server)
        except QuorumMissed as error:
            driver.record("warning", text=f"newcomers could not join and will be asked again: {error}")
            return now
        driver.record("newcomers", round=round_, clients=list(newcomers), notes=server.notes)
        now = now.with_state(state).noting(
            known=tuple(sorted({*now.known, *newcomers})),
            waiting={c: r for c, r in came.items() if c not in newcomers},
        )
        self._take_references(round_, now, newcomers)
        return now

    # -- whose data changed ------------------------------------------------------------------------------

    def _watch(self, round_: int, now: Standing, returned: list[ClientId]) -> Standing:
        """Ask clients whether their data changed, every δ' rounds, and those who come back at once."""
        due = round_ % self.settings.every == 0
        if self.detector == "none" or not (due or returned):
            return now
        asked = [c for c in self.driver.training(round_) if c in now.met and (due or c in returned)]
        resting = {c for c in asked if now.progress.resting.get(c, 0) > round_}
        asked = [c for c in asked if self.wake or c not in resting]
        alarmed = self._alarmed(round_, now, asked, resting)
        self.driver.record("check", round=round_, clients=len(asked), alarms=list(alarmed))
        if alarmed:
            now = self._respond(round_, now, alarmed)
        return now

    def _settle(self, round_: int, now: Standing) -> Standing:
        """Let the method look at its clusters again, every δ' rounds: a population also changes by joins."""
        due = round_ % self.settings.every == 0
        if not due or self.settings.response != "method" or not isinstance(self.algorithm, FollowsChange):
            return now
        server = self._server(round_, now, "settle")
        now = now.with_state(self.algorithm.settle(now.state, server))
        self._record_clustering(round_, server.notes)
        return now

    def _alarmed(
        self, round_: int, now: Standing, asked: list[ClientId], resting: set[ClientId]
    ) -> tuple[ClientId, ...]:
        """Who says that its data changed; whoever rests says so only of a large change."""
        if self.detector == "oracle":
            since = round_ - self.settings.every
            drifts = [d for d in self.driver.facts.drifts() if d["kind"] != "quantity"]
            changed = {d["client"] for d in drifts if since < d["done"] <= round_}
            return tuple(sorted(changed & {*asked} - resting))
        requests = self._requests(now, asked)
        large = self.settings.options.times(max(self.wake, 1.0))
        requests |= {c: replace(requests[c], options=large) for c in resting if c in requests}
        replies = self._server(round_, now, "watch").ask(watch, requests, quorum=0.0)
        return tuple(client for client, reply in replies.items() if reply.alarm)

    def _respond(self, round_: int, now: Standing, alarmed: tuple[ClientId, ...]) -> Standing:
        """What the settings say is done for clients whose data changed; then they rest."""
        server = self._server(round_, now, "drifted")
        try:
            state = self._answer(round_, now, alarmed, server)
        except QuorumMissed as error:
            self.driver.record("warning", text=f"alarmed clients will be asked again: {error}")
            return now
        self._record_clustering(round_, server.notes)
        self._take_references(round_, now, alarmed)
        until = round_ + (self.settings.cooldown + 1) * self.settings.every
        resting = {c: r for c, r in now.progress.resting.items() if r > round_}
        return now.with_state(state).noting(resting={**resting, **dict.fromkeys(alarmed, until)})

    def _answer(self, round_: int, now: Standing, alarmed: tuple[ClientId, ...], server: Any) -> Any:
        state = now.state
        if self.settings.assignment == "oracle":
            return assigned(state, alarmed, self.driver.facts.planted(round_))
        if self.settings.response == "reonboard":
            state, free = forgotten(self.algorithm, state, alarmed)
            return self.algorithm.onboard(state, free, server) if free else state
        if self.settings.response == "method" and isinstance(self.algorithm, FollowsChange):
            return self.algorithm.drifted(state, alarmed, server)
        return state

    def _take_references(self, round_: int, now: Standing, clients: Iterable[ClientId]) -> None:
        """The data of now are what later checks compare with."""
        if self.detector == "client":
            server = self._server(round_, now, "reference")
            server.ask(watch, self._requests(now, clients, renew=True), quorum=0.0)

    def _requests(self, now: Standing, clients: Iterable[ClientId], renew: bool = False) -> dict[str, Watch]:
        options = self.settings.options
        if options.loss:
            served = {c: self.algorithm.deploy(now.state, c) for c in clients}
            return {c: Watch(options=options, renew=renew, deployment=d) for c, d in served.items()}
        return dict.fromkeys(clients, Watch(options=options, renew=renew))

    def _server(self, round_: int, now: Standing, purpose: str) -> Any:
        present = [c for c in self.driver.training(round_) if c in now.met]
        return self.driver.server(round_, present, purpose)

    # -- what is recorded --------------------------------------------------------------------------------

    def _record_drifts(self, round_: int) -> None:
        """What was planted: for reports, no decision depends on it."""
        begun = [d for d in self.driver.facts.drifts() if d["at"] == round_]
        for change, done in sorted({(d["kind"], d["done"]) for d in begun}):
            clients = [d["client"] for d in begun if (d["kind"], d["done"]) == (change, done)]
            self.driver.record("drift", round=round_, change=change, done=done, clients=clients)

    def _record_clustering(self, round_: int, notes: Mapping[str, Any]) -> None:
        if "recluster" in notes:
            self.driver.record("recluster", round=round_, **notes["recluster"])

    def _record_moves(self, round_: int, then: dict[ClientId, int], labels: dict[ClientId, int]) -> None:
        moved = {c: [then[c], z] for c, z in labels.items() if c in then and then[c] != z}
        if moved:
            self.driver.record("moved", round=round_, clients=moved)

    def record_round(self, round_: int, now: Standing) -> None:
        """Who is there in which cluster, for reports; only where something can change, or did change."""
        if not self.active:
            self._record_clusters(round_, now.state)
            return
        driver, labels = self.driver, labels_of(self.algorithm, now.state)
        there = driver.presence.present(round_)
        truth = driver.facts.planted(round_)
        both = [c for c in there if c in labels and c in truth]
        driver.record(
            "standing",
            round=round_,
            present=list(there),
            waiting=sorted(now.progress.waiting),
            clusters={c: labels[c] for c in there if c in labels},
            planted={c: truth[c] for c in both},
        )

    def _record_clusters(self, round_: int, state: Any) -> None:
        """The clusters of a state that holds them, when they are new."""
        clusters = getattr(state, "clusters", None)
        if isinstance(clusters, Clusters) and clusters != getattr(self.driver.state, "clusters", None):
            self.driver.record("clusters", round=round_, clusters=clusters.labels())
