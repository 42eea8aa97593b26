# SPDX-License-Identifier: Apache-2.0
"""What a user writes: an algorithm, a dataset and a partition, in a module of their own."""

from typing import ClassVar

import numpy as np

from feddag.core.algorithm import Server, algorithm, broadcast
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public, sensitive
from feddag.core.params import Params
from feddag.core.task import Client, ClientTask, client_task
from feddag.learning.one_model import OneModel, ServesOneModel
from feddag.learning.sgd import sgd


@message
class Ask:
    """The model, and how to train it."""

    params: Params = public()
    local: LocalTraining


@message
class Trained:
    """The trained model."""

    params: Params = sensitive("update", like="params")
    examples: int = sensitive("counts", least=0)


@client_task
def fit(request: Ask, client: Client) -> Trained:
    """Train."""
    return Trained(params=sgd(client, request.params, request.local), examples=len(client.train))


@algorithm
class HalfStep(ServesOneModel):
    """Goes only a part of the way to the clients' mean model."""

    tasks: ClassVar[tuple[ClientTask, ...]] = (fit,)

    local: LocalTraining = LocalTraining()
    step: float = 0.5  # part of the way

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Ask the cohort; move towards the mean."""
        requests = broadcast(Ask(params=state.params, local=self.local), server.cohort)
        mean = server.ask_mean(fit, requests)[0].reply.params
        return OneModel(params=state.params + (mean - state.params) * self.step)


class NoAlgorithm:
    """Lacks everything."""


def three_sites() -> dict:
    """Three sites with two classes each."""
    rng = np.random.default_rng(0)
    return {f"site{i}": (rng.normal(size=(30, 4)), np.tile(["a", "b"], 15)) for i in range(3)}


def broken() -> dict:
    """Fails."""
    raise OSError("the disk is gone\nfor good")


def every_other(y: np.ndarray, num_clients: int, rng: np.random.Generator) -> list:
    """Row i goes to client i modulo the number of clients."""
    return [np.arange(len(y))[i::num_clients] for i in range(num_clients)]


def twice(y: np.ndarray, num_clients: int, rng: np.random.Generator) -> list:
    """Everybody gets everything."""
    return [np.arange(len(y))] * num_clients
