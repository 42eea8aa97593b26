# SPDX-License-Identifier: Apache-2.0
"""What a client does with a model: how it trains it (LocalTraining) and how it uses it (Deployment)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from feddag.core.message import message, public
from feddag.core.params import Params


@message
class LocalTraining:
    """How one client trains in one round; a fresh SGD each time, the last partial batch kept."""

    local_epochs: Annotated[int, Ge(1)] = 10  # passes over the client's data
    local_steps: Annotated[int, Ge(0)] = 0  # if > 0: this many batches instead of whole epochs
    batch_size: Annotated[int, Ge(1)] = 64  # samples per step of SGD
    lr: Annotated[float, Gt(0)] = 0.01  # learning rate
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.5  # of SGD
    weight_decay: Annotated[float, Ge(0)] = 1e-4  # L2 penalty of SGD
    # τ: how far a loss is corrected for the label shares of the client: 0 not at all, 1 fully (LabelPrior)
    prior_correction: Annotated[float, Ge(0), Le(1)] = 0.0


@message
class Deployment:
    """What one client would use now: one evaluation serves every method.

    One model is used as it is. Several models with weights are a mixture of their predicted probabilities;
    several without weights mean: the one with the least loss on the client's own training data. A client
    first puts back what it remembers, then adapts, then predicts.
    """

    models: tuple[Params, ...] = public()
    network: str = "single"
    weights: tuple[float, ...] = ()
    remembered: str = ""  # entry of the client's memory: its tensors replace their namesakes in models[0]
    remembered_weights: str = ""  # entry of the client's memory that replaces `weights`
    remembered_entries: tuple[int, ...] = ()  # which of the remembered weights belong to the models; (): all
    adapt: LocalTraining | None = None  # training on own data before use
    adapt_prefixes: tuple[str, ...] = ("",)  # which parts adapt

    def recall(self, memory: Mapping[str, Params | np.ndarray]) -> "Deployment":
        """This deployment with what a client remembers put in place."""
        models, weights = self.models, self.weights
        part = memory.get(self.remembered)
        if isinstance(part, Params):
            models = (models[0].replace(part), *models[1:])
        shares = memory.get(self.remembered_weights)
        if isinstance(shares, np.ndarray):
            chosen = shares[list(self.remembered_entries)] if self.remembered_entries else shares
            # All its weight may have been on models that are gone: then the general weights hold.
            weights = tuple(map(float, chosen)) if chosen.sum() > 0 else weights
        return replace(
            self, models=models, weights=weights, remembered="", remembered_weights="", remembered_entries=()
        )
