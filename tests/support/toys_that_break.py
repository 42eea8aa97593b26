# SPDX-License-Identifier: Apache-2.0
"""Algorithms that break a promise each."""

from typing import ClassVar

from plugged_in import HalfStep, fit

from feddag.core.algorithm import Server, algorithm
from feddag.core.deployment import LocalTraining
from feddag.core.message import message, public
from feddag.core.params import Params
from feddag.core.task import Client, ClientTask, client_task
from feddag.learning.one_model import OneModel, ServesOneModel


@message
class Everything:
    """The model, called public although it comes from a client's data."""

    params: Params = public()


@client_task
def peek(request: OneModel, client: Client) -> Everything:
    """Give everything away."""
    return Everything(params=request.params)


@algorithm
class Undeclared(HalfStep):
    """Asks a task that it does not name."""

    tasks: ClassVar[tuple[ClientTask, ...]] = ()


@algorithm
class Peeking(HalfStep):
    """Has a task whose reply does not say what it reveals."""

    tasks: ClassVar[tuple[ClientTask, ...]] = (fit, peek)


KEPT: list[int] = []


@algorithm
class Keeping(HalfStep):
    """Counts its rounds beside the state."""

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Every call goes another way."""
        KEPT.append(1)
        moved = super().round(state, server)
        return OneModel(params=moved.params * (1 + 1e-3 * len(KEPT)))


@algorithm
class Lazy(ServesOneModel):
    """Never trains at all."""

    tasks: ClassVar[tuple[ClientTask, ...]] = ()

    local: LocalTraining = LocalTraining()

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Nothing."""
        return state


@algorithm
class Crashing(Lazy):
    """Fails in its first round."""

    def round(self, state: OneModel, server: Server) -> OneModel:
        """Divide by nothing."""
        return OneModel(params=state.params * (1 / (server.round - server.round)))


@algorithm
class Silent(Lazy):
    __doc__ = ""
