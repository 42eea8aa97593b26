# SPDX-License-Identifier: Apache-2.0
"""Everything the server of a run needs, built and checked before anything is written."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from feddag.core.algorithm import Algorithm
from feddag.core.deployment import Deployment
from feddag.core.engine import Exchange
from feddag.core.params import state_tensors
from feddag.core.problem import Problem
from feddag.core.task import ClientId
from feddag.experiment.settings import Experiment
from feddag.learning.drift import watch
from feddag.learning.prior import check_head
from feddag.models import Networks
from feddag.privacy.rules import check_start


@dataclass(frozen=True)
class Prepared:
    """An experiment with its algorithm and networks, for a problem."""

    experiment: Experiment
    problem: Problem
    algorithm: Algorithm
    network: Networks

    @property
    def state_class(self) -> type:
        """The message class of the algorithm's state."""
        return typing.get_type_hints(type(self.algorithm).start)["return"]


def prepare(experiment: Experiment, problem: Problem) -> Prepared:
    """Build networks and algorithm; what can be wrong with them is found here."""
    experiment.track.check_installed()
    network = Networks(experiment.model, problem)
    check_head(state_tensors(network("single")), experiment.training.prior_correction)
    algorithm = protected(experiment, problem)
    return Prepared(experiment, problem, algorithm, network)


def protected(experiment: Experiment, problem: Problem) -> Algorithm:
    """The algorithm as it suits the data and as the level of privacy lets it run; refused where it cannot."""
    algorithm, privacy = experiment.build_algorithm(), experiment.privacy
    if hasattr(algorithm, "suited"):
        algorithm = algorithm.suited(problem, privacy.noisy)
    watched = (watch,) if experiment.detector == "client" else ()
    check_start(experiment.algorithm.name, algorithm, privacy, watched)
    if privacy.noisy and not privacy.dpsgd and hasattr(algorithm, "without_sketches"):
        algorithm = algorithm.without_sketches()
    if (privacy.masks or privacy.central) and hasattr(algorithm, "without_single_updates"):
        algorithm = algorithm.without_single_updates()
    return algorithm


class Facts(Protocol):
    """What only a simulation knows and adds to reports. No decision of the server depends on it."""

    def about(self) -> dict[str, Any]:
        """Where the data came from, as plain values."""
        ...

    def digest(self) -> str:
        """Names the data: a run that goes on with other data is refused."""
        ...

    def planted(self, round_: int | None = None) -> Mapping[ClientId, int]:
        """The planted group of each client in a round, by default at the end; empty without groups."""
        ...

    def drifts(self) -> tuple[dict[str, Any], ...]:
        """The planted changes of data: client, at, kind, done."""
        ...

    def group_names(self) -> Mapping[int, str]:
        """What the planted groups are, in words."""
        ...

    def personal(self, client: ClientId, deployment: Deployment, exchange: Exchange) -> Deployment:
        """A deployment with what this client remembers put in place, adapted as in an evaluation."""
        ...


class NoFacts:
    """A real server: nothing is known but what clients told."""

    def about(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def digest(self) -> str:
        """Nothing."""
        return ""

    def planted(self, round_: int | None = None) -> Mapping[ClientId, int]:
        """Nothing."""
        return {}

    def drifts(self) -> tuple[dict[str, Any], ...]:
        """Nothing."""
        return ()

    def group_names(self) -> Mapping[int, str]:
        """Nothing."""
        return {}

    def personal(self, client: ClientId, deployment: Deployment, exchange: Exchange) -> Deployment:
        """What the server sends; personal parts stay with the client."""
        return deployment
