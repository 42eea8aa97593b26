# SPDX-License-Identifier: Apache-2.0
"""An experiment with the data of all its clients, and what such a simulation adds to reports."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feddag.core.algorithm import Algorithm
from feddag.core.deployment import Deployment
from feddag.core.engine import Exchange
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.core.task import ClientId
from feddag.data.federation import Federation
from feddag.engines.inline import InlineEngine
from feddag.engines.memories import Memories
from feddag.engines.perform import Site, client_at, single_threaded
from feddag.engines.process import ProcessEngine
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import serve
from feddag.privacy.account import account
from feddag.privacy.guard import Protection
from feddag.privacy.plan import Plan, make_plan
from feddag.runs.given_data import federation_for
from feddag.runs.prepare import Prepared, prepare
from feddag.runs.presence import PlannedPresence, plan_presence

LEDGER = "ledger.jsonl"  # of a run: what left which client
SimulatedEngine = InlineEngine | ProcessEngine


@dataclass(frozen=True)
class Simulation:
    """An experiment with the data of all its clients."""

    prepared: Prepared
    federation: Federation

    @property
    def experiment(self) -> Experiment:
        """The settings."""
        return self.prepared.experiment

    @property
    def algorithm(self) -> Algorithm:
        """The method."""
        return self.prepared.algorithm

    @cached_property
    def site(self) -> Site:
        """What the clients' tasks run on."""
        return self._site(None)

    def _site(self, ledger: Path | None) -> Site:
        privacy = self.experiment.privacy
        protection = Protection(privacy, ledger) if privacy.on else None
        engine, optimiser = self.experiment.engine, self.experiment.training.optimiser
        return Site(
            self.federation,
            self.prepared.network,
            engine.backend,
            protection,
            engine.computing,
            optimiser=optimiser,
        )

    @cached_property
    def presence(self) -> PlannedPresence:
        """Who is there when, as the scenario says; newcomers of the partition join after the last round."""
        federation, newcomers = self.federation, self.federation.newcomers
        late = frozenset(newcomers)
        return plan_presence(
            self.experiment.events,
            tuple(c for c in federation.ids if c not in late),
            self.experiment.num_rounds,
            Seed(self.experiment.seed),
            newcomers,
            frozenset(c for c in federation.ids if not federation.clients[c].size()),
        )

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All clients but those who come after the last round."""
        return self.presence.clients

    @property
    def trainable(self) -> tuple[ClientId, ...]:
        """Those of them that hold training samples."""
        return tuple(c for c in self.clients if self.presence.trains(c))

    def privacy_plan(self) -> Plan | None:
        """What will leave the clients at which ε; None where nothing is protected."""
        experiment = self.experiment
        if not experiment.privacy.on:
            return None
        followed = experiment.detector != "none" and experiment.lifecycle.response != "none"
        return make_plan(
            experiment.privacy,
            self.prepared.algorithm,
            experiment.training,
            experiment.num_rounds,
            experiment.fraction_train,
            [len(self.federation.clients[client].train) for client in self.trainable],
            again=experiment.lifecycle.most_alarms(experiment.num_rounds) if followed else 0,
            alarms=experiment.detector == "client",
        )

    def open_engine(self, memories: Path | None = None) -> SimulatedEngine:
        """The engine that the experiment names; `memories` is where clients keep what they remember."""
        config = self.experiment.engine
        # The ledger lies beside the memories: both belong to the clients, not to the server.
        ledger = memories.with_name(LEDGER) if memories is not None else None
        site = self._site(ledger) if ledger is not None and self.experiment.privacy.on else self.site
        if config.name == "inline":
            return InlineEngine(site, memories, self.experiment.digest)
        return ProcessEngine(site, self.experiment.model, config.workers, memories, self.experiment.digest)


@dataclass(frozen=True)
class SimulationFacts:
    """What the simulation adds to reports; see `Facts`."""

    federation: Federation
    memories: Memories
    site: Site | None = None  # to adapt models; without it they are reported as the server sends them

    def about(self) -> dict[str, Any]:
        """Where the data came from, and what left whom."""
        about: dict[str, Any] = {"source": vars(self.federation.source)}
        if self.site is not None and self.site.privacy is not None:
            about["privacy"] = account(self.site.privacy.options, self.site.privacy.ledger)
        return about

    def digest(self) -> str:
        """SHA-256 of the data's source and of who holds which rows."""
        sha = hashlib.sha256(json.dumps(vars(self.federation.source), sort_keys=True).encode())
        held = [(client, self.federation.clients[client]) for client in self.federation.ids]
        for client, phases in sorted(self.federation.phases.items()):
            held += [(f"{client} {phase.first}", phase.share) for phase in phases]
        for name, share in held:
            for part in share.parts():
                for array in (part.train, part.validation, part.test, part.relabel):
                    sha.update(f"{name} {0 if array is None else len(array)} ".encode())
                    sha.update(b"" if array is None else array.tobytes())
        return sha.hexdigest()

    def planted(self, round_: int | None = None) -> Mapping[ClientId, int]:
        """The planted groups in a round; not given: at the end."""
        return self.federation.at(sys.maxsize if round_ is None else round_).groups

    def drifts(self) -> tuple[dict[str, Any], ...]:
        """The planted changes of the clients' data."""
        return tuple(vars(drift) for drift in self.federation.drifts)

    def group_names(self) -> Mapping[int, str]:
        """What the planted groups are, in words."""
        return self.federation.group_names

    def personal(self, client: ClientId, deployment: Deployment, exchange: Exchange) -> Deployment:
        """What the client would use: its own parts put back, and adapted where the method does so."""
        memory = self.memories.get(client)
        if self.site is None or (deployment.adapt is None and not deployment.seen_labels):
            return deployment.recall(memory)
        asked = client_at(self.site, client, exchange, memory, sees_test=True, sees_validation=True)
        try:
            with single_threaded(), (asked.seed / "ambient").ambient():
                return serve(asked, deployment)
        except Exception:  # then its evaluation has failed too, and has said why
            return deployment.recall(memory)


def who_holds_what(federation: Federation) -> dict[str, Any]:
    """Classes, training samples of each class and planted groups, as plain values for reports."""
    return {
        "class_names": list(federation.class_names),
        "counts": dict(zip(federation.ids, federation.counts().tolist(), strict=True)),
        "groups": {client: int(group) for client, group in federation.groups.items()},
        "group_names": {int(group): name for group, name in federation.group_names.items()},
    }


def build(experiment: Experiment, data: Any = None) -> Simulation:
    """Build data, networks and algorithm; everything that can be wrong is found here."""
    federation = federation_for(experiment, data)
    simulation = Simulation(prepare(experiment, federation.problem), federation)
    if not simulation.trainable:
        number = len(simulation.clients)
        raise InvalidInput(f"none of the {number} clients holds a training sample: at least one must")
    experiment.cohort_size(len(simulation.trainable))
    return simulation
