# SPDX-License-Identifier: Apache-2.0
"""What methods with one global model have in common: its state, its start, and who is served what."""

from feddag.core.algorithm import Server
from feddag.core.deployment import Deployment
from feddag.core.message import message, public
from feddag.core.params import Params


@message
class OneModel:
    """The global model."""

    params: Params = public()


class ServesOneModel:
    """One random model at the start, the same model for everyone at the end."""

    def start(self, server: Server) -> OneModel:
        """One random model for all."""
        return OneModel(params=server.initial_params())

    def deploy(self, state: OneModel, client: str) -> Deployment:
        """The global model for everyone."""
        return Deployment(models=(state.params,))

    def onboard(self, state: OneModel, newcomers: tuple[str, ...], server: Server) -> OneModel:
        """Newcomers use the global model."""
        return state
